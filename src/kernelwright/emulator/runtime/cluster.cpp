#include "cluster.h"

#include <algorithm>

#include "worker.h"

namespace kwemu {

void Cluster::assign(Launch& launch, uint64_t linear) {
  launch_ = &launch;
  const dim3& grid = launch.config.grid;
  const dim3& shape = launch.config.cluster;
  const dim3 clusters(grid.x / shape.x, grid.y / shape.y, grid.z / shape.z);
  index_ = uint3{static_cast<unsigned>(linear % clusters.x),
                 static_cast<unsigned>(linear / clusters.x % clusters.y),
                 static_cast<unsigned>(linear / clusters.x / clusters.y)};
  size_ = shape.x * shape.y * shape.z;
  while (blocks_.size() < size_) blocks_.push_back(std::make_unique<Block>(worker_));
  clocks_.forget(size_, launch.threads_per_block);
  copies_.clear();
  polled_at_ = UINT64_MAX;
  barrier_ = {};
  for (unsigned rank = 0; rank < size_; ++rank) {
    const uint64_t x = index_.x * shape.x + rank % shape.x;
    const uint64_t y = index_.y * shape.y + rank / shape.x % shape.y;
    const uint64_t z = index_.z * shape.z + rank / shape.x / shape.y;
    blocks_[rank]->assign(launch, x + grid.x * (y + grid.y * z), *this, rank);
  }
}

bool Cluster::can_run() const {
  for (unsigned rank = 0; rank < size_; ++rank) {
    if (blocks_[rank]->can_run()) return true;
  }
  return false;
}

bool Cluster::is_done() const {
  for (unsigned rank = 0; rank < size_; ++rank) {
    if (!blocks_[rank]->is_done()) return false;
  }
  return true;
}

uint64_t Cluster::activity() const {
  uint64_t sum = 0;
  for (unsigned rank = 0; rank < size_; ++rank) sum += blocks_[rank]->activity;
  return sum;
}

Outcome Cluster::run() {
  bool spinning = false;
  for (unsigned rank = 0; rank < size_; ++rank) blocks_[rank]->resume_spinners();
  while (true) {
    for (unsigned rank = 0; rank < size_; ++rank) {
      if (blocks_[rank]->can_run()) blocks_[rank]->run();
      if (stopping.load(std::memory_order_relaxed)) return Outcome::kAbandoned;
    }
    if (can_run()) continue;
    if (is_done()) {
      report_unseen_copies();
      return Outcome::kDone;
    }
    if (land_copy()) continue;
    spinning = false;
    for (unsigned rank = 0; rank < size_; ++rank) spinning |= blocks_[rank]->is_spinning();
    if (spinning) return Outcome::kStalled;
    if (poll()) continue;
    report_stuck();
    launch_->abandon(702 /* cudaErrorLaunchTimeout */);
    return Outcome::kAbandoned;
  }
}

// Copies land as late as they can: when nobody can go on without them. Which is first is open.
bool Cluster::land_copy() {
  if (copies_.empty()) return false;
  const bool newest = launch_->settings->order_seed % 2 == 1;
  const BulkCopy copy = newest ? copies_.back() : copies_.front();
  if (newest) {
    copies_.pop_back();
  } else {
    copies_.pop_front();
  }
  land(copy);
  return true;
}

void Cluster::report_unseen_copies() {
  if (!copies_.empty()) report_unfinished(copies_.front());
  for (unsigned rank = 0; rank < size_; ++rank) {
    blocks_[rank]->mbarriers.report_unseen(*blocks_[rank]);
  }
}

bool Cluster::poll() {
  const uint64_t now = activity();
  if (now == polled_at_) return false;
  polled_at_ = now;
  for (unsigned rank = 0; rank < size_; ++rank) blocks_[rank]->poll_mbarriers();
  return can_run();
}

void Cluster::report_stuck() {
  for (unsigned rank = 0; rank < size_; ++rank) {
    if (!blocks_[rank]->is_done()) blocks_[rank]->report_stuck();
  }
}

void Cluster::report_spinning() {
  for (unsigned rank = 0; rank < size_; ++rank) {
    if (blocks_[rank]->is_spinning()) return blocks_[rank]->report_spinning();
  }
}

Clocks& Cluster::clocks() {
  if (!clocks_.active()) {
    std::vector<uint32_t> known(size_);
    for (unsigned rank = 0; rank < size_; ++rank) known[rank] = blocks_[rank]->barrier_time - 1;
    clocks_.activate(known);
  }
  return clocks_;
}

unsigned Cluster::live_threads() const {
  unsigned live = 0;
  for (unsigned rank = 0; rank < size_; ++rank) live += blocks_[rank]->live_threads();
  return live;
}

void Cluster::arrive(Block& block) {
  block.release_into(barrier_.arriving);
  ++barrier_.arrived;
  block.current->cluster_arrivals = barrier_.generation + 1;
  ++block.activity;
  recheck_barrier();
}

void Cluster::recheck_barrier() {
  if (barrier_.arrived == 0 || barrier_.arrived < live_threads()) return;
  barrier_.arrived = 0;
  ++barrier_.generation;
  barrier_.complete = std::move(barrier_.arriving);
  barrier_.arriving = {};
  for (const Waiting& waiting : barrier_.waiting) waiting.block->wake(*waiting.thread);
  barrier_.waiting.clear();
}

void Cluster::wait(Block& block, Place place) {
  Thread& thread = *block.current;
  while (thread.cluster_arrivals > barrier_.generation) {
    barrier_.waiting.push_back({&block, &thread});
    block.wait_for(Wait::kClusterBarrier, place);
  }
  block.acquire(barrier_.complete);
}

}  // namespace kwemu
