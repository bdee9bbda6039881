// Whether accesses of asynchronous engines to shared memory, and ordinary ones to what such engines
// use, come after what they must come after.
#pragma once

#include <cstddef>
#include <cstdint>

#include "access.h"
#include "view.h"

namespace kwemu {

// An ordinary access to a place that a bulk copy wrote: whether the running thread has waited.
bool has_seen_landing(const Block& block, size_t offset);

// Whether all products that read the 16 bytes are done, and their threads have said so to `view`.
bool readers_are_done(const View& view, const Block& home, const AsyncChunk& chunk);

// An ordinary write by the running thread to what products may read.
void check_write_under_readers(Block& block, size_t offset, const void* caller);

// A bulk copy that will overwrite 16 bytes at `offset` of `home`.
void check_bulk_write(Block& actor, Block& home, size_t offset, const void* caller);

// Products of `view`'s warps that read 16 bytes at `offset`.
void check_product_read(Block& block, const View& view, size_t offset, const void* caller);

// The running thread asks for a bulk copy that reads 16 bytes at `offset`.
void check_bulk_read(Block& block, size_t offset, const void* caller);

}  // namespace kwemu
