#pragma once
// One operand's way from global memory into the shared tile of a matrix product.

#include <cstdint>

#include "async_copy.cuh"
#include "convert.cuh"
#include "gemm_facts.cuh"
#include "vector.cuh"

// The dimension along which a factor is contiguous in memory, as far as the kernel relies on it.
//   MN    its own dimension (M of lhs, N of rhs). Moved 16 bytes at a time, so whole 16 bytes along
//         it, and aligned
//   K     the summed dimension. Moved by elements and transposed on the way
//   NONE  nothing known. Moved by elements
enum class Major { MN, K, NONE };

// The shared tile is always [BLOCK_K][PITCH], contiguous along MN, so that one product kernel reads
// all layouts. Types of 4 and 8 bytes are copied asynchronously; 16-bit types go through
// registers and become float on the way. The address arithmetic shares its issue slots with the
// multiply-adds, so what can be computed once is kept in `next_`.
template <class T, Major MAJOR, int BLOCK_K, int BLOCK_MN, int THREADS>
class TileCopy {
 public:
  using Shared = compute_t<T>;
  // 16 more bytes a row: the transposed writes of a warp spread over the banks, and rows stay
  // aligned.
  static constexpr int PITCH = BLOCK_MN + 16 / sizeof(Shared);
  static constexpr int ELEMENTS = BLOCK_K * PITCH;

  // `base`: element (0, 0) of this batch. The tile covers [first, first + BLOCK_MN) of `size`;
  // beyond the end it repeats the last element, which no stored result depends on.
  __device__ __forceinline__ TileCopy(const T* base, int64_t mn_stride, int64_t k_stride,
                                      int64_t first, int64_t size)
      : mn_stride_(mn_stride), k_stride_(k_stride) {
    const int64_t left = size - first;
    last_ = (left < BLOCK_MN ? static_cast<int>(left) : BLOCK_MN) - ACCESS;
    next_ = base + first * mn_stride;
    if constexpr (IS_MN) {
      next_ += min(mn_of_chunk(), last_) + thread_row() * k_stride;
    } else if constexpr (IS_K) {
      next_ += thread_row() * mn_stride + thread_column();
    } else {
      next_ += any_k() * k_stride + any_mn() * mn_stride;
    }
  }

  // Starts copying the next BLOCK_K of K, of which the first `valid_k` exist; zeros for the rest.
  __device__ __forceinline__ void copy_next(Shared* shared, int valid_k) {
    if constexpr (IS_MN) {
      copy_mn(shared, valid_k);
      next_ += BLOCK_K * k_stride_;
    } else if constexpr (IS_K) {
      copy_k(shared, valid_k);
      next_ += BLOCK_K;
    } else {
      copy_any(shared, valid_k);
      next_ += BLOCK_K * k_stride_;
    }
  }

 private:
  static constexpr bool IS_MN = ANY_SIMT_MN && MAJOR == Major::MN;
  static constexpr bool IS_K = ANY_SIMT_K && MAJOR == Major::K;
  static constexpr int ACCESS = IS_MN ? 16 / sizeof(T) : 1;  // elements
  // Threads side by side: over a row of 16-byte chunks, or over neighbours along K of one row. For
  // the latter 16 beat 8 by 1 to 4 % on an H200, though their writes then meet in pairs in a bank:
  // a warp touches half as many cache lines.
  static constexpr int LANES_K = BLOCK_K % 16 == 0 ? 16 : 8;
  static constexpr int COLUMNS = IS_MN ? BLOCK_MN / ACCESS : LANES_K;
  // The other threads are in further rows, ROWS at a time.
  static constexpr int ROWS = THREADS / COLUMNS;
  static_assert(BLOCK_MN % ACCESS == 0, "the tile is a whole number of accesses wide");
  static_assert(IS_MN || IS_K || MAJOR == Major::NONE, "the file has text for this layout");
  static_assert(!IS_MN && !IS_K || THREADS % COLUMNS == 0, "threads form whole rows");
  static_assert(!IS_K || BLOCK_K % COLUMNS == 0, "BLOCK_K is a multiple of 8");
  static_assert(!IS_K || BLOCK_MN % ROWS == 0, "rows of threads tile BLOCK_MN");
  static_assert(IS_MN || IS_K ||
                    (THREADS % BLOCK_K == 0 && THREADS % BLOCK_MN == 0 &&
                     BLOCK_K * BLOCK_MN % THREADS == 0),
                "threads form whole rows either way, and rows of threads the tile");

  __device__ __forceinline__ static int thread_row() { return threadIdx.x / COLUMNS; }
  __device__ __forceinline__ static int thread_column() { return threadIdx.x % COLUMNS; }
  __device__ __forceinline__ static int mn_of_chunk() { return thread_column() * ACCESS; }

  __device__ __forceinline__ void copy_mn(Shared* shared, int valid_k) const {
#pragma unroll
    for (int pass_k = 0; pass_k < BLOCK_K; pass_k += ROWS) {
      const int k = thread_row() + pass_k;
      if (BLOCK_K % ROWS == 0 || k < BLOCK_K) {
        move(shared + k * PITCH + mn_of_chunk(), next_ + pass_k * k_stride_, k < valid_k);
      }
    }
  }

  __device__ __forceinline__ void copy_k(Shared* shared, int valid_k) const {
    Shared* const target = shared + thread_column() * PITCH + thread_row();
    const bool whole = last_ == BLOCK_MN - 1 && valid_k == BLOCK_K;
    if (whole) {
#pragma unroll
      for (int turn = 0; turn < BLOCK_MN; turn += ROWS) {
        const T* row = next_ + turn * mn_stride_;
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += COLUMNS) move(target + k * PITCH + turn, row + k, true);
      }
    } else {
#pragma unroll
      for (int turn = 0; turn < BLOCK_MN; turn += ROWS) {
        const T* row = next_ + (min(thread_row() + turn, last_) - thread_row()) * mn_stride_;
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += COLUMNS) {
          move(target + k * PITCH + turn, row + k, thread_column() + k < valid_k);
        }
      }
    }
  }

  // Of any strides: neighbouring threads follow the smaller one.
  __device__ __forceinline__ bool along_k() const { return k_stride_ <= mn_stride_; }
  __device__ __forceinline__ int any_k() const {
    return along_k() ? threadIdx.x % BLOCK_K : threadIdx.x / BLOCK_MN;
  }
  __device__ __forceinline__ int any_mn() const {
    return along_k() ? threadIdx.x / BLOCK_K : threadIdx.x % BLOCK_MN;
  }

  __device__ __forceinline__ void copy_any(Shared* shared, int valid_k) const {
    constexpr int PASSES = BLOCK_K * BLOCK_MN / THREADS;
    const int pass_k = along_k() ? 0 : THREADS / BLOCK_MN;
    const int pass_mn = along_k() ? THREADS / BLOCK_K : 0;
    const int64_t pass_stride = pass_k * k_stride_ + pass_mn * mn_stride_;
    Shared* const target = shared + any_k() * PITCH + any_mn();
    const bool whole = last_ == BLOCK_MN - 1 && valid_k == BLOCK_K;
    if (whole) {
#pragma unroll
      for (int turn = 0; turn < PASSES; ++turn) {
        move(target + turn * (pass_k * PITCH + pass_mn), next_ + turn * pass_stride, true);
      }
    } else {
#pragma unroll
      for (int turn = 0; turn < PASSES; ++turn) {
        const int mn = any_mn() + turn * pass_mn;
        const T* source = next_ + turn * pass_stride + (min(mn, last_) - mn) * mn_stride_;
        move(target + turn * (pass_k * PITCH + pass_mn), source, any_k() + turn * pass_k < valid_k);
      }
    }
  }

  __device__ __forceinline__ static void move(Shared* shared, const T* global, bool valid) {
    if constexpr (!ANY_SHORT || sizeof(T) >= 4) {
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

  const T* next_;  // this thread's first element of the next step
  int64_t mn_stride_;
  int64_t k_stride_;
  int last_;  // greatest first element of an access
};
