// One launch, and the settings it runs under.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device_limits.h"
#include "kwemu/abi.h"
#include "registry.h"
#include "report.h"

namespace kwemu {

struct Settings {
  unsigned order_seed = 0;        // 0: natural order of blocks and threads
  unsigned threads = 1;           // of the operating system
  double stall_seconds = 2;       // blocks that only spin for so long are a deadlock
  double time_limit_seconds = 0;  // of one launch; 0: none
  bool check_bounds = true;
  bool check_alignment = true;
  bool check_uninitialised = true;
  bool check_races = true;
  int multiprocessors = kMultiprocessors;  // that the device says it has
  bool silent = false;                     // launches are counted and do nothing
};

// What a launch knows of those before it that may still run (programmatic dependent launch), and
// what it leaves to know for the next. Launches are counted as records do.
struct Overlap {
  static constexpr unsigned kNone = ~0u;

  unsigned oldest_running = kNone;   // before it has waited for the one before it
  unsigned oldest_unwaited = kNone;  // after that: those that the one before it did not wait for
  std::atomic<uint64_t> blocks_that_waited{0};
  std::atomic<bool> lets_next_start_early{false};  // before it has waited itself
};

// The order in which `count` things are done: a permutation without a table.
class Order {
 public:
  Order(uint64_t count, unsigned seed);
  uint64_t operator[](uint64_t i) const { return (i * step_ + start_) % count_; }

 private:
  uint64_t count_;
  uint64_t step_ = 1;
  uint64_t start_ = 0;
};

struct Launch {
  const char* kernel = "";
  Place place;
  Config config;
  void (*body)(void*) = nullptr;  // runs one thread
  void* closure = nullptr;
  size_t closure_bytes = 0;
  const Settings* settings = nullptr;
  std::vector<Allocation*> allocations;
  Record tag = 0;  // in the place of records' launch bits
  uintptr_t host_stack_low = 0;
  size_t host_stack_bytes = 0;

  Order order{1, 0};  // of clusters
  uint64_t block_count = 0;
  unsigned threads_per_block = 0;
  std::atomic<uint64_t> next_cluster{0};
  std::atomic<unsigned> active_workers{0};
  std::atomic<unsigned> stalled_workers{0};
  std::atomic<int> error{0};  // cudaError_t; the first wins
  Overlap overlap;
  // Per block: the time of its last fence or atomic, for ordering between blocks.
  std::unique_ptr<std::atomic<uint32_t>[]> released;

  unsigned cluster_size() const { return config.cluster.x * config.cluster.y * config.cluster.z; }
  uint64_t cluster_count() const { return block_count / cluster_size(); }
  Allocation* find(uintptr_t address) const;
  bool on_host_stack(uintptr_t address) const {
    return address - host_stack_low < host_stack_bytes;
  }
  bool in_closure(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(closure) < closure_bytes;
  }
  // Ends the launch everywhere.
  void abandon(int error);
};

// Set while a launch is being abandoned; every hook looks at it.
extern std::atomic<bool> stopping;

}  // namespace kwemu
