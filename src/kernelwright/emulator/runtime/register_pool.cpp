#include "register_pool.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "block.h"

namespace kwemu {

void RegisterPool::assign(unsigned threads) {
  const unsigned warps = (threads + 31) / 32;
  const unsigned share = kRegisters / (warps * 32) / kUnit * kUnit;
  of_warp_.assign(warps, std::min(share, kMost - 1));
  waiting_.clear();
}

unsigned RegisterPool::used() const {
  return 32 * std::accumulate(of_warp_.begin(), of_warp_.end(), 0u);
}

void RegisterPool::check(Block& block, unsigned count, const Place& place) const {
  if (count % kUnit == 0 && count >= kLeast && count <= kMost) return;
  block.report(FindingKind::kUnsupported, place,
               "setmaxnreg takes a multiple of 8 from 24 to 256, not " + std::to_string(count));
  block.abandon(719 /* cudaErrorLaunchFailure */);
}

void RegisterPool::give_back(Block& block, unsigned count, const Place& place) {
  check(block, count, place);
  of_warp_[block.current->linear / 32] = count;
  ++block.activity;
  for (const unsigned thread : waiting_) block.wake(block.threads[thread]);
  waiting_.clear();
}

void RegisterPool::take(Block& block, unsigned count, const Place& place) {
  check(block, count, place);
  unsigned& mine = of_warp_[block.current->linear / 32];
  while (mine < count && used() + 32 * (count - mine) > kRegisters) {
    waiting_.push_back(block.current->linear);
    block.wait_for(Wait::kRegisters, place);
  }
  mine = std::max(mine, count);
  ++block.activity;
}

}  // namespace kwemu
