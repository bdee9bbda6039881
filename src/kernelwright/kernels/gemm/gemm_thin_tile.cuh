#pragma once
// What the threads of a thin product do: the thin factor's way into shared memory, the wide
// factor's into registers, and the sums of their products. See gemm_thin.cuh.

#include <cstring>

#include "async_copy.cuh"
#include "gemm_problem.cuh"
#include "gemm_tile.cuh"

// One factor, as the kernel walks over it.
struct ThinFactor {
  const void* data;
  int operand;
  int64_t size;  // of its own dimension
  int64_t stride;
  int64_t k_stride;
  bool has_vectors;  // along its contiguous dimension
};

// How one call is cut into blocks.
struct ThinPlan {
  bool is_transposed;
  bool is_along_k;  // neighbouring threads read neighbours along K of the wide factor
  ThinFactor thin;
  ThinFactor wide;
  int column_lanes;
  int k_lanes;
  int64_t row_tiles;
  int64_t tiles;  // in a batch: those of columns times those of rows
  int64_t slices;
  int64_t slice_k;
};

template <class Problem>
struct ThinParameters {
  Problem problem;
  ThinPlan plan;
  unsigned* finished;  // for each tile, slices that left their sums
  void* slice_sums;
};

template <class Config, class Problem>
struct ThinTile {
  using T = typename Problem::Factor;
  using S = compute_t<T>;
  static constexpr int ROWS = Config::ROWS, COLUMNS = Config::COLUMNS, STEP = Config::STEP;
  static constexpr int THREADS = Config::THREADS;
  static constexpr int VECTOR = 16 / sizeof(T);

  // Of the thin factor two chunks of CHUNK_K along K are in shared memory, as numbers to compute
  // with. A thread reads 8 neighbours of a 16-bit factor, so a gap after every 32 numbers spreads a
  // warp over the banks.
  static constexpr int CHUNK_BYTES = 16384;
  static constexpr int CHUNK_K = CHUNK_BYTES / ROWS / static_cast<int>(sizeof(S));
  static constexpr int GAP = sizeof(T) == 2 ? 4 : 0;
  static constexpr int PITCH = CHUNK_K + CHUNK_K / 32 * GAP + 16 / static_cast<int>(sizeof(S));
  static constexpr int CHUNKS = 2 * ROWS * PITCH;
  // The same memory then serves to sum over the warps, and to hand the sums to the epilogue.
  static constexpr int SUMS = THREADS * ROWS * COLUMNS;
  static constexpr int SHARED_BYTES = (CHUNKS > SUMS ? CHUNKS : SUMS) * static_cast<int>(sizeof(S));

  static constexpr int MAX_K_LANES = THREADS < CHUNK_K / STEP ? THREADS : CHUNK_K / STEP;
  static constexpr int MAX_COLUMN_LANES = THREADS / 2;

  static_assert(ROWS <= 16 && (ROWS & (ROWS - 1)) == 0, "ROWS is 1, 2, 4, 8 or 16");
  static_assert(Config::ROW_TILES == 1 || ROWS % Problem::COLUMN_VECTOR == 0,
                "where the thin factor's rows are columns of the result, tiles have whole vectors");
  static_assert((COLUMNS & (COLUMNS - 1)) == 0 && (STEP & (STEP - 1)) == 0,
                "COLUMNS and STEP are powers of two");
  static_assert(COLUMNS % Problem::COLUMN_VECTOR == 0, "a thread's columns are whole vectors");
  static_assert(THREADS >= 64 && THREADS <= 1024 && (THREADS & (THREADS - 1)) == 0,
                "threads divide into lanes by powers of two");
  static_assert(STEP * static_cast<int>(sizeof(S)) >= 16 && STEP <= 32 && MAX_K_LANES >= 2,
                "the thin factor is read from shared memory 16 bytes at a time");

  // Place in shared memory of element k of a chunk.
  __device__ __forceinline__ static int place(int k) { return k + k / 32 * GAP; }
};

// Reads WIDTH elements that no other thread will want.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_once(const T* address) {
  Vector<T, WIDTH> value;
  if constexpr (sizeof(value) == 16) {
    unsigned words[4];
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(address));
    memcpy(&value, words, sizeof(value));
  } else if constexpr (sizeof(value) == 8) {
    unsigned words[2];
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(address));
    memcpy(&value, words, sizeof(value));
  } else if constexpr (sizeof(value) == 4) {
    unsigned word;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(word) : "l"(address));
    memcpy(&value, &word, sizeof(value));
  } else {
    static_assert(sizeof(value) == 2, "elements of 2, 4 or 8 bytes");
    unsigned short word;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(word) : "l"(address));
    memcpy(&value, &word, sizeof(value));
  }
  return value;
}

// The thin factor's way into shared memory: [ROWS][PITCH], contiguous along K.
template <class Tile>
class ThinChunks {
 public:
  using T = typename Tile::T;
  using S = typename Tile::S;

  // `base`: the tile's first row at element k, where the slice begins. `rows`: how many exist.
  __device__ __forceinline__ ThinChunks(const ThinFactor& factor, const T* base, int rows,
                                        S* shared)
      : factor_(factor), base_(base), rows_(rows), shared_(shared) {}

  // Where the chunk is that element k of the slice belongs to.
  __device__ __forceinline__ S* chunk(int k) const {
    return shared_ + k / Tile::CHUNK_K % 2 * (Tile::ROWS * Tile::PITCH);
  }

  // Starts copying elements [k, k + CHUNK_K) of every row, zeros from `size` on and beyond the last
  // row. Nothing reads past a whole number of `step`s.
  __device__ __forceinline__ void copy(int k, int size, int step) const {
    const int valid = min(size - k, Tile::CHUNK_K);
    const int count = (valid + step - 1) & -step;
    S* const to = chunk(k);
    const T* const from = base_ + k * factor_.k_stride;
    if (factor_.has_vectors) {
      copy_along_k<Tile::VECTOR>(to, from, valid, count);
    } else if (factor_.k_stride <= factor_.stride || Tile::ROWS == 1) {
      copy_along_k<1>(to, from, valid, count);
    } else {
      copy_along_rows(to, from, valid, count);
    }
    commit_copies();
  }

 private:
  // The loops are not unrolled: the registers hold sums, and a step of the wide factor on its way.
  template <int ACCESS>
  __device__ __forceinline__ void copy_along_k(S* to, const T* from, int valid, int count) const {
    constexpr int GROUPS = Tile::ROWS < 4 ? Tile::ROWS : 4;
    constexpr int LANES = Tile::THREADS / GROUPS;
#pragma unroll 1
    for (int row = threadIdx.x / LANES; row < Tile::ROWS; row += GROUPS) {
#pragma unroll 1
      for (int k = threadIdx.x % LANES * ACCESS; k < count; k += LANES * ACCESS) {
        move<ACCESS>(to, from, row, k, valid);
      }
    }
  }

  __device__ __forceinline__ void copy_along_rows(S* to, const T* from, int valid,
                                                  int count) const {
    const int row = threadIdx.x % Tile::ROWS;
#pragma unroll 1
    for (int k = threadIdx.x / Tile::ROWS; k < count; k += Tile::THREADS / Tile::ROWS) {
      move<1>(to, from, row, k, valid);
    }
  }

  template <int ACCESS>
  __device__ __forceinline__ void move(S* to, const T* from, int row, int k, int valid) const {
    const bool exists = k < valid && row < rows_;
    const T* const source = exists ? from + row * factor_.stride + k * factor_.k_stride : base_;
    S* const target = to + row * Tile::PITCH + Tile::place(k);
    if constexpr (sizeof(T) >= 4) {
      copy_async<ACCESS * sizeof(T)>(target, source, exists);
    } else {
      Vector<S, ACCESS> values = {};
      if (exists) {
        const Vector<T, ACCESS> loaded = load_vector<ACCESS>(source);
#pragma unroll
        for (int i = 0; i < ACCESS; ++i) values.element[i] = widen(loaded.element[i]);
      }
      store_vector(target, values);
    }
  }

  const ThinFactor& factor_;
  const T* base_;
  int rows_;
  S* shared_;
};

// A thread's part of the tile: which elements of the wide factor it reads, and its sums.
template <class Tile, Major MAJOR, int ACCESS>
class ThinThread {
 public:
  using T = typename Tile::T;
  using S = typename Tile::S;
  static constexpr int ROWS = Tile::ROWS, COLUMNS = Tile::COLUMNS, STEP = Tile::STEP;
  // A thread has neighbours in runs; between them are the runs of the other lanes.
  static constexpr int COLUMN_RUN = MAJOR == Major::MN ? ACCESS : 1;
  static constexpr int K_RUN = MAJOR == Major::MN ? STEP : ACCESS;
  static_assert(COLUMNS % COLUMN_RUN == 0 && STEP % K_RUN == 0, "whole accesses");

  // `base`: element (0, k) of this batch, k where the slice begins. `first`: column of the tile.
  __device__ __forceinline__ ThinThread(const ThinPlan& plan, const T* base, int64_t first)
      : plan_(plan),
        column_lane_(MAJOR == Major::MN ? threadIdx.x % plan.column_lanes
                                        : threadIdx.x / plan.k_lanes),
        k_lane_(MAJOR == Major::MN ? threadIdx.x / plan.column_lanes : threadIdx.x % plan.k_lanes) {
    const int64_t left = plan.wide.size - first;
    columns_left_ = left < (1 << 30) ? static_cast<int>(left) : 1 << 30;
    next_ = base + (first + column(0)) * plan.wide.stride + k(0) * plan.wide.k_stride;
  }

  // Places in the tile and in a step of the thread's column c and element s along K.
  __device__ __forceinline__ int column(int c) const {
    return (c / COLUMN_RUN * plan_.column_lanes + column_lane_) * COLUMN_RUN + c % COLUMN_RUN;
  }
  __device__ __forceinline__ int k(int s) const {
    return (s / K_RUN * plan_.k_lanes + k_lane_) * K_RUN + s % K_RUN;
  }

  // Loads the next step, of which `left` elements along K exist.
  __device__ __forceinline__ void load(int left) {
    const int step = STEP * plan_.k_lanes;
    const int64_t column_ahead = plan_.column_lanes * COLUMN_RUN * plan_.wide.stride;
    const int64_t k_ahead = (MAJOR == Major::MN ? 1 : plan_.k_lanes * K_RUN) * plan_.wide.k_stride;
    const T* source = next_;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += COLUMN_RUN) {
      const bool column_exists = column(c) < columns_left_;
      const T* address = source;
#pragma unroll
      for (int s = 0; s < STEP; s += K_ACCESS) {
        Vector<T, ACCESS>& target = loaded_[c / COLUMN_RUN][s / K_ACCESS];
        target = {};
        if (column_exists && k(s) < left) target = load_once<ACCESS>(address);
        address += k_ahead;
      }
      source += column_ahead;
    }
    next_ += step * plan_.wide.k_stride;
  }

  // Adds the products with the rows in shared memory, whose step begins at `begin`.
  __device__ __forceinline__ void multiply(const S* rows, int begin) {
    constexpr int READ = K_RUN * sizeof(S) < 16 ? K_RUN : 16 / sizeof(S);
    // The products of a piece of a step are summed apart: a sum of K / PIECE terms loses less than
    // one of K.
    constexpr int PIECE = STEP < 8 ? STEP : 8;
#pragma unroll
    for (int piece = 0; piece < STEP; piece += PIECE) {
      S wide[COLUMNS][PIECE];
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
        for (int s = 0; s < PIECE; ++s) wide[c][s] = loaded(c, piece + s);
      }
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
        Vector<S, READ> thin[PIECE / READ];
#pragma unroll
        for (int s = 0; s < PIECE; s += READ) {
          thin[s / READ] =
              load_vector<READ>(rows + row * Tile::PITCH + Tile::place(begin + k(piece + s)));
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          S sum = wide[c][0] * thin[0].element[0];
#pragma unroll
          for (int s = 1; s < PIECE; ++s) sum += wide[c][s] * thin[s / READ].element[s % READ];
          sums_[row][c] += sum;
        }
      }
    }
  }

  // Moves the sums to others, and starts them again: two short sums lose less than a long one. What
  // the others lose is kept where there are registers (Knuth, TAOCP 2, 4.2.2, theorem B).
  __device__ __forceinline__ void promote() {
    if constexpr (HAS_SECOND_SUMS) {
#pragma unroll
      for (int i = 0; i < ROWS * COLUMNS; ++i) {
        S& sum = sums_[i / COLUMNS][i % COLUMNS];
        const S before = second_sums_[i];
        const S after = before + sum;
        if constexpr (KEEPS_LOSSES) {
          const S added = after - before;
          losses_[i] += (before - (after - added)) + (sum - added);
        }
        second_sums_[i] = after;
        sum = 0;
      }
    }
  }

  // Sums the k_lanes of a warp in pairs, and leaves in shared memory what each group of them has:
  // [groups][ROWS][columns of the tile]. Returns the number of groups.
  __device__ __forceinline__ int leave_sums(S* shared) {
    if constexpr (HAS_SECOND_SUMS) {
#pragma unroll
      for (int i = 0; i < ROWS * COLUMNS; ++i) {
        S& sum = sums_[i / COLUMNS][i % COLUMNS];
        // An infinite sum has lost nothing that is a number.
        if constexpr (KEEPS_LOSSES) sum += second_sums_[i] - second_sums_[i] == 0 ? losses_[i] : 0;
        sum += second_sums_[i];
      }
    }
    const int k_lanes = MAJOR == Major::K ? min(plan_.k_lanes, 32) : 32 / plan_.column_lanes;
    const int group_lanes = max(k_lanes, 1);
    // Lanes that differ in one bit of their k_lane are so far apart.
    const int neighbour = MAJOR == Major::K ? 1 : plan_.column_lanes;
    for (int apart = group_lanes / 2 * neighbour; apart >= neighbour; apart /= 2) {
#pragma unroll
      for (int i = 0; i < ROWS * COLUMNS; ++i) {
        S& sum = sums_[i / COLUMNS][i % COLUMNS];
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
      }
    }
    const int columns = plan_.column_lanes * COLUMNS;
    __syncthreads();  // the rows in shared memory have been read
    if (k_lane_ % group_lanes == 0) {
      S* const group = shared + k_lane_ / group_lanes * (ROWS * columns);
#pragma unroll
      for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int c = 0; c < COLUMNS; c += COLUMN_RUN) {
          Vector<S, COLUMN_RUN> run;
#pragma unroll
          for (int i = 0; i < COLUMN_RUN; ++i) run.element[i] = sums_[row][c + i];
          store_vector(group + row * columns + column(c), run);
        }
      }
    }
    __syncthreads();
    return plan_.k_lanes / group_lanes;
  }

 private:
  static constexpr int K_ACCESS = MAJOR == Major::MN ? 1 : ACCESS;

  // Element s along K of column c, to compute with.
  __device__ __forceinline__ S loaded(int c, int s) const {
    const int i = MAJOR == Major::MN ? c % COLUMN_RUN : s % K_ACCESS;
    return widen(loaded_[c / COLUMN_RUN][s / K_ACCESS].element[i]);
  }

  const ThinPlan& plan_;
  int column_lane_;
  int k_lane_;
  int columns_left_;
  const T* next_;  // the thread's first element of the next step
  Vector<T, ACCESS> loaded_[COLUMNS / COLUMN_RUN][STEP / K_ACCESS];
  S sums_[ROWS][COLUMNS] = {};
  // Where there are registers for them.
  static constexpr bool HAS_SECOND_SUMS = ROWS * COLUMNS <= 16;
  S second_sums_[HAS_SECOND_SUMS ? ROWS * COLUMNS : 1] = {};
  static constexpr bool KEEPS_LOSSES = sizeof(T) >= 4 && ROWS * COLUMNS <= 4;
  S losses_[KEEPS_LOSSES ? ROWS * COLUMNS : 1] = {};
};
