// Cooperative groups of at most a block. A grid cannot be synchronised: that is reported.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {

inline unsigned linear_thread() { return kwemu_linear_thread(); }

class thread_block {
 public:
  void sync(KWEMU_HERE) const { __syncthreads(file, line); }
  unsigned thread_rank() const { return linear_thread(); }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const { return size(); }
  dim3 group_index() const { return dim3(blockIdx); }
  dim3 thread_index() const { return dim3(threadIdx); }
  dim3 group_dim() const { return dim3(blockDim); }
  dim3 dim_threads() const { return dim3(blockDim); }
};

inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  bool is_valid() const { return false; }
  void sync(KWEMU_HERE) const { kwemu_unsupported("a barrier of the whole grid", file, line); }
  unsigned long long size() const {
    return 1ull * gridDim.x * gridDim.y * gridDim.z * blockDim.x * blockDim.y * blockDim.z;
  }
  unsigned long long thread_rank() const {
    const unsigned long long block =
        (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    return block * blockDim.x * blockDim.y * blockDim.z + linear_thread();
  }
};

inline grid_group this_grid() { return {}; }

// Lanes of one warp: `mask` names them.
class lanes {
 public:
  explicit lanes(unsigned mask) : mask_(mask) {}
  void sync(KWEMU_HERE) const { __syncwarp(mask_, file, line); }
  unsigned size() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(mask_ & ((1u << (linear_thread() % 32)) - 1)));
  }
  unsigned mask() const { return mask_; }
  template <class T>
  T shfl(T value, int rank, KWEMU_HERE) const {
    return __shfl_sync(mask_, value, lane_of(static_cast<unsigned>(rank) % size()), 32, file, line);
  }
  template <class T>
  T shfl_down(T value, unsigned delta, KWEMU_HERE) const {
    const unsigned rank = thread_rank() + delta;
    return __shfl_sync(mask_, value, lane_of(rank < size() ? rank : thread_rank()), 32, file, line);
  }
  template <class T>
  T shfl_up(T value, unsigned delta, KWEMU_HERE) const {
    const unsigned rank = thread_rank();
    return __shfl_sync(mask_, value, lane_of(rank >= delta ? rank - delta : rank), 32, file, line);
  }
  template <class T>
  T shfl_xor(T value, unsigned other, KWEMU_HERE) const {
    const unsigned rank = thread_rank() ^ other;
    return __shfl_sync(mask_, value, lane_of(rank < size() ? rank : thread_rank()), 32, file, line);
  }
  int any(int predicate, KWEMU_HERE) const { return __any_sync(mask_, predicate, file, line); }
  int all(int predicate, KWEMU_HERE) const { return __all_sync(mask_, predicate, file, line); }
  // Bits by rank, not by lane.
  unsigned ballot(int predicate, KWEMU_HERE) const {
    const unsigned votes = __ballot_sync(mask_, predicate, file, line);
    unsigned result = 0;
    for (unsigned rank = 0; rank < size(); ++rank) {
      result |= ((votes >> lane_of(rank)) & 1) << rank;
    }
    return result;
  }

 private:
  int lane_of(unsigned rank) const {
    unsigned rest = mask_;
    for (; rank > 0; --rank) rest &= rest - 1;
    return __ffs(static_cast<int>(rest)) - 1;
  }

  unsigned mask_;
};

template <unsigned kSize, class Parent = thread_block>
class thread_block_tile : public lanes {
 public:
  static_assert(kSize <= 32 && (kSize & (kSize - 1)) == 0, "tiles are parts of one warp");
  thread_block_tile() : lanes(mask_of_tile()) {}
  unsigned meta_group_rank() const { return linear_thread() / kSize; }
  unsigned meta_group_size() const { return (this_thread_block().size() + kSize - 1) / kSize; }
  static constexpr unsigned size() { return kSize; }
  static constexpr unsigned num_threads() { return kSize; }

 private:
  static unsigned mask_of_tile() {
    const unsigned ones = kSize == 32 ? 0xffffffffu : (1u << kSize % 32) - 1;
    return ones << (linear_thread() % 32 / kSize * kSize);
  }
};

class coalesced_group : public lanes {
 public:
  using lanes::lanes;
};

template <unsigned kSize, class Parent>
inline thread_block_tile<kSize, Parent> tiled_partition(const Parent&) {
  return {};
}

inline coalesced_group coalesced_threads(KWEMU_HERE) {
  return coalesced_group(__activemask(file, line));
}

template <class Group>
inline void sync(const Group& group, KWEMU_HERE) {
  group.sync(file, line);
}

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};

// Every lane gets the combination of all lanes' values, by halving distances: the order in which
// values are combined is the device's own.
template <class Group, class T, class Combine>
inline T reduce(const Group& group, T value, Combine combine, KWEMU_HERE) {
  if ((group.size() & (group.size() - 1)) == 0) {
    for (unsigned offset = group.size() / 2; offset > 0; offset /= 2) {
      value = combine(value, group.shfl_xor(value, offset, file, line));
    }
    return value;
  }
  T result = group.shfl(value, 0, file, line);
  for (unsigned rank = 1; rank < group.size(); ++rank) {
    result = combine(result, group.shfl(value, static_cast<int>(rank), file, line));
  }
  return result;
}

}  // namespace cooperative_groups
