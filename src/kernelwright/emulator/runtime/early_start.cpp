#include "early_start.h"

#include <algorithm>
#include <string>

#include "launch_state.h"
#include "view.h"

namespace kwemu {
namespace {

constexpr size_t kWaitsKept = 32;  // threads whose waiting others may know of

unsigned launch_of(Record record) { return static_cast<unsigned>(record >> kLaunchShift); }

}  // namespace

void EarlyStart::assign(const Launch& launch) {
  const unsigned oldest = std::min(launch.overlap.oldest_running, launch.overlap.oldest_unwaited);
  oldest_ = oldest == Overlap::kNone ? ~Record{0} : Record{oldest} << kLaunchShift;
  waits_.clear();
}

void EarlyStart::wait(const Block& block) {
  if (waits_.empty()) ++block.launch->overlap.blocks_that_waited;
  block.current->has_waited_for_launch = true;
  if (waits_.size() < kWaitsKept) waits_.emplace_back(block.current->linear, block.now());
}

void EarlyStart::let_next_start(const Block& block) {
  if (waits_.empty()) block.launch->overlap.lets_next_start_early = true;
}

bool EarlyStart::is_running(const Block& block, Record record) const {
  const Overlap& overlap = block.launch->overlap;
  const View view = View::of_current(block);
  const bool waited = block.current->has_waited_for_launch ||
                      std::any_of(waits_.begin(), waits_.end(), [&](const auto& wait) {
                        return view.sees(block, wait.first, wait.second);
                      });
  const unsigned launch = launch_of(record);
  const unsigned before = launch_of(block.global_tag) - 1;
  if (waited) return launch >= overlap.oldest_unwaited && launch < before;
  return launch >= overlap.oldest_running && launch <= before;
}

void EarlyStart::check(Block& block, const Allocation& allocation, size_t offset, Record record,
                       const char* did, const void* caller) const {
  const Place place = Place::of(caller);
  if (!is_running(block, record) || block.is_reported(FindingKind::kRace, place)) return;
  block.report(FindingKind::kRace, place,
               "touches byte " + std::to_string(offset) + " of '" + allocation.name +
                   "', which a kernel before this one " + did +
                   " that may still run: no griddepcontrol.wait stands in between");
}

}  // namespace kwemu
