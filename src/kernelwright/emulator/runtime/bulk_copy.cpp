#include "bulk_copy.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "access.h"
#include "async_checks.h"
#include "races.h"

namespace kwemu {
namespace {

constexpr size_t kChunkBytes = AsyncShadow::kChunkBytes;

// for_each_row of an im2col map: pixels follow each other inside the bounding box, W first, and
// then in the next image; the offsets are added to where each is.
template <class Visit>
void for_each_pixel(const BulkCopy& copy, int64_t first, int64_t end, const Visit& visit) {
  const TensorMap& map = copy.map;
  int64_t place[TensorMap::kMaxRank];
  std::copy(copy.place, copy.place + map.rank, place);
  for (size_t row = 0; row < map.rows(); ++row) {
    bool inside = first < end;
    int64_t offset = (copy.place[0] + first) * map.element_bytes;
    for (unsigned d = 1; d < map.rank; ++d) {
      const int64_t at = place[d] + (d <= map.spatial() ? copy.offsets[d - 1] : 0);
      inside = inside && at >= 0 && at < static_cast<int64_t>(map.sizes[d]);
      offset += at * static_cast<int64_t>(map.strides[d - 1]);
    }
    visit(row, map.address + static_cast<uint64_t>(offset), static_cast<size_t>(first),
          inside ? static_cast<size_t>(end - first) : 0);
    for (unsigned d = 1; d < map.rank; ++d) {
      place[d] += map.steps[d];
      if (d > map.spatial()) break;
      if (place[d] < static_cast<int64_t>(map.sizes[d]) + map.upper[d - 1]) break;
      place[d] = map.lower[d - 1];
    }
  }
}

// Calls `visit(row, address, first, count)` for each row of the box: its number, the address of its
// first element inside the tensor, that element's place in the row and how many there are; count is
// 0 for a row that lies outside.
template <class Visit>
void for_each_row(const BulkCopy& copy, const Visit& visit) {
  const TensorMap& map = copy.map;
  const int64_t size = static_cast<int64_t>(map.sizes[0]);
  const int64_t first = std::max<int64_t>(0, -copy.place[0]);
  const int64_t end = std::min<int64_t>(map.box[0], size - copy.place[0]);
  if (map.is_im2col) {
    for_each_pixel(copy, first, end, visit);
    return;
  }
  for (size_t row = 0; row < map.rows(); ++row) {
    size_t rest = row;
    bool inside = first < end;
    int64_t offset = (copy.place[0] + first) * map.element_bytes;
    for (unsigned d = 1; d < map.rank; ++d) {
      const int64_t at = copy.place[d] + static_cast<int64_t>(rest % map.box[d]);
      rest /= map.box[d];
      inside = inside && at >= 0 && at < static_cast<int64_t>(map.sizes[d]);
      offset += at * static_cast<int64_t>(map.strides[d - 1]);
    }
    visit(row, map.address + static_cast<uint64_t>(offset), static_cast<size_t>(first),
          inside ? static_cast<size_t>(end - first) : 0);
  }
}

size_t chunk_offset(const BulkCopy& copy, size_t chunk) {
  return swizzled(copy.offset + chunk * kChunkBytes, copy.map.span_bytes);
}

// Outside of the tensor: zeros, or the NaN of all ones.
void fill_outside(const TensorMap& map, char* row) {
  std::memset(row, map.fills_nan ? 0xff : 0, map.row_bytes());
}

// To the nearest number of TF32, halves to even ones; what nobody wrote stays so.
void round_to_tf32(std::vector<char>& bytes) {
  constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u, kNan = 0x7fffe000u;
  constexpr int kDropped = 13;
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint32_t)) {
    uint32_t bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    if (bits == kPoison32) continue;
    const bool is_nan = (bits & ~kSign) > kInfinity;
    const uint32_t below_half = (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
    bits = is_nan ? kNan : (bits + below_half) >> kDropped << kDropped;
    std::memcpy(bytes.data() + at, &bits, sizeof bits);
  }
}

void check_place(Block& actor, const BulkCopy& copy, Access access) {
  const Block& home = *copy.home;
  // Runs, whose elements are wider than any tensor's, lie at any chunk.
  const size_t alignment = copy.map.element_bytes == kChunkBytes ? kChunkBytes : 128;
  if (copy.offset % alignment != 0) {
    fail_misaligned(actor, home.shared_low + copy.offset, alignment, access, copy.caller);
  }
  if (copy.offset + copy.map.box_bytes() > SharedMemory::kBytes) {
    actor.report(FindingKind::kOutOfBounds, Place::of(copy.caller),
                 std::string("a bulk copy ") + (access == Access::kRead ? "reads" : "writes") +
                     " shared memory " + home.shared.describe(copy.offset));
    actor.abandon(700 /* cudaErrorIllegalAddress */);
  }
}

// The box as it lies in shared memory, unswizzled.
std::vector<char> read_box(const BulkCopy& copy) {
  std::vector<char> bytes(copy.map.box_bytes());
  const char* const shared = reinterpret_cast<const char*>(copy.home->shared_low);
  for (size_t i = 0; i < bytes.size() / kChunkBytes; ++i) {
    std::memcpy(bytes.data() + i * kChunkBytes, shared + chunk_offset(copy, i), kChunkBytes);
  }
  return bytes;
}

// 16 bytes arrive; what nobody wrote in the tensor is not written here either.
void write_chunk(const BulkCopy& copy, size_t offset, const char* bytes, bool may_be_unwritten) {
  Block& home = *copy.home;
  std::memcpy(reinterpret_cast<char*>(home.shared_low) + offset, bytes, kChunkBytes);
  const Record landed = (reinterpret_cast<uintptr_t>(copy.caller) << kTagShift) | kLanded;
  for (size_t i = 0; i < kChunkBytes; i += 4) {
    const bool is_unwritten =
        may_be_unwritten && holds_poison(reinterpret_cast<uintptr_t>(bytes + i), 4);
    *home.shared.word(offset + i) = Cell{is_unwritten ? kUninitialised : landed, 0};
  }
  AsyncChunk& chunk = home.async_shadow.at(offset);
  chunk.landed_slot = home.mbarriers.slot_of(copy.barrier);
  chunk.landed_time = home.now();
}

}  // namespace

void check_source(Block& actor, const BulkCopy& copy) {
  for_each_row(copy, [&](size_t, uint64_t address, size_t, size_t count) {
    if (count != 0) {
      check_bulk_source(actor, address, count * copy.map.element_bytes, copy.caller);
    }
  });
}

void check_shared_source(Block& block, size_t offset, size_t bytes, const void* caller) {
  for (size_t i = 0; i < bytes; i += kChunkBytes) check_bulk_read(block, offset + i, caller);
}

void ask_for(Block& actor, const BulkCopy& copy) {
  Block& home = *copy.home;
  if (home.is_done()) {
    actor.report(FindingKind::kRace, Place::of(copy.caller),
                 "a bulk copy to a block of the cluster that has ended");
    actor.abandon(719 /* cudaErrorLaunchFailure */);
  }
  const size_t bytes = copy.map.box_bytes();
  check_place(actor, copy, Access::kWrite);
  home.mbarriers.check_reachable(home, copy.barrier, copy.caller);
  const Record pending = (reinterpret_cast<uintptr_t>(copy.caller) << kTagShift) |
                         (actor.self & kThreadMask) | kInFlight;
  for (size_t i = 0; i < bytes / kChunkBytes; ++i) {
    const size_t offset = chunk_offset(copy, i);
    check_bulk_write(actor, home, offset, copy.caller);
    fill_with_poison(reinterpret_cast<char*>(home.shared_low) + offset, kChunkBytes);
    for (size_t word = offset; word < offset + kChunkBytes; word += 4) {
      *home.shared.word(word) = Cell{pending, 0};
    }
  }
  actor.cluster().ask(copy);
  ++actor.activity;
}

void land(const BulkCopy& copy) {
  const TensorMap& map = copy.map;
  const bool is_watched = copy.home->check_uninitialised;
  std::vector<char> bytes(map.row_bytes());
  for_each_row(copy, [&](size_t row, uint64_t address, size_t first, size_t count) {
    fill_outside(map, bytes.data());
    std::memcpy(bytes.data() + first * map.element_bytes, reinterpret_cast<const void*>(address),
                count * map.element_bytes);
    if (map.is_rounded()) round_to_tf32(bytes);
    const size_t chunks = map.row_bytes() / kChunkBytes;
    for (size_t i = 0; i < chunks; ++i) {
      write_chunk(copy, chunk_offset(copy, row * chunks + i), bytes.data() + i * kChunkBytes,
                  is_watched && count != 0);
    }
  });
  copy.home->mbarriers.bring(*copy.home, copy.barrier, static_cast<unsigned>(map.box_bytes()),
                             copy.known);
}

void report_unfinished(const BulkCopy& copy) {
  copy.home->report_about(copy.home->threads.front(), FindingKind::kRace, Place::of(copy.caller),
                          "the block ends while this copy is still bringing " +
                              std::to_string(copy.map.box_bytes()) + " bytes that nobody waits for",
                          nullptr, {});
}

// The order of ordinary accesses is checked here, where the store is asked for.
void BulkStores::ask(Block& block, const BulkCopy& copy) {
  check_place(block, copy, Access::kRead);
  for (size_t i = 0; i < copy.map.box_bytes() / kChunkBytes; ++i) {
    check_bulk_read(block, chunk_offset(copy, i), copy.caller);
  }
  for_each_row(copy, [&](size_t, uint64_t address, size_t, size_t count) {
    if (count == 0) return;
    check_access(block, address, count * copy.map.element_bytes, Access::kWrite, copy.caller);
  });
  open_.push_back({copy, read_box(copy)});
}

void BulkStores::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void BulkStores::wait(Block& block, size_t groups) {
  if (groups_.size() <= groups) return;
  const size_t ending = groups_.size() - groups;
  for (size_t i = 0; i < ending; ++i) {
    for (const Store& store : groups_[i]) finish(block, store);
  }
  groups_.erase(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(ending));
}

void BulkStores::end(Block& block) {
  if (open_.empty() && groups_.empty()) return;
  const Store& store = groups_.empty() ? open_.front() : groups_.front().front();
  block.report(FindingKind::kRace, Place::of(store.copy.caller),
               "the thread ends while this store may still read shared memory");
  commit();
  wait(block, 0);
}

void BulkStores::forget() {
  open_.clear();
  groups_.clear();
}

void BulkStores::finish(Block& block, const Store& store) const {
  const BulkCopy& copy = store.copy;
  const std::vector<char> bytes = read_box(copy);
  if (bytes != store.bytes) {
    block.report(FindingKind::kRace, Place::of(copy.caller),
                 "what this store reads from shared memory was overwritten before the thread had "
                 "waited for it");
  }
  const size_t width = copy.map.element_bytes;
  for_each_row(copy, [&](size_t row, uint64_t address, size_t first, size_t count) {
    std::memcpy(reinterpret_cast<void*>(address),
                bytes.data() + row * copy.map.row_bytes() + first * width, count * width);
  });
}

}  // namespace kwemu
