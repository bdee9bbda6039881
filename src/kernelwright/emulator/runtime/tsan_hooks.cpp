// What the compiler calls before every memory access of a unit (gcc's -fsanitize=thread).
#include "export.h"
#include "races.h"
#include "worker.h"

namespace kwemu {
namespace {

template <size_t kBytes>
inline void note_shared(Block& block, size_t offset, Access access, const void* caller) {
  if constexpr (kBytes >= 4) {
    for (size_t i = 0; i < kBytes; i += 4) note_shared_word(block, offset + i, access, caller);
  } else {
    const unsigned mask = ((1u << kBytes) - 1) << (offset & 3);
    note_shared_bytes(block, offset & ~size_t{3}, mask, access, caller);
  }
}

template <size_t kBytes>
inline void note_global(Block& block, Allocation& allocation, size_t offset, Access access,
                        const void* caller) {
  if constexpr (kBytes >= 4) {
    for (size_t i = 0; i < kBytes; i += 4) {
      note_global_word(block, allocation, offset + i, access, caller);
    }
  } else {
    const unsigned mask = ((1u << kBytes) - 1) << (offset & 3);
    note_global_bytes(block, allocation, offset & ~size_t{3}, mask, access, caller);
  }
}

// An access of its natural alignment: stack, shared memory, the allocation that this place in the
// code used last, and only then the search.
template <size_t kBytes>
inline void on_access(const void* pointer, Access access, const void* caller) {
  Block* const block = current_block;
  if (block == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address - block->stack_low < block->stack_bytes) {
    if (address - block->sums_low < block->sums_bytes) {
      check_sums(*block, address, kBytes, access, caller);
    }
    return;
  }
  block->stop_if_asked();
  if constexpr (kBytes > 1) {
    if ((address & (kBytes - 1)) != 0 && block->check_alignment) {
      fail_misaligned(*block, address, kBytes, access, caller);
    }
    if ((address & (kBytes - 1)) != 0) {
      return check_access(*block, address, kBytes, access, caller);
    }
  }
  const size_t shared_offset = address - block->shared_low;
  if (shared_offset < SharedMemory::kBytes) {
    return note_shared<kBytes>(*block, shared_offset, access, caller);
  }
  Allocation* const allocation = block->worker().hint(caller);
  if (allocation == nullptr || !allocation->contains(address, kBytes)) {
    return check_access(*block, address, kBytes, access, caller);
  }
  const size_t offset = address - allocation->low;
  if (access == Access::kRead && block->check_uninitialised && holds_poison(address, kBytes) &&
      allocation->may_be_uninitialised) {
    report_poison(*block, *allocation, offset, caller);
  }
  if (block->check_races && allocation->shadow.exists()) {
    note_global<kBytes>(*block, *allocation, offset, access, caller);
  }
}

inline void on_range(const void* pointer, size_t bytes, Access access, const void* caller) {
  if (current_block == nullptr) return;
  current_block->stop_if_asked();
  check_access(*current_block, reinterpret_cast<uintptr_t>(pointer), bytes, access, caller);
}

// volatile: in shared memory an access like any other; in global memory a flag between blocks.
inline void on_volatile(const void* pointer, size_t bytes, Access access, const void* caller) {
  Block* const block = current_block;
  if (block == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (address - block->stack_low < block->stack_bytes) return;
  if ((address & (bytes - 1)) != 0 && block->check_alignment) {
    fail_misaligned(*block, address, bytes, access, caller);
  }
  const bool is_shared = address - block->shared_low < SharedMemory::kBytes;
  const bool is_flag = !is_shared && access == Access::kWrite;
  if (is_shared || is_flag) {
    check_access(*block, address, bytes, is_flag ? Access::kAtomic : access, caller);
  } else {
    check_readable(*block, address, bytes, caller);
  }
  block->synchronises(pointer, caller);
}

}  // namespace
}  // namespace kwemu

using kwemu::Access;

#define KWEMU_HOOKS(bytes)                                                       \
  extern "C" KWEMU_EXPORT void __tsan_read##bytes(void* p) {                     \
    kwemu::on_access<bytes>(p, Access::kRead, __builtin_return_address(0));      \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_write##bytes(void* p) {                    \
    kwemu::on_access<bytes>(p, Access::kWrite, __builtin_return_address(0));     \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_unaligned_read##bytes(void* p) {           \
    kwemu::on_range(p, bytes, Access::kRead, __builtin_return_address(0));       \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_unaligned_write##bytes(void* p) {          \
    kwemu::on_range(p, bytes, Access::kWrite, __builtin_return_address(0));      \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_volatile_read##bytes(void* p) {            \
    kwemu::on_volatile(p, bytes, Access::kRead, __builtin_return_address(0));    \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_volatile_write##bytes(void* p) {           \
    kwemu::on_volatile(p, bytes, Access::kWrite, __builtin_return_address(0));   \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_unaligned_volatile_read##bytes(void* p) {  \
    kwemu::on_range(p, bytes, Access::kRead, __builtin_return_address(0));       \
  }                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_unaligned_volatile_write##bytes(void* p) { \
    kwemu::on_range(p, bytes, Access::kWrite, __builtin_return_address(0));      \
  }

KWEMU_HOOKS(1)
KWEMU_HOOKS(2)
KWEMU_HOOKS(4)
KWEMU_HOOKS(8)
KWEMU_HOOKS(16)

extern "C" KWEMU_EXPORT void __tsan_read_range(void* p, size_t bytes) {
  kwemu::on_range(p, bytes, Access::kRead, __builtin_return_address(0));
}
extern "C" KWEMU_EXPORT void __tsan_write_range(void* p, size_t bytes) {
  kwemu::on_range(p, bytes, Access::kWrite, __builtin_return_address(0));
}

extern "C" KWEMU_EXPORT void __tsan_init() {}
extern "C" KWEMU_EXPORT void __tsan_func_entry(void*) {}
extern "C" KWEMU_EXPORT void __tsan_func_exit() {}
// Constructors and destructors of classes with virtual functions set their table's pointer.
extern "C" KWEMU_EXPORT void __tsan_vptr_update(void**, void*) {}
extern "C" KWEMU_EXPORT void __tsan_vptr_read(void**) {}
