#include "block.h"

#include <algorithm>
#include <string>

#include "cluster.h"
#include "position.h"
#include "warpgroup.h"
#include "worker.h"

namespace kwemu {

__thread Block* current_block;

namespace {

// A thread that asks so often for the same flag waits for somebody: let others run.
constexpr unsigned kSpinsBeforeYield = 64;
// The same for threads that go round several flags.
constexpr unsigned kManySynchronisations = 4096;

}  // namespace

std::string name_of(const Thread& thread) {
  return "thread (" + std::to_string(thread.index.x) + ", " + std::to_string(thread.index.y) +
         ", " + std::to_string(thread.index.z) + ")";
}

Block::Block(Worker& worker) : worker_(worker) {
  stack_low = worker.fibers().low();
  stack_bytes = worker.fibers().bytes();
  shared_low = shared.low();
}

Block::~Block() = default;

void Block::assign(Launch& new_launch, uint64_t new_linear, Cluster& cluster, unsigned new_rank) {
  launch = &new_launch;
  linear = new_linear;
  cluster_ = &cluster;
  rank = new_rank;
  const dim3& grid = launch->config.grid;
  index =
      uint3{static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
            static_cast<unsigned>(linear / grid.x / grid.y)};
  const Settings& settings = *launch->settings;
  check_alignment = settings.check_alignment;
  check_uninitialised = settings.check_uninitialised;
  check_races = settings.check_races && launch->block_count < kMaxBlock;
  global_tag = launch->tag | ((linear & kMaxBlock) << kTagShift);
  shared.reset(launch->config.shared_bytes);
  mbarriers.forget();
  async_shadow.forget();
  registers.assign(launch->threads_per_block);
  early_start.assign(*launch);
  for (std::unique_ptr<Warpgroup>& warpgroup : warpgroups) warpgroup.reset();

  const dim3& size = launch->config.block;
  const unsigned count = launch->threads_per_block;
  order_ = Order(count, settings.order_seed);
  threads.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    thread.index = uint3{i % size.x, i / size.x % size.y, i / size.x / size.y};
    thread.linear = i;
    thread.wait = Wait::kNotStarted;
    thread.sync_time = 0;
    thread.spin_address = nullptr;
    thread.spins = thread.synchronisations = 0;
    thread.copies.forget();
    thread.stores.forget();
    thread.proxy_fences.clear();
    thread.cluster_arrivals = 0;
    thread.products = {};
    thread.has_waited_for_launch = false;
  }
  warps.resize((count + 31) / 32);
  for (unsigned w = 0; w < warps.size(); ++w) {
    const unsigned lanes = std::min(32u, count - 32 * w);
    warps[w] = Warp{32 * w, lanes == 32 ? ~0u : (1u << lanes) - 1, 0, 0, 0};
  }
  ready_.resize(count);
  ready_first_ = ready_count_ = 0;
  spinners_.clear();
  started_ = exited_ = 0;
  time_ = barrier_time = 1;  // unset records have time 0: before everything
  has_synchronised = false;
  activity = 0;
  barrier_ = {};
  for (NamedBarrier& named : named_) named = {};
  readers.clear();
}

void Block::resume_spinners() {
  for (Thread* thread : spinners_) wake(*thread);
  spinners_.clear();
}

void Block::run() {
  current_block = this;
  set_block_index(index);
  const Context& next = next_context();
  if (&next != &worker_.scheduler()) switch_context(worker_.scheduler(), next);
  current_block = nullptr;
}

// Where to go on when the running thread cannot: threads that were woken come before threads that
// have not started, so that few stacks are in use at a time. The scheduler if there is neither.
const Context& Block::next_context() {
  if (ready_count_ > 0) {
    Thread* thread = ready_[ready_first_];
    ready_first_ = (ready_first_ + 1) % ready_.size();
    --ready_count_;
    enter(*thread);
    return thread->fiber->context;
  }
  if (started_ < threads.size()) return worker_.fibers().take()->context;
  return worker_.scheduler();
}

void Block::enter(Thread& thread) {
  current = &thread;
  self = (Record{thread.linear} << kThreadShift) | (Record{time_} << kTimeShift);
  set_thread_index(thread.index);
  note_sums(thread);
}

void Block::note_sums(const Thread& thread) {
  sums_low = thread.products.low();
  sums_bytes = thread.products.bytes();
}

void Block::fiber_main(Fiber* fiber) {
  while (true) {
    Block* block = current_block;
    while (block->ready_count_ == 0 && block->started_ < block->threads.size()) {
      Thread& thread = block->threads[block->order_[block->started_++]];
      block->start(thread, fiber);
      block->launch->body(block->launch->closure);
      thread.stores.end(*block);
      block->finish(thread);
    }
    Worker& worker = block->worker_;
    // Choose first: the fiber chosen must not be this one, whose stack is still in use.
    const Context& next = block->next_context();
    worker.fibers().give_back(fiber);
    switch_context(fiber->context, next);
  }
}

void Block::start(Thread& thread, Fiber* fiber) {
  thread.wait = Wait::kNothing;
  thread.fiber = fiber;
  enter(thread);
}

void Block::finish(Thread& thread) {
  stop_if_asked();
  thread.wait = Wait::kExited;
  thread.copies.forget();
  ++exited_;
  ++activity;
  Warp& warp = warps[thread.linear / 32];
  warp.live &= ~(1u << (thread.linear % 32));
  recheck_warp(warp);
  if (barrier_.waiting != 0) check_barrier();
  cluster_->recheck_barrier();
}

void Block::wake(Thread& thread) {
  thread.wait = Wait::kNothing;
  warps[thread.linear / 32].blocked &= ~(1u << (thread.linear % 32));
  ready_[(ready_first_ + ready_count_) % ready_.size()] = &thread;
  ++ready_count_;
}

void Block::block_on(Wait why, Place place) {
  Thread& thread = *current;
  thread.wait = why;
  thread.place = place;
  warps[thread.linear / 32].blocked |= 1u << (thread.linear % 32);
}

// Lets others run until somebody wakes the running thread; that may have happened already.
void Block::suspend() {
  Thread& thread = *current;
  const Context& next = next_context();
  if (&next != &thread.fiber->context) switch_context(thread.fiber->context, next);
  stop_if_asked();
}

void Block::wait_for(Wait why, Place place) {
  block_on(why, place);
  recheck_warp(warps[current->linear / 32]);
  suspend();
}

void Block::release_into(Clock& clock) {
  Clocks& clocks = cluster_->clocks();
  Clock& mine = clocks.of(rank, current->linear);
  mine.set(clocks.thread_entry(rank, current->linear), time_);
  clock.join(mine);
  tick();
}

void Block::acquire(const Clock& clock) {
  if (!clock.empty()) clock_of(*current).join(clock);
}

Clock& Block::clock_of(const Thread& thread) { return cluster_->clocks().of(rank, thread.linear); }

Warpgroup& Block::warpgroup() {
  std::unique_ptr<Warpgroup>& warpgroup = warpgroups[current->linear / Warpgroup::kThreads];
  if (warpgroup == nullptr) {
    warpgroup = std::make_unique<Warpgroup>(*this, current->linear / Warpgroup::kThreads);
  }
  return *warpgroup;
}

uint32_t Block::tick() {
  if (time_ + 2 < kMaxTime) {
    ++time_;
  } else {
    check_races = false;  // too long a story: no accusations rather than wrong ones
  }
  self = (self & ~kTimeMask) | (Record{time_} << kTimeShift);
  return time_;
}

void Block::synchronises(const void* address, const void* caller) {
  stop_if_asked();
  Thread& thread = *current;
  thread.sync_time = tick();
  has_synchronised = true;
  if (launch->released != nullptr) {
    const uint32_t released = check_races ? thread.sync_time : kMaxTime;
    launch->released[linear].store(released, std::memory_order_relaxed);
  }
  ++thread.synchronisations;
  if (address == nullptr || thread.spin_address == address) {
    ++thread.spins;
  } else {
    thread.spin_address = address;
    thread.spins = 0;
    ++activity;
  }
  if (thread.spins >= kSpinsBeforeYield || thread.synchronisations >= kManySynchronisations) {
    thread.spins = thread.synchronisations = 0;
    spinners_.push_back(&thread);
    block_on(Wait::kSpinning, Place::of(caller));
    recheck_warp(warps[thread.linear / 32]);
    suspend();
  }
}

void Block::abandon(int error) {
  launch->abandon(error);
  Context nowhere;
  switch_context(nowhere, worker_.scheduler());
  __builtin_unreachable();
}

bool Block::is_reported(FindingKind kind, const Place& place) {
  return Report::instance().repeats(kind, launch->kernel, place);
}

void Block::report_spinning() {
  const Thread& thread = *spinners_.front();
  report_about(thread, FindingKind::kDeadlock, thread.place,
               "waits for a value that nobody writes: all blocks that are left wait, too", nullptr,
               {});
}

void Block::report(FindingKind kind, Place place, std::string message, const Thread* other,
                   Place other_place) {
  report_about(*current, kind, place, std::move(message), other, other_place);
}

void Block::report_about(const Thread& thread, FindingKind kind, Place place, std::string message,
                         const Thread* other, Place other_place) {
  Finding finding;
  finding.kind = kind;
  finding.kernel = launch->kernel;
  finding.place = place;
  finding.block = dim3(index);
  finding.thread = dim3(thread.index);
  if (other != nullptr) {
    finding.other_block = dim3(index);
    finding.other_thread = dim3(other->index);
  }
  finding.other_place = other_place;
  finding.message = std::move(message);
  Report::instance().add(std::move(finding));
}

}  // namespace kwemu
