// What the race checker remembers of every four bytes of shared and global memory.
//
// A cell has two records: the last write, and the last read. A record is 64 bits:
//
//   tag (28) | thread (10) | time (22) | flags (4)
//
// `thread` is the linear index in the block. `time` counts the block's synchronisation events
// (barriers, fences, atomics), so that an access with a time below that of the last barrier is
// ordered before everything after that barrier. `tag` is for shared memory the low bits of the
// access's code address (to name the other line of a race), for global memory the launch (6 bits)
// and the block (22 bits): records of earlier launches need no clearing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kwemu {

using Record = uint64_t;

constexpr unsigned kFlagBits = 4;
constexpr unsigned kTimeBits = 22;
constexpr unsigned kThreadBits = 10;
constexpr unsigned kTimeShift = kFlagBits;
constexpr unsigned kThreadShift = kTimeShift + kTimeBits;
constexpr unsigned kTagShift = kThreadShift + kThreadBits;
constexpr unsigned kBlockBits = 22;
constexpr unsigned kLaunchShift = kTagShift + kBlockBits;

constexpr Record kTimeMask = ((Record{1} << kTimeBits) - 1) << kTimeShift;
constexpr Record kThreadMask = ((Record{1} << kThreadBits) - 1) << kThreadShift;
constexpr Record kTagMask = ~Record{0} << kTagShift;
constexpr Record kBlockMask = ((Record{1} << kBlockBits) - 1) << kTagShift;
constexpr Record kLaunchMask = ~Record{0} << kLaunchShift;

constexpr unsigned kMaxTime = (1u << kTimeBits) - 1;
constexpr unsigned kMaxBlock = (1u << kBlockBits) - 1;
constexpr unsigned kMaxLaunch = (1u << (64 - kLaunchShift)) - 1;

// Flags. An access by an atomic operation; the four bytes have cells of their own; other threads
// have read it too since the last synchronisation; other blocks have read it too in this launch.
constexpr Record kAtomic = 1;
constexpr Record kSplit = 2;
constexpr Record kMany = 4;
constexpr Record kForeign = 8;

// Write records of shared memory that are no writes: time is at its maximum, flags say which.
constexpr Record kUninitialised = kTimeMask;
constexpr Record kRedzone = kTimeMask | kAtomic;
constexpr Record kSplitShared = kTimeMask | kSplit;
// An asynchronous copy in flight; with the thread and the site of the copy.
constexpr Record kInFlight = kTimeMask | kForeign;
// Written by a bulk copy that has landed: the AsyncShadow knows when and at which barrier.
constexpr Record kLanded = kTimeMask | kMany;

// The same for global memory, to be combined with a launch: block and thread are no real ones.
constexpr Record kSplitGlobal = kBlockMask | kThreadMask | kTimeMask | kSplit;

constexpr unsigned time_of(Record r) {
  return static_cast<unsigned>((r & kTimeMask) >> kTimeShift);
}
constexpr unsigned thread_of(Record r) {
  return static_cast<unsigned>((r & kThreadMask) >> kThreadShift);
}
constexpr unsigned block_of(Record r) {
  return static_cast<unsigned>((r & kBlockMask) >> kTagShift);
}
constexpr bool is_special(Record r) { return (r & kTimeMask) == kTimeMask; }
// Which special: thread and tag do not count.
constexpr Record special_of(Record r) { return r & (kTimeMask | ((Record{1} << kFlagBits) - 1)); }

struct Cell {
  Record write;
  Record read;
};

// One cell per four bytes and, for words that were accessed in parts, one per byte.
// Both ranges are reserved address space that costs memory only where it is touched.
class Shadow {
 public:
  Shadow() = default;
  explicit Shadow(size_t data_bytes);
  ~Shadow();
  Shadow(Shadow&& other) noexcept;
  Shadow& operator=(Shadow&& other) noexcept;

  bool exists() const { return words_ != nullptr; }
  Cell* word(size_t offset) const { return words_ + (offset >> 2); }
  Cell* byte(size_t offset) const { return bytes_ + offset; }
  size_t data_bytes() const { return data_bytes_; }
  // Back to all zero.
  void clear();

 private:
  Cell* words_ = nullptr;
  Cell* bytes_ = nullptr;
  size_t data_bytes_ = 0;
};

// The pattern of memory that nobody has written: a NaN as double, float, half and bfloat16.
constexpr uint16_t kPoison16 = 0x7ff9;
constexpr uint32_t kPoison32 = 0x7ff97ff9u;
constexpr uint64_t kPoison64 = 0x7ff97ff97ff97ff9ull;

void fill_with_poison(void* memory, size_t bytes);

}  // namespace kwemu
