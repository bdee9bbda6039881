// Bulk copies: boxes of tensors that the tensor memory accelerator brings to shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor_map.h"

namespace kwemu {

class Block;

// One box on its way to one block.
struct BulkCopy {
  TensorMap map;
  int64_t place[TensorMap::kMaxRank];  // of the box's first element, innermost first
  Block* home;
  size_t offset;   // in the home's shared memory
  size_t barrier;  // the same, of the barrier to arrive at
  const void* caller;
};

// A thread of `actor` asks for a copy to one block: the place becomes unreadable until it lands.
void ask_for(Block& actor, const BulkCopy& copy);
// Writes the box and counts its bytes at the barrier.
void land(const BulkCopy& copy);
// The cluster ended before the copy landed.
void report_unfinished(const BulkCopy& copy);
// Reads the tensor's memory as the asking thread, for the checks.
void check_source(Block& actor, const BulkCopy& copy);

}  // namespace kwemu
