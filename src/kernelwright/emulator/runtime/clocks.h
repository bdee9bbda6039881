// Who has seen what in a cluster: vector clocks.
//
// A block's time counts its synchronisations. A clock has an entry for each thread of the cluster,
// the time up to which everything that thread did is known to have happened, and one for each
// barrier in shared memory, the time of the last bulk copies that it is known to have brought.
// Clocks are kept only by clusters that use barriers of less than a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kwemu {

class Clock {
 public:
  bool empty() const { return times_.empty(); }
  void clear() { times_.clear(); }
  void resize(size_t entries) { times_.assign(entries, 0); }
  size_t size() const { return times_.size(); }
  // 0, before everything, where nothing is known.
  uint32_t at(size_t entry) const { return entry < times_.size() ? times_[entry] : 0; }
  void set(size_t entry, uint32_t time);
  // Knows what either knew.
  void join(const Clock& other);
  // Knows what both knew.
  void meet(const Clock& other);

 private:
  friend class Clocks;
  std::vector<uint32_t> times_;
};

// The clocks of a cluster's threads.
class Clocks {
 public:
  static constexpr unsigned kBarriers = 64;  // of a block; more share entries

  // Before the cluster runs: no clocks until somebody asks for them.
  void forget(unsigned blocks, unsigned threads);
  bool active() const { return !clocks_.empty(); }
  // All threads of a block know all of it up to `known[block]`.
  void activate(const std::vector<uint32_t>& known);

  size_t thread_entry(unsigned rank, unsigned thread) const {
    return static_cast<size_t>(rank) * (threads_ + kBarriers) + thread;
  }
  size_t barrier_entry(unsigned rank, unsigned slot) const {
    return thread_entry(rank, threads_ + slot % kBarriers);
  }
  Clock& of(unsigned rank, unsigned thread) {
    return clocks_[static_cast<size_t>(rank) * threads_ + thread];
  }
  // All threads of a block have met: each knows what any knew, and all they did up to `time`.
  void join_block(unsigned rank, uint32_t time);

 private:
  unsigned blocks_ = 0;
  unsigned threads_ = 0;  // of a block
  std::vector<Clock> clocks_;
};

}  // namespace kwemu
