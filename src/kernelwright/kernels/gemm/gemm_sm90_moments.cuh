#pragma once
// Moments of the columns (column_moments.cuh) of the 64 rows that a warpgroup stores together.

#include "column_moments.cuh"
#include "gemm_sm90_store.cuh"

// How a warp's lanes lie on the 32 columns of its rows that it stores at one time, or on fewer that
// a tile has: each has a run.
template <int COUNT>
struct RunLanes {
  static constexpr int COLUMNS = COUNT * 2 < RowBuffer::COLUMNS ? COUNT * 2 : RowBuffer::COLUMNS;
  static constexpr int ACROSS = COLUMNS / RUN, DOWN = 32 / ACROSS;
  static constexpr int RUNS = RowBuffer::ROWS / DOWN;  // of a lane

  __device__ __forceinline__ static int row() { return threadIdx.x % 32 / ACROSS; }
  __device__ __forceinline__ static int column() { return threadIdx.x % ACROSS * RUN; }
};

// Those of a warp's rows, while it stores them some columns at a time. All its lanes know them, and
// each row of lanes keeps those of other columns.
template <int COUNT>
struct WarpMoments {
  using Lanes = RunLanes<COUNT>;
  static constexpr int COLUMNS = COUNT * 2, TIMES = COLUMNS / Lanes::COLUMNS;
  static constexpr int KEPT = (TIMES + Lanes::DOWN - 1) / Lanes::DOWN;
  static_assert(2 * COLUMNS * 4 <= ROW_BUFFER_BYTES, "a warp's buffer has room for all columns");

  LaneMoments kept[KEPT] = {};

  __device__ __forceinline__ void keep(int first, const LaneMoments& moments) {
#pragma unroll
    for (int k = 0; k < KEPT; ++k) {
      if (first / Lanes::COLUMNS == k * Lanes::DOWN + Lanes::row()) kept[k] = moments;
    }
  }

  // Writes those of the warpgroup's rows: what all its warps keep, which call this together.
  // `first_row` is the warp's, `first_column` the tile's.
  template <class Problem>
  __device__ __forceinline__ void store(const Problem& problem, int first_row, int first_column,
                                        RowBuffer& buffer) const {
    constexpr int THREADS = 128, FIRST_BARRIER = 4;
    const int thread = static_cast<int>(threadIdx.x) % THREADS;
    const int barrier = FIRST_BARRIER + static_cast<int>(threadIdx.x) / THREADS;
    __syncwarp();  // the rows before have been read
    float* const own = &buffer.numbers[0][0];
#pragma unroll
    for (int k = 0; k < KEPT; ++k) {
      const int first = (k * Lanes::DOWN + Lanes::row()) * Lanes::COLUMNS;
      if (first >= COLUMNS) continue;
      store_vector(own + first + Lanes::column(), kept[k].means);
      store_vector(own + COLUMNS + first + Lanes::column(), kept[k].squares);
    }
    sync_warps(barrier, THREADS);
    const int warp = thread / 32, part_row = first_row - warp * MOMENT_ROWS;
    const int64_t part = part_row / PART_MOMENT_ROWS;
    const float* const first = own - warp * BUFFER;
    join_moments(problem.moments + (part * problem.moment_pitch + first_column) * MOMENT_WORDS,
                 static_cast<int>(problem.m) - part_row,
                 min(static_cast<int>(problem.n) - first_column, COLUMNS), first, first + COLUMNS,
                 BUFFER, thread, THREADS);
    sync_warps(barrier, THREADS);  // buffers are read
  }

 private:
  static constexpr int BUFFER = ROW_BUFFER_BYTES / 4;  // floats from one warp's to the next
};
