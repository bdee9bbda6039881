#include "clocks.h"

#include <algorithm>

#include "vectors.h"

namespace kwemu {
namespace {

KWEMU_VECTORS void keep_later(uint32_t* mine, const uint32_t* theirs, size_t count) {
  for (size_t i = 0; i < count; ++i) mine[i] = std::max(mine[i], theirs[i]);
}

}  // namespace

void Clock::set(size_t entry, uint32_t time) {
  if (entry >= times_.size()) times_.resize(entry + 1, 0);
  times_[entry] = std::max(times_[entry], time);
}

void Clock::join(const Clock& other) {
  if (times_.size() < other.times_.size()) times_.resize(other.times_.size(), 0);
  keep_later(times_.data(), other.times_.data(), other.times_.size());
}

void Clock::meet(const Clock& other) {
  if (times_.size() > other.times_.size()) times_.resize(other.times_.size());
  uint32_t* mine = times_.data();
  const uint32_t* theirs = other.times_.data();
  for (size_t i = 0; i < times_.size(); ++i) mine[i] = std::min(mine[i], theirs[i]);
}

void Clocks::forget(unsigned blocks, unsigned threads) {
  blocks_ = blocks;
  threads_ = threads;
  clocks_.clear();
}

void Clocks::activate(const std::vector<uint32_t>& known) {
  const size_t entries = thread_entry(blocks_, 0);
  clocks_.resize(static_cast<size_t>(blocks_) * threads_);
  for (unsigned rank = 0; rank < blocks_; ++rank) {
    for (unsigned thread = 0; thread < threads_; ++thread) {
      std::vector<uint32_t>& times = of(rank, thread).times_;
      times.assign(entries, 0);
      const auto first = times.begin() + static_cast<std::ptrdiff_t>(thread_entry(rank, 0));
      std::fill(first, first + threads_, known[rank]);
    }
  }
}

void Clocks::join_block(unsigned rank, uint32_t time) {
  Clock all;
  for (unsigned thread = 0; thread < threads_; ++thread) all.join(of(rank, thread));
  for (unsigned thread = 0; thread < threads_; ++thread) all.set(thread_entry(rank, thread), time);
  for (unsigned thread = 0; thread < threads_; ++thread) of(rank, thread) = all;
}

}  // namespace kwemu
