#include "async_checks.h"

#include <algorithm>
#include <string>

#include "races.h"
#include "warpgroup.h"

namespace kwemu {
namespace {

void report_once(Block& block, FindingKind kind, const void* caller, const std::string& message) {
  const Place place = Place::of(caller);
  if (!block.is_reported(kind, place)) block.report(kind, place, message);
}

[[noreturn]] void fail_out_of_bounds(Block& actor, const Block& home, size_t offset,
                                     const std::string& did, const void* caller) {
  actor.report(FindingKind::kOutOfBounds, Place::of(caller),
               did + " shared memory " + home.shared.describe(offset));
  actor.abandon(700 /* cudaErrorIllegalAddress */);
}

// Whether the thread that wrote has ordered its writes before asynchronous reads, by a fence
// between the write and what told the reader.
bool is_fenced(const View& view, const Block& home, unsigned thread, uint32_t time) {
  const std::vector<uint32_t>& fences = home.threads[thread].proxy_fences;
  const auto fence = std::lower_bound(fences.begin(), fences.end(), time);
  return fence != fences.end() && view.sees(home, thread, *fence);
}

// `reader`: the engine, as messages begin.
void check_written_before_read(Block& block, const View& view, Record write, size_t offset,
                               const std::string& reader, const void* caller) {
  const unsigned thread = thread_of(write);
  const uint32_t time = time_of(write);
  if (time == 0) return;
  if (!view.sees(block, thread, time)) {
    report_once(block, FindingKind::kRace, caller,
                reader + " reads shared memory, " + block.shared.describe(offset) + ", that " +
                    name_of(block.threads[thread]) + " wrote with no barrier in between");
  } else if (!is_fenced(view, block, thread, time)) {
    report_once(block, FindingKind::kRace, caller,
                reader + " reads shared memory, " + block.shared.describe(offset) + ", that " +
                    name_of(block.threads[thread]) +
                    " wrote by ordinary stores, without fence.proxy.async between its stores and "
                    "the barrier");
  }
}

void check_read_of(Block& block, const View& view, const Cell& cell, size_t offset,
                   const std::string& reader, const void* caller) {
  switch (special_of(cell.write)) {
    case kRedzone:
      fail_out_of_bounds(block, block, offset, reader + " reads", caller);
    case kUninitialised:
      return report_once(block, FindingKind::kUninitialisedRead, caller,
                         reader + " reads shared memory that nobody has written: " +
                             block.shared.describe(offset));
    case kInFlight:
      return report_once(block, FindingKind::kRace, caller,
                         reader + " reads shared memory, " + block.shared.describe(offset) +
                             ", that an asynchronous copy is still bringing");
    case kLanded: {
      const AsyncChunk& chunk = block.async_shadow.at(offset);
      if (view.sees_landed(block, chunk.landed_slot, chunk.landed_time)) return;
      return report_once(block, FindingKind::kRace, caller,
                         reader + " reads shared memory, " + block.shared.describe(offset) +
                             ", that a bulk copy brought, without having waited for its barrier");
    }
    default:
      return check_written_before_read(block, view, cell.write, offset, reader, caller);
  }
}

// What stands against overwriting a cell by a bulk copy; empty if nothing.
std::string objection(const View& view, Block& home, const Cell& cell, size_t offset) {
  switch (special_of(cell.write)) {
    case kUninitialised:
      break;
    case kInFlight:
      return "that another copy is still bringing";
    case kLanded: {
      const AsyncChunk& chunk = home.async_shadow.at(offset);
      if (!view.sees_landed(home, chunk.landed_slot, chunk.landed_time)) {
        return "that a copy brought before and whose readers have not been waited for";
      }
      break;
    }
    default:
      if (time_of(cell.write) != 0 &&
          !view.sees(home, thread_of(cell.write), time_of(cell.write))) {
        return "that " + name_of(home.threads[thread_of(cell.write)]) +
               " wrote with no barrier in between";
      }
  }
  if (time_of(cell.read) != 0 && !view.sees(home, thread_of(cell.read), time_of(cell.read))) {
    return "that " + name_of(home.threads[thread_of(cell.read)]) +
           " read with no barrier in between";
  }
  return "";
}

void check_chunk_read(Block& block, const View& view, size_t offset, const std::string& reader,
                      const void* caller) {
  for (size_t word = offset; word < offset + AsyncShadow::kChunkBytes; word += 4) {
    const Cell* cells = block.shared.word(word);
    const bool is_split = cells->write == kSplitShared;
    if (is_split) cells = block.shared.byte(word);
    for (int i = 0; i < (is_split ? 4 : 1); ++i) {
      check_read_of(block, view, cells[i], word, reader, caller);
    }
  }
}

}  // namespace

bool has_seen_landing(const Block& block, size_t offset) {
  const AsyncChunk& chunk = const_cast<Block&>(block).async_shadow.at(offset);
  return View::of_current(block).sees_landed(block, chunk.landed_slot, chunk.landed_time);
}

bool readers_are_done(const View& view, const Block& home, const AsyncChunk& chunk) {
  for (unsigned g = 0; g < AsyncChunk::kWarpgroups; ++g) {
    if (chunk.readers[g] == 0) continue;
    if (!home.warpgroups[g]->is_known_done(view, home, chunk.readers[g])) return false;
  }
  return true;
}

void check_write_under_readers(Block& block, size_t offset, const void* caller) {
  AsyncChunk& chunk = block.async_shadow.at(offset);
  if (!chunk.is_read()) return;
  if (!readers_are_done(View::of_current(block), block, chunk)) {
    report_once(block, FindingKind::kRace, caller,
                "writes shared memory, " + block.shared.describe(offset) +
                    ", that wgmma instructions read which are not known to be done");
  }
  std::fill(std::begin(chunk.readers), std::end(chunk.readers), 0);
}

void check_bulk_write(Block& actor, Block& home, size_t offset, const void* caller) {
  const View view = View::of_current(actor);
  AsyncChunk& chunk = home.async_shadow.at(offset);
  std::string against;
  if (chunk.is_read()) {
    if (!readers_are_done(view, home, chunk)) {
      against = "that wgmma instructions read which are not known to be done";
    }
    std::fill(std::begin(chunk.readers), std::end(chunk.readers), 0);
  }
  for (size_t word = offset; word < offset + AsyncShadow::kChunkBytes; word += 4) {
    const Cell* cells = home.shared.word(word);
    const bool is_split = cells->write == kSplitShared;
    if (is_split) cells = home.shared.byte(word);
    for (int i = 0; i < (is_split ? 4 : 1); ++i) {
      if (special_of(cells[i].write) == kRedzone) {
        fail_out_of_bounds(actor, home, word, "a bulk copy writes", caller);
      }
      if (against.empty()) against = objection(view, home, cells[i], word);
    }
  }
  if (against.empty() || !actor.check_races) return;
  report_once(
      actor, FindingKind::kRace, caller,
      "a bulk copy overwrites shared memory, " + home.shared.describe(offset) + ", " + against);
}

void check_product_read(Block& block, const View& view, size_t offset, const void* caller) {
  check_chunk_read(block, view, offset, "wgmma", caller);
}

void check_bulk_read(Block& block, size_t offset, const void* caller) {
  const View view = View::of_current(block);
  if (view.clock != nullptr) check_chunk_read(block, view, offset, "a bulk copy", caller);
  for (size_t word = offset; word < offset + AsyncShadow::kChunkBytes; word += 4) {
    note_shared_word(block, word, Access::kRead, caller);
  }
}

}  // namespace kwemu
