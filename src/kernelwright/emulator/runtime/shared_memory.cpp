#include "shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace kwemu {
namespace {

constexpr size_t kDeviceBytes = size_t{227} << 10;

unsigned slot_of(SharedSite& site) {
  static std::atomic<unsigned> next{1};
  std::atomic_ref<unsigned> slot(site.slot);
  unsigned known = slot.load(std::memory_order_acquire);
  if (known != 0) return known;
  const unsigned fresh = next.fetch_add(1);
  return slot.compare_exchange_strong(known, fresh) ? fresh : known;
}

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

}  // namespace

SharedMemory::SharedMemory() : shadow_(kBytes) {
  void* range = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr, "kernelwright emulator: no memory for a block's shared memory\n");
    std::abort();
  }
  memory_ = static_cast<char*>(range);
  std::fill(shadow_.word(0), shadow_.word(kBytes), Cell{kRedzone, 0});
}

SharedMemory::~SharedMemory() { munmap(memory_, kBytes); }

void SharedMemory::reset(size_t dynamic_bytes) {
  std::fill(shadow_.word(kStart), shadow_.word(round_up(end_, 4)), Cell{kRedzone, 0});
  std::fill(by_slot_.begin(), by_slot_.end(), nullptr);
  variables_.clear();
  end_ = kStart;
  used_ = dynamic_bytes;
  if (dynamic_bytes == 0) return;
  variables_.push_back({"dynamic shared memory", kStart, dynamic_bytes});
  open(kStart, dynamic_bytes);
}

// Makes a range accessible and uninitialised.
void SharedMemory::open(size_t offset, size_t bytes) {
  fill_with_poison(memory_ + offset, bytes);
  std::fill(shadow_.word(offset), shadow_.word(offset + bytes / 4 * 4), Cell{kUninitialised, 0});
  if (bytes % 4 != 0) {
    const size_t last = offset + bytes / 4 * 4;
    *shadow_.word(last) = Cell{kSplitShared, 0};
    for (size_t i = 0; i < 4; ++i) {
      *shadow_.byte(last + i) = Cell{i < bytes % 4 ? kUninitialised : kRedzone, 0};
    }
  }
  end_ = offset + bytes;
}

void* SharedMemory::variable(SharedSite& site, size_t bytes, size_t alignment) {
  const unsigned slot = slot_of(site);
  if (slot >= by_slot_.size()) by_slot_.resize(slot + 1, nullptr);
  if (by_slot_[slot] != nullptr) return by_slot_[slot];
  const size_t aligned = std::max<size_t>(alignment, 16);
  const size_t offset = round_up(end_ + kRedzoneBytes, aligned);
  used_ = round_up(used_, aligned) + bytes;
  if (used_ > kDeviceBytes || offset + bytes + kRedzoneBytes > kBytes) return nullptr;
  open(offset, bytes);
  variables_.push_back({site.name, offset, bytes});
  return by_slot_[slot] = memory_ + offset;
}

std::string SharedMemory::describe(size_t offset) const {
  const Variable* before = nullptr;
  const Variable* after = nullptr;
  for (const Variable& variable : variables_) {
    if (variable.offset <= offset) before = &variable;
    if (variable.offset > offset && after == nullptr) after = &variable;
  }
  const auto sized = [](const Variable& variable) {
    return "'" + std::string(variable.name) + "' (" + std::to_string(variable.bytes) + " bytes)";
  };
  const auto bytes = [](size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); };
  if (before == nullptr && after == nullptr) return "the block has no shared memory";
  if (before == nullptr || (after != nullptr && after->offset - offset <= kRedzoneBytes / 2 &&
                            offset >= before->offset + before->bytes)) {
    return bytes(after->offset - offset) + " before " + sized(*after);
  }
  if (offset < before->offset + before->bytes) {
    return "byte " + std::to_string(offset - before->offset) + " of " + sized(*before);
  }
  return bytes(offset - before->offset - before->bytes) + " past the end of " + sized(*before);
}

}  // namespace kwemu
