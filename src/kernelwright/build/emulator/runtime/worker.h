// A worker: one thread of the operating system that runs blocks.
#pragma once

#include <memory>
#include <vector>

#include "block.h"

namespace kwemu {

class Worker {
 public:
  Worker();
  // Runs blocks of the launch until none is left or it is abandoned.
  void work(Launch& launch);

  FiberPool& fibers() { return fibers_; }
  Context& scheduler() { return scheduler_; }

  // A guess at the allocation that an access at this place in the code goes to.
  Allocation*& hint(const void* code) {
    return hints_[(reinterpret_cast<uintptr_t>(code) >> 2) % kHints];
  }

 private:
  static constexpr size_t kHints = 256;

  Block* take_block(Launch& launch);
  Outcome run(Block& block);

  FiberPool fibers_;
  Context scheduler_;
  Allocation* hints_[kHints];
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_blocks_;
};

}  // namespace kwemu
