// A worker: one thread of the operating system that runs clusters of blocks.
#pragma once

#include <memory>
#include <vector>

#include "cluster.h"

namespace kwemu {

class Worker {
 public:
  Worker();
  // Runs clusters of the launch until none is left or it is abandoned.
  void work(Launch& launch);

  FiberPool& fibers() { return fibers_; }
  Context& scheduler() { return scheduler_; }

  // A guess at the allocation that an access at this place in the code goes to.
  Allocation*& hint(const void* code) {
    return hints_[(reinterpret_cast<uintptr_t>(code) >> 2) % kHints];
  }

 private:
  static constexpr size_t kHints = 256;

  Cluster* take_cluster(Launch& launch);

  FiberPool fibers_;
  Context scheduler_;
  Allocation* hints_[kHints];
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Cluster*> free_clusters_;
};

}  // namespace kwemu
