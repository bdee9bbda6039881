#include "worker.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "position.h"

namespace kwemu {
namespace {

// Blocks that spin, kept while others run. The device holds a few thousand.
constexpr size_t kMaxResident = 256;

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

Worker::Worker() : fibers_(&Block::fiber_main) {}

// The next block in the launch's order, if there is one and room to run it.
Block* Worker::take_block(Launch& launch) {
  if (fibers_.available() < launch.threads_per_block) return nullptr;
  const uint64_t next = launch.next_block.fetch_add(1, std::memory_order_relaxed);
  if (next >= launch.block_count) return nullptr;
  if (free_blocks_.empty()) {
    blocks_.push_back(std::make_unique<Block>(*this));
    free_blocks_.push_back(blocks_.back().get());
  }
  Block* block = free_blocks_.back();
  free_blocks_.pop_back();
  block->assign(launch, launch.order[next]);
  return block;
}

// Blocks that wait for other blocks give way to blocks that have not begun; when all wait, they
// take turns. All workers waiting for long means that nobody will ever come.
void Worker::work(Launch& launch) {
  std::fill(std::begin(hints_), std::end(hints_), nullptr);
  set_dimensions(launch.config.grid, launch.config.block);
  std::vector<Block*> waiting;
  size_t turn = 0;
  bool stalled = false;
  double stalled_since = 0;
  const auto set_stalled = [&](bool now) {
    if (now == stalled) return;
    launch.stalled_workers += now ? 1 : -1;
    stalled = now;
    stalled_since = now ? now_seconds() : 0;
  };
  while (!stopping.load(std::memory_order_relaxed)) {
    Block* block = waiting.size() < kMaxResident ? take_block(launch) : nullptr;
    const bool is_new = block != nullptr;
    if (!is_new) {
      if (waiting.empty()) break;
      turn = (turn + 1) % waiting.size();
      block = waiting[turn];
    }
    const uint64_t activity = block->activity;
    const Outcome outcome = block->run();
    if (outcome == Outcome::kDone) {
      if (!is_new) waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(turn));
      free_blocks_.push_back(block);
      set_stalled(false);
    } else if (outcome == Outcome::kStalled) {
      if (is_new) waiting.push_back(block);
      if (block->activity != activity) {
        set_stalled(false);
      } else if (turn == 0) {
        set_stalled(true);
        sched_yield();
      }
      if (stalled && launch.stalled_workers == launch.active_workers &&
          now_seconds() - stalled_since > launch.settings->stall_seconds) {
        block->report_spinning();
        launch.abandon(702 /* cudaErrorLaunchTimeout */);
      }
    }
  }
  set_stalled(false);
  --launch.active_workers;
  if (stopping.load(std::memory_order_relaxed)) {
    fibers_.reset();
    free_blocks_.clear();
    for (const auto& block : blocks_) free_blocks_.push_back(block.get());
  }
}

}  // namespace kwemu
