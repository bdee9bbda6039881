#include "wgmma_thread.h"

#include <algorithm>

namespace kwemu {

bool ThreadSums::overlaps(uintptr_t address, size_t bytes) const {
  const auto first = reinterpret_cast<uintptr_t>(registers.front());
  const auto last = reinterpret_cast<uintptr_t>(registers.back());
  const size_t span = (registers.size() - 1) * sizeof(float);
  const auto hits = [&](uintptr_t low, size_t size) {
    return address < low + size && low < address + bytes;
  };
  if (last - first == span) return hits(first, span + sizeof(float));  // an array, as a rule
  return std::any_of(registers.begin(), registers.end(), [&](const float* one) {
    return hits(reinterpret_cast<uintptr_t>(one), sizeof(float));
  });
}

ThreadSums& WgmmaThread::find(float* const* registers, unsigned count) {
  for (ThreadSums& sums : sums_) {
    if (sums.registers.size() == count && sums.registers.front() == registers[0]) return sums;
  }
  ThreadSums sums;
  sums.registers.assign(registers, registers + count);
  sums.is_touched = !is_fenced;
  for (float* one : sums.registers) {
    const auto at = reinterpret_cast<uintptr_t>(one);
    const uintptr_t low = bytes_ == 0 ? at : std::min(low_, at);
    const uintptr_t high = std::max(low_ + bytes_, at + sizeof(float));
    low_ = low;
    bytes_ = high - low;
  }
  sums_.push_back(std::move(sums));
  return sums_.back();
}

bool WgmmaThread::touch(uintptr_t address, size_t bytes) {
  for (ThreadSums& sums : sums_) {
    if (!sums.overlaps(address, bytes)) continue;
    if (sums.is_pending()) return true;
    sums.is_touched = true;
  }
  return false;
}

}  // namespace kwemu
