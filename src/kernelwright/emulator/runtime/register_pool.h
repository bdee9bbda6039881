// The registers of a block's warps, as setmaxnreg moves them.
#pragma once

#include <vector>

namespace kwemu {

class Block;
struct Place;

class RegisterPool {
 public:
  static constexpr unsigned kRegisters = 64 << 10;  // of a block
  static constexpr unsigned kUnit = 8, kLeast = 24, kMost = 256;

  // A new block's: every thread has an equal share, as a kernel for one block per multiprocessor.
  void assign(unsigned threads);
  // The running thread's warp will have `count` registers per thread. Waits until there are so
  // many.
  void give_back(Block& block, unsigned count, const Place& place);
  void take(Block& block, unsigned count, const Place& place);

 private:
  void check(Block& block, unsigned count, const Place& place) const;
  unsigned used() const;

  std::vector<unsigned> of_warp_;  // per thread
  std::vector<unsigned> waiting_;  // linear indices of threads
};

}  // namespace kwemu
