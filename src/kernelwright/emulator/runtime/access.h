// The checks of one memory access by the running thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "async_copy.h"
#include "block.h"

namespace kwemu {

enum class Access { kRead, kWrite, kAtomic };

// An access of any size at any address; `caller` is the return address in the user's code.
void check_access(Block& block, uintptr_t address, size_t bytes, Access access, const void* caller);

// Bounds and initialisation alone: for reads that take part in no race.
void check_readable(Block& block, uintptr_t address, size_t bytes, const void* caller);

// A bulk copy's read of global memory, which may never have been written: its bytes are looked at
// where they are used.
void check_bulk_source(Block& block, uintptr_t address, size_t bytes, const void* caller);

// The sums of products in flight: only a wait makes them the thread's own again.
void check_sums(Block& block, uintptr_t address, size_t bytes, Access access, const void* caller);

// Ends the launch: vector accesses must be aligned to their size on the device.
[[noreturn]] void fail_misaligned(Block& block, uintptr_t address, size_t bytes, Access access,
                                  const void* caller);

// Whether a word of global memory that this access reads holds the allocator's pattern.
inline bool holds_poison(uintptr_t address, size_t bytes) {
  typedef uint32_t __attribute__((may_alias)) Word;
  const uintptr_t end = address + bytes;
  for (uintptr_t word = address & ~uintptr_t{3}; word < end; word += 4) {
    if (*reinterpret_cast<const Word*>(word) == kPoison32) return true;
  }
  return false;
}

// Reports the read unless a kernel of this launch has written the place.
void report_poison(Block& block, Allocation& allocation, size_t offset, const void* caller);

// The destination becomes unreadable, and then holds what the source holds.
void begin_async_copy(Block& block, const AsyncCopy& copy);
void end_async_copy(Block& block, const AsyncCopy& copy);

}  // namespace kwemu
