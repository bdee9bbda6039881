#pragma once
// One operand's way from global memory into the shared tile of a matrix product.

#include <cstdint>

#include "async_copy.cuh"
#include "convert.cuh"
#include "vector.cuh"

// The dimension along which a factor is contiguous in memory, as far as the kernel relies on it.
//   MN    its own dimension (M of lhs, N of rhs): moved 16 bytes at a time, which needs a multiple
//   of
//         16 bytes along it and aligned addresses
//   K     the summed dimension: moved by elements, and transposed on the way
//   NONE  nothing known: any strides, moved by elements
enum class Major { MN, K, NONE };

// The shared tile is always [BLOCK_K][PITCH], contiguous along MN, so that one product kernel reads
// all layouts. Types of 4 and 8 bytes are copied asynchronously; 16-bit types pass through
// registers and become float on the way.
template <class T, Major MAJOR, int BLOCK_K, int BLOCK_MN, int THREADS>
class TileCopy {
 public:
  using Shared = compute_t<T>;
  // 16 more bytes a row: the transposed writes of a warp, 8 along K by 4 along MN, then fall into
  // different banks, and rows stay aligned.
  static constexpr int PITCH = BLOCK_MN + 16 / sizeof(Shared);
  static constexpr int ELEMENTS = BLOCK_K * PITCH;

  // `base`: element (0, 0) of this batch. The tile covers [first, first + BLOCK_MN) of `size`;
  // beyond the end it repeats the last element, which no stored result depends on.
  __device__ __forceinline__ TileCopy(const T* base, int64_t mn_stride, int64_t k_stride,
                                      int64_t first, int64_t size)
      : next_(base + first * mn_stride), mn_stride_(mn_stride), k_stride_(k_stride) {
    const int64_t left = size - first;
    last_ = (left < BLOCK_MN ? static_cast<int>(left) : BLOCK_MN) - ACCESS;
  }

  // Starts copying the next BLOCK_K of K, of which the first `valid_k` exist; the rest become
  // zeros.
  __device__ __forceinline__ void copy_next(Shared* shared, int valid_k) {
    const int thread = threadIdx.x;
    if constexpr (MAJOR == Major::MN) {
      constexpr int CHUNKS = BLOCK_MN / ACCESS;
      static_assert(THREADS % CHUNKS == 0, "whole rows of 16-byte chunks for each pass of a block");
      constexpr int PASS_K = THREADS / CHUNKS;
      const int mn = thread % CHUNKS * ACCESS;
      const T* source = next_ + min(mn, last_);
#pragma unroll
      for (int pass = 0; pass * PASS_K < BLOCK_K; ++pass) {
        const int k = thread / CHUNKS + pass * PASS_K;
        if (BLOCK_K % PASS_K == 0 || k < BLOCK_K) {
          move(shared + k * PITCH + mn, source + k * k_stride_, k < valid_k);
        }
      }
    } else if constexpr (MAJOR == Major::K) {
      // Eight lanes read 8 neighbours along K (32 bytes of float, a memory sector) of one row.
      constexpr int LANES_K = 8;
      static_assert(BLOCK_K % LANES_K == 0, "BLOCK_K is a multiple of 8 lanes");
      constexpr int PASS_MN = THREADS / LANES_K;
      static_assert(BLOCK_MN % PASS_MN == 0, "passes of a block tile its rows");
#pragma unroll
      for (int pass = 0; pass < BLOCK_MN / PASS_MN; ++pass) {
        const int mn = thread / LANES_K + pass * PASS_MN;
        const T* row = next_ + min(mn, last_) * mn_stride_;
#pragma unroll
        for (int k_pass = 0; k_pass < BLOCK_K / LANES_K; ++k_pass) {
          const int k = thread % LANES_K + k_pass * LANES_K;
          move(shared + k * PITCH + mn, row + k, k < valid_k);
        }
      }
    } else {
      static_assert(BLOCK_K * BLOCK_MN % THREADS == 0, "every thread copies equally many elements");
      const bool along_k = k_stride_ <= mn_stride_;
#pragma unroll
      for (int pass = 0; pass < BLOCK_K * BLOCK_MN / THREADS; ++pass) {
        const int element = thread + pass * THREADS;
        const int k = along_k ? element % BLOCK_K : element / BLOCK_MN;
        const int mn = along_k ? element / BLOCK_K : element % BLOCK_MN;
        move(shared + k * PITCH + mn, next_ + min(mn, last_) * mn_stride_ + k * k_stride_,
             k < valid_k);
      }
    }
    next_ += BLOCK_K * (MAJOR == Major::K ? 1 : k_stride_);
  }

 private:
  static constexpr int ACCESS = MAJOR == Major::MN ? 16 / sizeof(T) : 1;  // elements
  static_assert(BLOCK_MN % ACCESS == 0, "the tile is a whole number of accesses");

  __device__ __forceinline__ static void move(Shared* shared, const T* global, bool valid) {
    if constexpr (sizeof(T) >= 4) {
      copy_async<ACCESS * sizeof(T)>(shared, global, valid);
    } else {
      Vector<Shared, ACCESS> values = {};
      if (valid) {
        const Vector<T, ACCESS> loaded = load_vector<ACCESS>(global);
#pragma unroll
        for (int i = 0; i < ACCESS; ++i) values.element[i] = widen(loaded.element[i]);
      }
      store_vector(shared, values);
    }
  }

  const T* next_;
  int64_t mn_stride_;
  int64_t k_stride_;
  int last_;  // greatest first element of an access
};
