#include "mbarrier.h"

#include <utility>

#include "access.h"
#include "block.h"
#include "cluster.h"
#include "view.h"

namespace kwemu {
namespace {

constexpr int64_t kMostBytes = (1 << 20) - 1;  // that a phase can count
constexpr unsigned kMostArrivals = (1 << 20) - 1;

std::string name_of(const Block& home, const Mbarrier& barrier) {
  const std::string where = home.shared.describe(barrier.offset);
  return "the barrier at " + where +
         (home.cluster().size() > 1 ? " of block " + std::to_string(home.rank) + " of the cluster"
                                    : "");
}

void fence_is_missing(Block& actor, const Block& home, const Mbarrier& barrier,
                      const void* caller) {
  const Place place = Place::of(caller);
  if (actor.is_reported(FindingKind::kRace, place)) return;
  actor.report(FindingKind::kRace, place,
               name_of(home, barrier) +
                   " was initialised without a fence after it (fence.mbarrier_init or "
                   "fence.proxy.async) that orders it before copies and other blocks");
}

// Whether the thread that initialised the barrier has fenced since, as far as `view` knows.
bool is_fenced(const View& view, const Block& home, const Mbarrier& barrier) {
  for (const uint32_t fence : home.threads[barrier.maker].proxy_fences) {
    if (fence >= barrier.made && view.sees(home, barrier.maker, fence)) return true;
  }
  return false;
}

}  // namespace

std::string Mbarrier::state() const {
  std::string text = "phase " + std::to_string(phase) + " (parity " + std::to_string(phase & 1) +
                     ") lacks " + std::to_string(missing) + " of " + std::to_string(count) +
                     " arrivals";
  if (bytes > 0) text += " and " + std::to_string(bytes) + " bytes that were announced";
  if (bytes < 0) text += ", and " + std::to_string(-bytes) + " bytes came that nobody announced";
  return text;
}

Mbarrier& MbarrierTable::find(Block& home, size_t offset, const void* caller) {
  Block& actor = *current_block;
  const auto found = barriers_.find(offset);
  if (home.is_done() || found == barriers_.end()) {
    actor.report(home.is_done() ? FindingKind::kRace : FindingKind::kUninitialisedRead,
                 Place::of(caller),
                 home.is_done() ? "uses a barrier of a block of the cluster that has ended"
                                : "uses as a barrier what nobody has initialised as one: " +
                                      home.shared.describe(offset));
    actor.abandon(719 /* cudaErrorLaunchFailure */);
  }
  Mbarrier& barrier = found->second;
  const View view = View::of_current(actor);
  if (!view.sees(home, barrier.maker, barrier.made) &&
      !actor.is_reported(FindingKind::kRace, Place::of(caller))) {
    actor.report(FindingKind::kRace, Place::of(caller),
                 "uses " + name_of(home, barrier) +
                     ", which another thread initialised with no barrier in between");
  }
  if (&home != &actor && !is_fenced(view, home, barrier)) {
    fence_is_missing(actor, home, barrier, caller);
  }
  return barrier;
}

void MbarrierTable::init(Block& home, size_t offset, unsigned count, const void* caller) {
  if (offset % 8 != 0) fail_misaligned(home, home.shared_low + offset, 8, Access::kWrite, caller);
  check_access(home, home.shared_low + offset, 8, Access::kWrite, caller);
  if (count == 0 || count > kMostArrivals) {
    home.report(FindingKind::kUnsupported, Place::of(caller),
                "a barrier for " + std::to_string(count) + " arrivals");
    home.abandon(719 /* cudaErrorLaunchFailure */);
  }
  home.cluster().clocks();
  Mbarrier barrier;
  barrier.slot = next_slot_++;
  barrier.offset = offset;
  barrier.count = barrier.missing = count;
  barrier.maker = home.current->linear;
  barrier.made = home.now();
  barriers_[offset] = std::move(barrier);
}

void MbarrierTable::invalidate(Block& home, size_t offset, const void* caller) {
  find(home, offset, caller);
  barriers_.erase(offset);
}

int MbarrierTable::arrive(Block& home, size_t offset, unsigned count, unsigned bytes,
                          const void* caller) {
  Block& actor = *current_block;
  Mbarrier& barrier = find(home, offset, caller);
  const int parity = static_cast<int>(barrier.phase & 1);
  if (bytes != 0) expect(home, offset, bytes, caller);
  if (barrier.missing < count) {
    if (!actor.is_reported(FindingKind::kBarrierDivergence, Place::of(caller))) {
      actor.report(
          FindingKind::kBarrierDivergence, Place::of(caller),
          "arrives once more than " + name_of(home, barrier) + " counts: " + barrier.state());
    }
    return parity;
  }
  actor.release_into(barrier.arriving);
  barrier.missing -= count;
  ++actor.activity;
  complete_if_ready(home, barrier);
  return parity;
}

void MbarrierTable::expect(Block& home, size_t offset, unsigned bytes, const void* caller) {
  Block& actor = *current_block;
  Mbarrier& barrier = find(home, offset, caller);
  barrier.bytes += bytes;
  ++actor.activity;
  if (barrier.bytes > kMostBytes && !actor.is_reported(FindingKind::kRace, Place::of(caller))) {
    actor.report(FindingKind::kRace, Place::of(caller),
                 "announces more bytes than " + name_of(home, barrier) +
                     " can count: " + std::to_string(barrier.bytes));
  }
}

bool MbarrierTable::wait(Block& home, size_t offset, unsigned parity, const void* caller) {
  Mbarrier& barrier = find(home, offset, caller);
  Thread& thread = *home.current;
  if ((barrier.phase & 1) == (parity & 1)) {
    barrier.waiting.push_back({&home, &thread, parity & 1});
    home.wait_for(Wait::kMbarrier, Place::of(caller));
    if ((barrier.phase & 1) == (parity & 1)) return false;
  }
  barrier.brought_unseen = false;
  home.acquire(barrier.complete);
  return true;
}

void MbarrierTable::check_reachable(Block& home, size_t offset, const void* caller) {
  Mbarrier& barrier = find(home, offset, caller);
  Block& actor = *current_block;
  if (!is_fenced(View::of_current(actor), home, barrier)) {
    fence_is_missing(actor, home, barrier, caller);
  }
}

void MbarrierTable::bring(Block& home, size_t offset, unsigned bytes, const Clock& known) {
  const auto found = barriers_.find(offset);
  if (found == barriers_.end()) return;
  Mbarrier& barrier = found->second;
  barrier.bytes -= bytes;
  barrier.brings = true;
  const Clocks& clocks = home.cluster().clocks();
  if (!known.empty()) barrier.arriving.join(known);
  barrier.arriving.set(clocks.barrier_entry(home.rank, barrier.slot), home.now());
  home.tick();
  ++home.activity;
  complete_if_ready(home, barrier);
}

unsigned MbarrierTable::slot_of(size_t offset) const {
  const auto found = barriers_.find(offset);
  return found == barriers_.end() ? 0 : found->second.slot;
}

void MbarrierTable::complete_if_ready(Block& home, Mbarrier& barrier) {
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.missing = barrier.count;
  barrier.brought_unseen = std::exchange(barrier.brings, false);
  barrier.complete = std::move(barrier.arriving);
  barrier.arriving = {};
  ++home.activity;
  for (const Mbarrier::Waiting& waiting : barrier.waiting) waiting.block->wake(*waiting.thread);
  barrier.waiting.clear();
}

void MbarrierTable::poll(Block&) {
  for (auto& [offset, barrier] : barriers_) {
    for (const Mbarrier::Waiting& waiting : barrier.waiting) waiting.block->wake(*waiting.thread);
    barrier.waiting.clear();
  }
}

bool MbarrierTable::report_waiting(Block& home) {
  const Mbarrier::Waiting* first = nullptr;
  std::string message;
  for (const auto& [offset, barrier] : barriers_) {
    if (barrier.waiting.empty()) continue;
    if (first == nullptr) first = &barrier.waiting.front();
    const Mbarrier::Waiting& one = barrier.waiting.front();
    const size_t count = barrier.waiting.size();
    message += (message.empty() ? "" : "; ") + std::to_string(count) +
               (count == 1 ? " thread waits" : " threads wait") + " for parity " +
               std::to_string(one.parity) + " of " + name_of(home, barrier) + ", whose " +
               barrier.state();
  }
  if (first == nullptr) return false;
  home.report_about(*first->thread, FindingKind::kDeadlock, first->thread->place, message, nullptr,
                    {});
  return true;
}

void MbarrierTable::report_unseen(Block& home) {
  for (const auto& [offset, barrier] : barriers_) {
    if (barrier.bytes == 0 && !barrier.brought_unseen) continue;
    home.report_about(home.threads[barrier.maker], FindingKind::kRace, home.launch->place,
                      "the block ends with copies that nobody waits for, at " +
                          name_of(home, barrier) + ": " + barrier.state(),
                      nullptr, {});
  }
}

}  // namespace kwemu
