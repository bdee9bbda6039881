// Recording accesses in shadow cells: the common case inline, the rest in races.cpp.
#pragma once

#include "access.h"

namespace kwemu {

inline Record load(const Record& record) { return __atomic_load_n(&record, __ATOMIC_RELAXED); }
inline void store(Record& record, Record value) {
  __atomic_store_n(&record, value, __ATOMIC_RELAXED);
}

inline bool before_barrier(const Block& block, Record record) {
  return (record & kTimeMask) < (Record{block.barrier_time} << kTimeShift);
}

inline bool same_thread(Record a, Record b) { return ((a ^ b) & kThreadMask) == 0; }

inline Record flag_of(Access access) { return access == Access::kAtomic ? kAtomic : 0; }

// The record of a shared access: its tag tells the line.
inline Record shared_record(const Block& block, Access access, const void* caller) {
  return (reinterpret_cast<uintptr_t>(caller) << kTagShift) | block.self | flag_of(access);
}

// Redzones, uninitialised words, copies in flight, split words and possible races.
// `offset` is of the word's first byte. Reports what there is to report.
void slow_shared_write_record(Block& block, size_t offset, Access access, const void* caller);
void slow_shared_read_record(Block& block, Cell& cell, Access access, const void* caller);
// Whether barriers in shared memory order another thread's access before the running thread's: who
// comes after that comes after both.
bool comes_after(const Block& block, Record earlier);
// One more reader of a word whose last one was `before`.
void slow_note_reader(Block& block, const Cell& cell, Record before, Record me);
// A write where products of a warpgroup may read.
void slow_shared_write_under_readers(Block& block, size_t offset, const void* caller);
// One access to a word in the parts that `mask` names, a bit for each byte.
void note_shared_bytes(Block& block, size_t offset, unsigned mask, Access access,
                       const void* caller);

inline void note_shared_cell(Block& block, Cell& cell, size_t offset, Access access, Record me,
                             const void* caller) {
  const Record read = cell.read;
  const bool own = same_thread(read, me);
  const bool before = before_barrier(block, read);
  if (access == Access::kRead) {
    const bool is_alone = own || ((read & kMany) == 0 && !before && comes_after(block, read));
    const Record many = before ? 0 : is_alone ? read & kMany : kMany;
    if (many != 0) slow_note_reader(block, cell, read, me);
    cell.read = me | many;
  } else {
    if (block.async_shadow.has_readers()) slow_shared_write_under_readers(block, offset, caller);
    if (!before && (!own || (read & kMany) != 0)) {
      slow_shared_read_record(block, cell, access, caller);
    }
    cell.write = me;
    cell.read = 0;
  }
}

inline void note_shared_word(Block& block, size_t offset, Access access, const void* caller) {
  Cell& cell = *block.shared.word(offset);
  const Record me = shared_record(block, access, caller);
  const Record write = cell.write;
  const bool fine = before_barrier(block, write) || (same_thread(write, me) && !is_special(write));
  if (!fine) {
    // Writing what is uninitialised is the commonest of the rest.
    const bool first_write = write == kUninitialised && access == Access::kWrite;
    if (!first_write) {
      if (write == kSplitShared) return note_shared_bytes(block, offset, 0xf, access, caller);
      slow_shared_write_record(block, offset, access, caller);
    }
  }
  note_shared_cell(block, cell, offset, access, me, caller);
}

inline bool of_this_launch(const Block& block, Record record) {
  return ((record ^ block.global_tag) & kLaunchMask) == 0;
}

inline bool of_this_block(const Block& block, Record record) {
  return ((record ^ block.global_tag) & kTagMask) == 0;
}

inline Record global_record(const Block& block, Access access) {
  return block.global_tag | block.self | flag_of(access);
}

// A place that a launch before this one, which may still run, has touched.
void slow_earlier_launch(Block& block, const Allocation& allocation, size_t offset,
                         const Cell& cell, Access access, const void* caller);
void slow_global_write_record(Block& block, Allocation& allocation, size_t offset, Record write,
                              Access access, const void* caller);
void slow_global_read_record(Block& block, Allocation& allocation, size_t offset, Record read,
                             Access access, const void* caller);
void note_global_bytes(Block& block, Allocation& allocation, size_t offset, unsigned mask,
                       Access access, const void* caller);

inline void note_global_cell(Block& block, Allocation& allocation, Cell& cell, size_t offset,
                             Access access, const void* caller) {
  const Record me = global_record(block, access);
  const Record write = load(cell.write);
  if (of_this_launch(block, write)) {
    const bool fine =
        of_this_block(block, write) && (same_thread(write, me) || before_barrier(block, write));
    if (!fine) slow_global_write_record(block, allocation, offset, write, access, caller);
  }
  const Record read = load(cell.read);
  if (block.early_start.is_suspect(write) || block.early_start.is_suspect(read)) {
    slow_earlier_launch(block, allocation, offset, cell, access, caller);
  }
  if (access == Access::kRead) {
    Record flags = 0;
    // Read by several blocks already: what all share need not be written again and again, which
    // would have the workers fight for the cell.
    const bool shared = (read & kForeign) != 0 && of_this_launch(block, read);
    if (shared && !of_this_block(block, read)) return;
    if (of_this_block(block, read)) {
      const bool own = same_thread(read, me);
      const bool many = !before_barrier(block, read) && !own;
      flags = (read & (own ? kForeign | kMany : kForeign)) | (many ? kMany : 0);
    } else if (of_this_launch(block, read)) {
      flags = kForeign;
    }
    store(cell.read, me | flags);
    return;
  }
  if (of_this_launch(block, read)) {
    const bool fine =
        of_this_block(block, read) && (read & kForeign) == 0 &&
        (before_barrier(block, read) || (same_thread(read, me) && (read & kMany) == 0));
    if (!fine) slow_global_read_record(block, allocation, offset, read, access, caller);
    store(cell.read, 0);
  }
  store(cell.write, me);
}

inline void note_global_word(Block& block, Allocation& allocation, size_t offset, Access access,
                             const void* caller) {
  Cell& cell = *allocation.shadow.word(offset);
  const Record write = load(cell.write);
  if ((write & ~kLaunchMask) == kSplitGlobal && of_this_launch(block, write)) {
    return note_global_bytes(block, allocation, offset, 0xf, access, caller);
  }
  note_global_cell(block, allocation, cell, offset, access, caller);
}

}  // namespace kwemu
