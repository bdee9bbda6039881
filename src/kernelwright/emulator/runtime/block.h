// A running block: its threads, their waiting and waking, its shared memory.
//
// All threads of a cluster run on one thread of the operating system, as fibers. A thread runs
// until it has to wait; the next one is chosen right there, on the waiting thread's stack.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "async_copy.h"
#include "async_shadow.h"
#include "bulk_copy.h"
#include "clocks.h"
#include "early_start.h"
#include "fiber.h"
#include "launch_state.h"
#include "mbarrier.h"
#include "register_pool.h"
#include "shared_memory.h"
#include "warp.h"
#include "wgmma_thread.h"

namespace kwemu {

class Cluster;
class Warpgroup;
class Worker;

enum class Wait : uint8_t {
  kNotStarted,
  kNothing,  // running, or ready to
  kBlockBarrier,
  kNamedBarrier,
  kWarp,
  kMbarrier,
  kClusterBarrier,
  kProducts,   // of its warpgroup
  kRegisters,  // that other warps have not given back
  kSpinning,   // gave way to others; will run again
  kExited,
};

struct Thread {
  uint3 index;
  unsigned linear;
  Wait wait = Wait::kNotStarted;
  Fiber* fiber = nullptr;
  Place place;             // where it waits
  uint32_t sync_time = 0;  // of its last fence or atomic
  const void* spin_address = nullptr;
  unsigned spins = 0;             // synchronisations on that address, one after another
  unsigned synchronisations = 0;  // since it last gave way
  LaneCall lane;                  // what it waits for with its warp
  AsyncCopies copies;
  BulkStores stores;
  std::vector<uint32_t> proxy_fences;  // when it ordered its writes before asynchronous reads
  uint64_t cluster_arrivals = 0;       // the barrier of the cluster that it has arrived at
  WgmmaThread products;
  bool has_waited_for_launch = false;  // the one before
};

// As messages call it: "thread (1, 0, 0)".
std::string name_of(const Thread& thread);

enum class Outcome { kDone, kStalled, kAbandoned };

class Block {
 public:
  explicit Block(Worker& worker);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Makes it block `linear` of the launch, number `rank` of a cluster, with no thread started.
  void assign(Launch& launch, uint64_t linear, Cluster& cluster, unsigned rank);
  // Called by the cluster: runs threads until all are done or none can go on.
  void run();
  bool can_run() const { return ready_count_ > 0 || started_ < threads.size(); }
  bool is_done() const { return exited_ == threads.size(); }
  bool is_spinning() const { return !spinners_.empty(); }
  unsigned live_threads() const { return static_cast<unsigned>(threads.size()) - exited_; }
  void resume_spinners();
  // Threads that wait for a phase look again.
  void poll_mbarriers() { mbarriers.poll(*this); }
  // Threads wait, none can run: says who waits for what.
  void report_stuck();
  // The body of a fiber: runs threads of whatever block is current, one after another.
  static void fiber_main(Fiber* fiber);

  // The rest is called by a running thread.
  int barrier(BarrierOp op, int predicate, Place place);
  void named_barrier(int id, unsigned count, bool wait, Place place);
  uint64_t warp_call(WarpOp op, unsigned mask, uint64_t value, unsigned operand, unsigned width,
                     Place place);
  // A fence (no address), an atomic or a volatile access.
  void synchronises(const void* address, const void* caller);
  // Lets others run until somebody wakes the running thread.
  void wait_for(Wait why, Place place);
  void wake(Thread& thread);
  // What the running thread has done becomes known to whoever acquires `clock`; and back.
  void release_into(Clock& clock);
  void acquire(const Clock& clock);
  Clock& clock_of(const Thread& thread);
  // The group of four warps that the running thread multiplies with.
  Warpgroup& warpgroup();
  [[noreturn]] void abandon(int error);
  void report_about(const Thread& thread, FindingKind kind, Place place, std::string message,
                    const Thread* other, Place other_place);
  void report_spinning();  // after a run that stalled: a deadlock
  void stop_if_asked() {
    if (stopping.load(std::memory_order_relaxed)) abandon(0);
  }
  // Whether this was reported before; counts it.
  bool is_reported(FindingKind kind, const Place& place);
  // A finding about the running thread; `other` is its linear index in this block.
  void report(FindingKind kind, Place place, std::string message, const Thread* other = nullptr,
              Place other_place = {});

  // Read at every access: kept together.
  uintptr_t stack_low = 0;
  size_t stack_bytes = 0;
  uintptr_t shared_low = 0;
  Record self = 0;        // the running thread's record without tag: thread and time
  Record global_tag = 0;  // launch and block, as records have them
  uint32_t barrier_time = 1;
  bool has_synchronised = false;  // any fence or atomic so far: may be ordered after other blocks
  bool check_alignment = true;
  bool check_uninitialised = true;
  bool check_races = true;
  Thread* current = nullptr;
  Launch* launch = nullptr;
  SharedMemory shared;

  uint3 index{0, 0, 0};
  uint64_t linear = 0;
  uint64_t activity = 0;  // grows with everything that is not spinning
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  unsigned rank = 0;  // in the cluster
  MbarrierTable mbarriers;
  AsyncShadow async_shadow;
  RegisterPool registers;
  EarlyStart early_start;
  // Who has read a word of shared memory that several threads read, where barriers of some warps
  // order them.
  std::unordered_map<const Cell*, std::vector<Record>> readers;
  std::array<std::unique_ptr<Warpgroup>, AsyncChunk::kWarpgroups> warpgroups;
  // Where the running thread's sums lie on its stack: kept together by enter.
  uintptr_t sums_low = 0;
  size_t sums_bytes = 0;

  Worker& worker() { return worker_; }
  Cluster& cluster() const { return *cluster_; }
  uint32_t now() const { return time_; }
  void note_sums(const Thread& thread);
  // A new point in the block's time; later accesses are after it.
  uint32_t tick();

 private:
  void start(Thread& thread, Fiber* fiber);
  void finish(Thread& thread);
  void enter(Thread& thread);
  void block_on(Wait why, Place place);
  void suspend();
  const Context& next_context();
  void check_barrier();
  void open_interval();
  bool report_asynchronous_waits();
  // Finishes the warp-wide operations that nobody is missing from.
  void recheck_warp(Warp& warp);
  void join_lanes(const Warp& warp, unsigned together);
  unsigned lanes_together(const Warp& warp, const Thread& with) const;

  Worker& worker_;
  Cluster* cluster_ = nullptr;
  Order order_{1, 0};
  unsigned started_ = 0;
  unsigned exited_ = 0;
  unsigned time_ = 1;
  std::vector<Thread*> ready_;  // a ring; at most one entry per thread
  unsigned ready_first_ = 0;
  unsigned ready_count_ = 0;
  std::vector<Thread*> spinners_;

  struct Barrier {
    unsigned waiting = 0;
    Place place;
    const Thread* first = nullptr;
    bool reported = false;
    unsigned holds = 0;  // threads whose predicate was true
    unsigned result_holds = 0;
    unsigned result_waiting = 0;
  } barrier_;
  struct NamedBarrier {
    unsigned arrived = 0;
    unsigned count = 0;
    Clock clock;
    std::vector<Thread*> waiting;
  } named_[16];
};

// The block whose thread runs on this thread of the operating system; null outside launches.
extern __thread Block* current_block __attribute__((tls_model("initial-exec")));

}  // namespace kwemu
