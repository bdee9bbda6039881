#include "access.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "races.h"
#include "worker.h"

namespace kwemu {
namespace {

const char* noun(Access access) {
  switch (access) {
    case Access::kRead:
      return "read";
    case Access::kWrite:
      return "write";
    default:
      return "atomic update";
  }
}

std::string in_hex(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string in_bytes(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

// Where a bad address lies: next to which allocation.
std::string describe(const Launch& launch, uintptr_t address) {
  constexpr uintptr_t kNear = uintptr_t{1} << 20;
  if (address < 4096) return "address " + in_hex(address) + " (a null pointer)";
  if (launch.on_host_stack(address)) {
    return "address " + in_hex(address) + ", a local variable of the host";
  }
  std::string nearest;
  uintptr_t distance = kNear;
  for (const Allocation* allocation : launch.allocations) {
    if (!allocation->may_be_uninitialised) continue;  // module data
    const std::string name = "'" + allocation->name + "' (" + in_bytes(allocation->bytes) + ")";
    if (address >= allocation->high() && address - allocation->high() < distance) {
      distance = address - allocation->high();
      nearest = in_bytes(distance) + " past the end of " + name;
    } else if (address >= allocation->low && address < allocation->high()) {
      distance = 0;
      nearest = in_bytes(address - allocation->low) + " into " + name + ", running past its end";
    } else if (address < allocation->low && allocation->low - address < distance) {
      distance = allocation->low - address;
      nearest = in_bytes(distance) + " before " + name;
    }
  }
  return nearest.empty() ? "address " + in_hex(address) + ", which is no device memory" : nearest;
}

void check_shared(Block& block, size_t offset, size_t bytes, Access access, const void* caller) {
  const size_t end = offset + bytes;
  while (offset < end) {
    const size_t word = offset & ~size_t{3};
    const size_t first = offset - word;
    const size_t last = std::min<size_t>(4, end - word);
    if (first == 0 && last == 4) {
      note_shared_word(block, word, access, caller);
    } else {
      note_shared_bytes(block, word, ((1u << last) - 1) & ~((1u << first) - 1), access, caller);
    }
    offset = word + 4;
  }
}

void check_global(Block& block, Allocation& allocation, size_t offset, size_t bytes, Access access,
                  const void* caller) {
  if (block.check_uninitialised && access != Access::kWrite && allocation.may_be_uninitialised &&
      holds_poison(allocation.low + offset, bytes)) {
    report_poison(block, allocation, offset, caller);
  }
  if (!block.check_races || !allocation.shadow.exists()) return;
  const size_t end = offset + bytes;
  while (offset < end) {
    const size_t word = offset & ~size_t{3};
    const size_t first = offset - word;
    const size_t last = std::min<size_t>(4, end - word);
    if (first == 0 && last == 4) {
      note_global_word(block, allocation, word, access, caller);
    } else {
      note_global_bytes(block, allocation, word, ((1u << last) - 1) & ~((1u << first) - 1), access,
                        caller);
    }
    offset = word + 4;
  }
}

}  // namespace

void fail_misaligned(Block& block, uintptr_t address, size_t bytes, Access access,
                     const void* caller) {
  block.report(FindingKind::kMisaligned, Place::of(caller),
               std::string(noun(access)) + " of " + in_bytes(bytes) + " at " + in_hex(address) +
                   ", which is no multiple of " + std::to_string(bytes));
  block.abandon(716 /* cudaErrorMisalignedAddress */);
}

void report_poison(Block& block, Allocation& allocation, size_t offset, const void* caller) {
  if (block.check_races && allocation.shadow.exists() &&
      of_this_launch(block, load(allocation.shadow.word(offset)->write))) {
    return;
  }
  const Place place = Place::of(caller);
  if (block.is_reported(FindingKind::kUninitialisedRead, place)) return;
  block.report(FindingKind::kUninitialisedRead, place,
               "reads byte " + std::to_string(offset) + " of '" + allocation.name +
                   "', which nobody has written");
}

namespace {

// The allocation that an access to global memory goes to. None: the host's stack, or anything when
// bounds are not checked; everything else ends the launch.
Allocation* find_target(Block& block, uintptr_t address, size_t bytes, Access access,
                        const void* caller) {
  const Launch& launch = *block.launch;
  Allocation* allocation = launch.find(address);
  if (allocation != nullptr && allocation->contains(address, bytes) &&
      (access == Access::kRead || allocation->writable)) {
    return allocation;
  }
  // The arguments, which every thread copies, and the variable that may name the kernel.
  const bool is_pointer = launch.on_host_stack(address) && bytes == sizeof(void*);
  if (access == Access::kRead && (launch.in_closure(address) || is_pointer)) return nullptr;
  if (!launch.settings->check_bounds) return nullptr;
  block.report(
      FindingKind::kOutOfBounds, Place::of(caller),
      std::string(noun(access)) + " of " + in_bytes(bytes) + " at " + describe(launch, address));
  block.abandon(700 /* cudaErrorIllegalAddress */);
}

}  // namespace

void check_access(Block& block, uintptr_t address, size_t bytes, Access access,
                  const void* caller) {
  if (address - block.stack_low < block.stack_bytes || bytes == 0) {
    if (address + bytes - block.sums_low < block.sums_bytes + bytes) {
      check_sums(block, address, bytes, access, caller);
    }
    return;
  }
  if (address - block.shared_low < SharedMemory::kBytes) {
    return check_shared(block, address - block.shared_low, bytes, access, caller);
  }
  Allocation* allocation = find_target(block, address, bytes, access, caller);
  if (allocation == nullptr) return;
  block.worker().hint(caller) = allocation;
  check_global(block, *allocation, address - allocation->low, bytes, access, caller);
}

void check_readable(Block& block, uintptr_t address, size_t bytes, const void* caller) {
  Allocation* allocation = find_target(block, address, bytes, Access::kRead, caller);
  if (allocation != nullptr && block.check_uninitialised && allocation->may_be_uninitialised &&
      holds_poison(address, bytes)) {
    report_poison(block, *allocation, address - allocation->low, caller);
  }
}

void check_bulk_source(Block& block, uintptr_t address, size_t bytes, const void* caller) {
  Allocation* allocation = find_target(block, address, bytes, Access::kRead, caller);
  if (allocation == nullptr || !block.check_races || !allocation->shadow.exists()) return;
  const size_t end = address - allocation->low + bytes;
  for (size_t word = (address - allocation->low) & ~size_t{3}; word < end; word += 4) {
    note_global_word(block, *allocation, word, Access::kRead, caller);
  }
}

void check_sums(Block& block, uintptr_t address, size_t bytes, Access access, const void* caller) {
  if (!block.current->products.touch(address, bytes)) return;
  const Place place = Place::of(caller);
  if (block.is_reported(FindingKind::kRace, place)) return;
  block.report(FindingKind::kRace, place,
               std::string(access == Access::kRead ? "reads" : "writes") +
                   " sums of a wgmma instruction that is under way: no wgmma.wait_group stands "
                   "in between");
}

void end_async_copy(Block& block, const AsyncCopy& copy) {
  std::memcpy(copy.shared, copy.global, copy.source_bytes);
  std::memset(copy.shared + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
  const size_t offset = reinterpret_cast<uintptr_t>(copy.shared) - block.shared_low;
  const Record written = shared_record(block, Access::kWrite, copy.caller);
  for (unsigned i = 0; i < copy.bytes; i += 4) *block.shared.word(offset + i) = Cell{written, 0};
}

}  // namespace kwemu
