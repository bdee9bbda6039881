#include "races.h"

#include <algorithm>
#include <string>

#include "async_checks.h"

namespace kwemu {
namespace {

const char* verb(Access access) {
  switch (access) {
    case Access::kRead:
      return "reads";
    case Access::kWrite:
      return "writes";
    default:
      return "atomically updates";
  }
}

// The code address whose low bits a shared record keeps; units are near one another.
const void* code_of(Record record, const void* near) {
  constexpr uintptr_t kSpan = uintptr_t{1} << (64 - kTagShift);
  const auto base = reinterpret_cast<uintptr_t>(near);
  uintptr_t code = (base & ~(kSpan - 1)) | (record >> kTagShift);
  if (code > base + kSpan / 2) code -= kSpan;
  if (code + kSpan / 2 < base) code += kSpan;
  return reinterpret_cast<const void*>(code);
}

// Whether an earlier access by a thread of this block, since the last block-wide barrier, comes
// before the running thread's: through __syncwarp, or through fences and atomics of both threads.
bool is_ordered(const Block& block, Record earlier) {
  const Thread& other = block.threads[thread_of(earlier)];
  const Thread& self = *block.current;
  const unsigned time = time_of(earlier);
  if (&other == &self) return true;
  if (View::of_current(block).sees(block, other.linear, time)) return true;
  const unsigned warp = other.linear / 32;
  if (warp == self.linear / 32 && time < block.warps[warp].sync_time) return true;
  return time < other.sync_time && time < self.sync_time;
}

bool both_atomic(Record earlier, Access access) {
  return (earlier & kAtomic) != 0 && access == Access::kAtomic;
}

void report_shared_race(Block& block, size_t offset, Record earlier, const char* did, Access access,
                        const void* caller) {
  const Place place = Place::of(caller);
  if (block.is_reported(FindingKind::kRace, place)) return;
  const Thread& other = block.threads[thread_of(earlier)];
  const bool many = &other == block.current;
  const bool is_engine = special_of(earlier) == kLanded;
  const std::string who = is_engine ? "was" : many ? "another thread" : name_of(other);
  block.report(FindingKind::kRace, place,
               std::string(verb(access)) + " shared memory, " + block.shared.describe(offset) +
                   ", that " + who + " " + did + " with no barrier in between",
               many || is_engine ? nullptr : &other, Place::of(code_of(earlier, caller)));
}

void report_uninitialised(Block& block, size_t offset, const void* caller) {
  const Place place = Place::of(caller);
  if (!block.check_uninitialised || block.is_reported(FindingKind::kUninitialisedRead, place)) {
    return;
  }
  block.report(FindingKind::kUninitialisedRead, place,
               "reads shared memory that no thread of the block has written: " +
                   block.shared.describe(offset));
}

// A record that is no write. Redzones end the launch.
void check_special(Block& block, size_t offset, Record write, Access access, const void* caller) {
  switch (special_of(write)) {
    case kRedzone:
      block.report(FindingKind::kOutOfBounds, Place::of(caller),
                   std::string(verb(access)) + " shared memory " + block.shared.describe(offset));
      block.abandon(700 /* cudaErrorIllegalAddress */);
    case kUninitialised:
      if (access != Access::kWrite) report_uninitialised(block, offset, caller);
      return;
    case kLanded:
      if (!block.check_races || has_seen_landing(block, offset)) return;
      return report_shared_race(block, offset, write,
                                "brought by a bulk copy whose barrier it has not waited for,",
                                access, caller);
    default:
      report_shared_race(block, offset, write,
                         block.cluster().has_clocks()
                             ? "has asked a bulk copy to bring, which is not known to be done,"
                             : "copies to with cp.async and has not waited for,",
                         access, caller);
  }
}

// Gives the bytes of a word their own cells, with the readers that the word had.
void split_shared(Block& block, size_t word_offset) {
  Cell& word = *block.shared.word(word_offset);
  if (word.write == kSplitShared) return;
  std::vector<Record> readers;
  if ((word.read & kMany) != 0) {
    const auto found = block.readers.find(&word);
    if (found != block.readers.end()) readers = found->second;
  }
  for (size_t i = 0; i < 4; ++i) {
    Cell& cell = *block.shared.byte(word_offset + i);
    cell = word;
    block.readers.erase(&cell);
    if (!readers.empty()) block.readers[&cell] = readers;
  }
  word.write = kSplitShared;
}

// Byte cells, or the word cell itself.
void check_shared_write(Block& block, const Cell& cell, size_t offset, Access access,
                        const void* caller) {
  const Record write = cell.write;
  if (is_special(write)) return check_special(block, offset, write, access, caller);
  if (before_barrier(block, write) || !block.check_races) return;
  if (both_atomic(write, access) || is_ordered(block, write)) return;
  report_shared_race(block, offset, write, "wrote", access, caller);
}

}  // namespace

void slow_shared_write_record(Block& block, size_t offset, Access access, const void* caller) {
  check_shared_write(block, *block.shared.word(offset), offset, access, caller);
}

void slow_shared_read_record(Block& block, Cell& cell, Access access, const void* caller) {
  if (!block.check_races) return;
  const Record read = cell.read;
  const auto readers = block.readers.find(&cell);
  if ((read & kMany) != 0 && readers != block.readers.end()) {
    const auto unordered = [&](Record reader) { return !is_ordered(block, reader); };
    const auto& all = readers->second;
    if (std::none_of(all.begin(), all.end(), unordered)) return;
  }
  const bool own = thread_of(read) == block.current->linear;
  if (own ? block.current->sync_time > time_of(read) : is_ordered(block, read)) return;
  const auto word = static_cast<size_t>(&cell - block.shared.word(0));
  const bool is_word = word < SharedMemory::kBytes / 4;
  const size_t offset = is_word ? word * 4 : static_cast<size_t>(&cell - block.shared.byte(0));
  report_shared_race(block, offset, read, "read", access, caller);
}

bool comes_after(const Block& block, Record earlier) {
  return block.cluster().has_clocks() && is_ordered(block, earlier);
}

void slow_note_reader(Block& block, const Cell& cell, Record before, Record me) {
  if (!block.check_races || !block.cluster().has_clocks()) return;
  if ((before & kMany) == 0) block.readers[&cell] = {before};
  const auto found = block.readers.find(&cell);
  if (found == block.readers.end()) return;  // some read before there were clocks
  for (Record& reader : found->second) {
    if (same_thread(reader, me)) {
      reader = me;
      return;
    }
  }
  found->second.push_back(me);
}

void slow_shared_write_under_readers(Block& block, size_t offset, const void* caller) {
  if (block.check_races) check_write_under_readers(block, offset, caller);
}

void note_shared_bytes(Block& block, size_t offset, unsigned mask, Access access,
                       const void* caller) {
  split_shared(block, offset);
  const Record me = shared_record(block, access, caller);
  for (size_t i = 0; i < 4; ++i) {
    if (((mask >> i) & 1) == 0) continue;
    Cell& cell = *block.shared.byte(offset + i);
    check_shared_write(block, cell, offset + i, access, caller);
    note_shared_cell(block, cell, offset, access, me, caller);
  }
  if (mask == 0xf && access != Access::kRead) *block.shared.word(offset) = Cell{me, 0};
}

namespace {

dim3 block_index(const Launch& launch, uint64_t linear) {
  const dim3& grid = launch.config.grid;
  return dim3(static_cast<unsigned>(linear % grid.x),
              static_cast<unsigned>(linear / grid.x % grid.y),
              static_cast<unsigned>(linear / grid.x / grid.y));
}

// Between blocks nothing is ordered but by fences and atomics; whether these two blocks' order
// these two accesses is not worked out: both having used them after and before is enough.
bool blocks_are_ordered(const Block& block, Record earlier) {
  const uint32_t released =
      block.launch->released[block_of(earlier)].load(std::memory_order_relaxed);
  return block.has_synchronised && time_of(earlier) < released;
}

void report_global_race(Block& block, const Allocation& allocation, size_t offset, Record earlier,
                        const char* did, Access access, const void* caller) {
  const Place place = Place::of(caller);
  if (block.is_reported(FindingKind::kRace, place)) return;
  const bool same_block = of_this_block(block, earlier);
  const unsigned other = thread_of(earlier);
  const bool known = !same_block || other != block.current->linear;
  Finding finding;
  finding.kind = FindingKind::kRace;
  finding.kernel = block.launch->kernel;
  finding.place = place;
  finding.block = dim3(block.index);
  finding.thread = dim3(block.current->index);
  if (known) {
    finding.other_block = block_index(*block.launch, block_of(earlier));
    finding.other_thread = dim3(block.threads[other].index);
  }
  finding.message = std::string(verb(access)) + " byte " + std::to_string(offset) + " of '" +
                    allocation.name + "', which a thread of " +
                    (same_block ? "the same block " : "another block ") + did +
                    (same_block ? " with no barrier in between" : " in the same launch");
  Report::instance().add(std::move(finding));
}

void split_global(Block& block, Allocation& allocation, size_t word_offset) {
  Cell& word = *allocation.shadow.word(word_offset);
  const Record marker = (block.global_tag & kLaunchMask) | kSplitGlobal;
  const Cell before{load(word.write), load(word.read)};
  if (before.write == marker) return;
  for (size_t i = 0; i < 4; ++i) {
    Cell& cell = *allocation.shadow.byte(word_offset + i);
    store(cell.write, before.write);
    store(cell.read, before.read);
  }
  store(word.write, marker);
}

}  // namespace

void slow_earlier_launch(Block& block, const Allocation& allocation, size_t offset,
                         const Cell& cell, Access access, const void* caller) {
  const auto check = [&](const Cell& one) {
    const Record write = load(one.write), read = load(one.read);
    const bool is_mark = (write & ~kLaunchMask) == kSplitGlobal;
    const bool is_written = block.early_start.is_suspect(write) && !is_mark;
    if (is_written && !of_this_launch(block, write)) {
      block.early_start.check(block, allocation, offset, write, "writes", caller);
    } else if (access != Access::kRead && block.early_start.is_suspect(read) &&
               !of_this_launch(block, read)) {
      block.early_start.check(block, allocation, offset, read, "reads", caller);
    }
    return is_mark;
  };
  const bool is_word = &cell == allocation.shadow.word(offset);
  if (!check(cell) || !is_word) return;
  for (size_t i = 0; i < 4; ++i) check(*allocation.shadow.byte((offset & ~size_t{3}) + i));
}

void slow_global_write_record(Block& block, Allocation& allocation, size_t offset, Record write,
                              Access access, const void* caller) {
  if (both_atomic(write, access)) return;
  const bool same_block = of_this_block(block, write);
  if (same_block ? is_ordered(block, write) : blocks_are_ordered(block, write)) return;
  report_global_race(block, allocation, offset, write, "wrote", access, caller);
}

void slow_global_read_record(Block& block, Allocation& allocation, size_t offset, Record read,
                             Access access, const void* caller) {
  if ((read & kForeign) != 0 || !of_this_block(block, read)) {
    // Some reader was of another block; which one is known only if it was the last.
    if (block.has_synchronised) return;
    report_global_race(block, allocation, offset, read, "read", access, caller);
    return;
  }
  const bool own = thread_of(read) == block.current->linear;
  if (own ? block.current->sync_time > time_of(read) : is_ordered(block, read)) return;
  report_global_race(block, allocation, offset, read, "read", access, caller);
}

void note_global_bytes(Block& block, Allocation& allocation, size_t offset, unsigned mask,
                       Access access, const void* caller) {
  split_global(block, allocation, offset);
  for (size_t i = 0; i < 4; ++i) {
    if (((mask >> i) & 1) == 0) continue;
    note_global_cell(block, allocation, *allocation.shadow.byte(offset + i), offset + i, access,
                     caller);
  }
}

void begin_async_copy(Block& block, const AsyncCopy& copy) {
  const auto shared = reinterpret_cast<uintptr_t>(copy.shared);
  check_access(block, shared, copy.bytes, Access::kWrite, copy.caller);
  fill_with_poison(copy.shared, copy.bytes);
  const Record pending = (reinterpret_cast<uintptr_t>(copy.caller) << kTagShift) |
                         (block.self & kThreadMask) | kInFlight;
  for (unsigned i = 0; i < copy.bytes; i += 4) {
    *block.shared.word(shared - block.shared_low + i) = Cell{pending, 0};
  }
}

}  // namespace kwemu
