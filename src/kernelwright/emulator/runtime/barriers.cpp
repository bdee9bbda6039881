// The waiting places of a block: barriers, named barriers, warp-wide operations.
#include <initializer_list>
#include <string>

#include "block.h"
#include "cluster.h"

namespace kwemu {
namespace {

bool same_place(const Place& a, const Place& b) { return a.line == b.line && a.file == b.file; }

std::string waits_where(const Thread& thread) {
  const std::string line =
      thread.place.file != nullptr ? " at line " + std::to_string(thread.place.line) : "";
  switch (thread.wait) {
    case Wait::kBlockBarrier:
      return "waits in a block-wide barrier" + line;
    case Wait::kNamedBarrier:
      return "waits in a named barrier" + line;
    case Wait::kWarp:
      return "waits in a warp-wide operation" + line;
    case Wait::kMbarrier:
      return "waits for a phase of a barrier in shared memory";
    case Wait::kClusterBarrier:
      return "waits in the barrier of its cluster" + line;
    case Wait::kProducts:
      return "waits for wgmma instructions that other threads of its warpgroup have not reached";
    case Wait::kRegisters:
      return "waits for registers: setmaxnreg.inc needs more than other warps have given back";
    case Wait::kExited:
      return "has exited";
    default:
      return "runs";
  }
}

}  // namespace

int Block::barrier(BarrierOp op, int predicate, Place place) {
  Thread& thread = *current;
  thread.spin_address = nullptr;
  if (barrier_.waiting == 0) {
    barrier_.place = place;
    barrier_.first = &thread;
    barrier_.holds = 0;
  } else if (!same_place(barrier_.place, place)) {
    report(FindingKind::kBarrierDivergence, place,
           "threads of one block wait in different barriers: this one here, " +
               name_of(*barrier_.first) + " at line " + std::to_string(barrier_.place.line),
           barrier_.first, barrier_.place);
  }
  ++barrier_.waiting;
  barrier_.holds += predicate != 0 ? 1 : 0;
  block_on(Wait::kBlockBarrier, place);
  recheck_warp(warps[thread.linear / 32]);
  check_barrier();
  suspend();
  switch (op) {
    case BarrierOp::kCount:
      return static_cast<int>(barrier_.result_holds);
    case BarrierOp::kAnd:
      return barrier_.result_holds == barrier_.result_waiting;
    case BarrierOp::kOr:
      return barrier_.result_holds != 0;
    default:
      return 0;
  }
}

// Opens the barrier when all threads that have not exited wait in it.
void Block::check_barrier() {
  if (barrier_.waiting == 0 || barrier_.waiting != threads.size() - exited_) return;
  if (exited_ != 0) {
    const Thread* gone = nullptr;
    for (const Thread& thread : threads) {
      if (thread.wait == Wait::kExited && gone == nullptr) gone = &thread;
    }
    report_about(*barrier_.first, FindingKind::kBarrierDivergence, barrier_.place,
                 std::to_string(exited_) + " threads of the block exited without reaching this " +
                     "barrier, " + name_of(*gone) + " among them",
                 gone, {});
  }
  barrier_.result_holds = barrier_.holds;
  barrier_.result_waiting = barrier_.waiting;
  barrier_.waiting = 0;
  ++activity;
  for (unsigned i = 0; i < threads.size(); ++i) {
    Thread& thread = threads[order_[i]];
    if (thread.wait == Wait::kBlockBarrier) wake(thread);
  }
  open_interval();
}

// What the threads have done so far is ordered before what they do from now on.
void Block::open_interval() {
  const uint32_t before = time_;
  barrier_time = tick();
  if (cluster_->has_clocks()) cluster_->clocks().join_block(rank, before);
}

void Block::named_barrier(int id, unsigned count, bool wait_for_others, Place place) {
  NamedBarrier& barrier = named_[id & 15];
  if (barrier.arrived != 0 && barrier.count != count) {
    report(FindingKind::kBarrierDivergence, place,
           "barrier " + std::to_string(id) + " is for " + std::to_string(count) +
               " threads here, for " + std::to_string(barrier.count) + " where others arrived");
  }
  barrier.count = count;
  release_into(barrier.clock);
  ++barrier.arrived;
  if (wait_for_others) barrier.waiting.push_back(current);
  const bool complete = barrier.arrived >= count;
  if (complete) {
    const NamedBarrier opened = std::move(barrier);
    barrier = {};
    ++activity;
    for (Thread* waiting : opened.waiting) {
      clock_of(*waiting).join(opened.clock);
      if (waiting != current) wake(*waiting);
    }
    // Where nobody is missing it is a barrier of the block.
    if (opened.waiting.size() == live_threads()) open_interval();
  } else if (wait_for_others) {
    wait_for(Wait::kNamedBarrier, place);
  }
}

uint64_t Block::warp_call(WarpOp op, unsigned mask, uint64_t value, unsigned operand,
                          unsigned width, Place place) {
  Thread& thread = *current;
  const unsigned lane = thread.linear % 32;
  Warp& warp = warps[thread.linear / 32];
  if (((mask >> lane) & 1) == 0) {
    report(
        FindingKind::kBarrierDivergence, place,
        "lane " + std::to_string(lane) + " calls a warp-wide operation whose mask leaves it out");
    mask |= 1u << lane;
  }
  thread.lane = LaneCall{op, mask, value, operand, width, 0};
  warp.waiting |= 1u << lane;
  block_on(Wait::kWarp, place);
  // Nobody is missing, as far as that can be said quickly; an active mask needs all lanes blocked.
  const unsigned missing =
      op == WarpOp::kActiveMask ? warp.live & ~warp.blocked : mask & warp.live & ~warp.waiting;
  if (missing == 0) recheck_warp(warp);
  suspend();
  return thread.lane.result;
}

// The lanes that wait for the same operation as `with`.
unsigned Block::lanes_together(const Warp& warp, const Thread& with) const {
  unsigned together = 0;
  for (unsigned rest = warp.waiting; rest != 0; rest &= rest - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
    const Thread& other = threads[warp.first + lane];
    if (other.lane.op != with.lane.op || other.lane.mask != with.lane.mask) continue;
    // Which lanes are active is asked at one place; elsewhere it is another question.
    if (with.lane.op == WarpOp::kActiveMask && !same_place(other.place, with.place)) continue;
    together |= 1u << lane;
  }
  return together;
}

// These lanes know now what any of them knew.
void Block::join_lanes(const Warp& warp, unsigned together) {
  Clocks& clocks = cluster_->clocks();
  Clock all;
  for (unsigned rest = together; rest != 0; rest &= rest - 1) {
    const unsigned thread = warp.first + static_cast<unsigned>(__builtin_ctz(rest));
    clocks.of(rank, thread).set(clocks.thread_entry(rank, thread), time_);
    all.join(clocks.of(rank, thread));
  }
  for (unsigned rest = together; rest != 0; rest &= rest - 1) {
    clocks.of(rank, warp.first + static_cast<unsigned>(__builtin_ctz(rest))) = all;
  }
}

void Block::recheck_warp(Warp& warp) {
  unsigned candidates = warp.waiting;
  while (candidates != 0) {
    const Thread& first = threads[warp.first + static_cast<unsigned>(__builtin_ctz(candidates))];
    const unsigned together = lanes_together(warp, first);
    candidates &= ~together;
    const bool complete = first.lane.op == WarpOp::kActiveMask
                              ? (warp.live & ~warp.blocked) == 0
                              : (first.lane.mask & warp.live & ~together) == 0;
    if (!complete) continue;
    LaneCall* lanes[32];
    for (unsigned rest = together; rest != 0; rest &= rest - 1) {
      const unsigned lane = static_cast<unsigned>(__builtin_ctz(rest));
      lanes[lane] = &threads[warp.first + lane].lane;
    }
    compute_lanes(lanes, together);
    warp.waiting &= ~together;
    ++activity;
    const bool orders_memory = first.lane.op == WarpOp::kSync;
    if (orders_memory && cluster_->has_clocks()) join_lanes(warp, together);
    for (unsigned rest = together; rest != 0; rest &= rest - 1) {
      wake(threads[warp.first + static_cast<unsigned>(__builtin_ctz(rest))]);
    }
    if (orders_memory) warp.sync_time = tick();
  }
}

// What threads wait for that no barrier of the block can tell; one finding for each reason.
bool Block::report_asynchronous_waits() {
  bool reported = mbarriers.report_waiting(*this);
  if (reported) return true;
  for (const Wait why : {Wait::kClusterBarrier, Wait::kProducts, Wait::kRegisters}) {
    for (const Thread& thread : threads) {
      if (thread.wait != why) continue;
      report_about(thread, FindingKind::kDeadlock, thread.place,
                   name_of(thread) + " " + waits_where(thread), nullptr, {});
      reported = true;
      break;
    }
  }
  return reported;
}

void Block::report_stuck() {
  if (report_asynchronous_waits()) return;
  const Thread* at_barrier = nullptr;
  const Thread* elsewhere = nullptr;
  for (const Thread& thread : threads) {
    if (thread.wait == Wait::kExited) continue;
    (thread.wait == Wait::kBlockBarrier ? at_barrier : elsewhere) = &thread;
  }
  if (at_barrier != nullptr && elsewhere != nullptr) {
    report_about(
        *at_barrier, FindingKind::kBarrierDivergence, at_barrier->place,
        "this barrier is never complete: " + name_of(*elsewhere) + " " + waits_where(*elsewhere),
        elsewhere, elsewhere->place);
  } else if (elsewhere != nullptr) {
    report_about(
        *elsewhere, FindingKind::kDeadlock, elsewhere->place,
        name_of(*elsewhere) + " " + waits_where(*elsewhere) + " for threads that never come",
        nullptr, {});
  }
}

}  // namespace kwemu
