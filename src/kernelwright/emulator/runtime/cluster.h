// The blocks of a cluster: they run together, and reach each other's barriers and shared memory.
// A launch without clusters has clusters of one block.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "block.h"
#include "bulk_copy.h"
#include "clocks.h"

namespace kwemu {

class Cluster {
 public:
  explicit Cluster(Worker& worker) : worker_(worker) {}
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Makes it cluster `linear` of the launch, with no thread started.
  void assign(Launch& launch, uint64_t linear);
  // Runs threads until all are done or none can go on.
  Outcome run();
  // Grows with everything that is not spinning.
  uint64_t activity() const;
  void report_spinning();

  unsigned size() const { return size_; }
  Block& block(unsigned rank) { return *blocks_[rank]; }
  uint3 index() const { return index_; }
  const Launch& launch() const { return *launch_; }

  // The clocks, kept from the first time that they are asked for.
  Clocks& clocks();
  bool has_clocks() const { return clocks_.active(); }
  const Clocks& kept_clocks() const { return clocks_; }

  // A bulk copy that will land when everybody waits.
  void ask(BulkCopy copy) { copies_.push_back(std::move(copy)); }

  // Called by a running thread of `block`.
  void arrive(Block& block);
  void wait(Block& block, Place place);
  // A thread has exited: the others may be complete now.
  void recheck_barrier();

 private:
  struct Waiting {
    Block* block;
    Thread* thread;
  };

  bool can_run() const;
  bool is_done() const;
  bool land_copy();
  // Lets threads that wait for a barrier look again; false if nothing has happened since.
  bool poll();
  void report_stuck();
  void report_unseen_copies();
  unsigned live_threads() const;

  Worker& worker_;
  Launch* launch_ = nullptr;
  uint3 index_{0, 0, 0};
  unsigned size_ = 1;
  std::vector<std::unique_ptr<Block>> blocks_;  // at least `size_`
  Clocks clocks_;
  std::deque<BulkCopy> copies_;
  uint64_t polled_at_ = 0;

  struct Barrier {
    unsigned arrived = 0;
    uint64_t generation = 0;
    Clock arriving, complete;
    std::vector<Waiting> waiting;
  } barrier_;
};

}  // namespace kwemu
