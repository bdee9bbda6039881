#include "worker.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "position.h"

namespace kwemu {
namespace {

// Clusters that spin, kept while others run. The device holds a few thousand.
constexpr size_t kMaxResident = 256;

double now_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

Worker::Worker() : fibers_(&Block::fiber_main) {}

// The next cluster in the launch's order, if there is one and room to run it.
Cluster* Worker::take_cluster(Launch& launch) {
  if (fibers_.available() < launch.threads_per_block * launch.cluster_size()) return nullptr;
  const uint64_t next = launch.next_cluster.fetch_add(1, std::memory_order_relaxed);
  if (next >= launch.cluster_count()) return nullptr;
  if (free_clusters_.empty()) {
    clusters_.push_back(std::make_unique<Cluster>(*this));
    free_clusters_.push_back(clusters_.back().get());
  }
  Cluster* cluster = free_clusters_.back();
  free_clusters_.pop_back();
  cluster->assign(launch, launch.order[next]);
  return cluster;
}

// Clusters that wait for others give way to those that have not begun; when all wait, they
// take turns. All workers waiting for long means that nobody will ever come.
void Worker::work(Launch& launch) {
  std::fill(std::begin(hints_), std::end(hints_), nullptr);
  set_dimensions(launch.config.grid, launch.config.block);
  std::vector<Cluster*> waiting;
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
    Cluster* cluster = waiting.size() < kMaxResident ? take_cluster(launch) : nullptr;
    const bool is_new = cluster != nullptr;
    if (!is_new) {
      if (waiting.empty()) break;
      turn = (turn + 1) % waiting.size();
      cluster = waiting[turn];
    }
    const uint64_t activity = cluster->activity();
    const Outcome outcome = cluster->run();
    if (outcome == Outcome::kDone) {
      if (!is_new) waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(turn));
      free_clusters_.push_back(cluster);
      set_stalled(false);
    } else if (outcome == Outcome::kStalled) {
      if (is_new) waiting.push_back(cluster);
      if (cluster->activity() != activity) {
        set_stalled(false);
      } else if (turn == 0) {
        set_stalled(true);
        sched_yield();
      }
      if (stalled && launch.stalled_workers == launch.active_workers &&
          now_seconds() - stalled_since > launch.settings->stall_seconds) {
        cluster->report_spinning();
        launch.abandon(702 /* cudaErrorLaunchTimeout */);
      }
    }
  }
  set_stalled(false);
  --launch.active_workers;
  if (stopping.load(std::memory_order_relaxed)) {
    fibers_.reset();
    free_clusters_.clear();
    for (const auto& cluster : clusters_) free_clusters_.push_back(cluster.get());
  }
}

}  // namespace kwemu
