#pragma once
// Moments of the columns (column_moments.cuh) of the 64 rows that a warpgroup stores together, or
// of the 16 of each warp.

#include "column_moments.cuh"
#include "gemm_sm90_store.cuh"

constexpr int GROUP_MOMENT_ROWS = 64;

// Parts of so many rows.
template <int ROWS, class Problem>
__host__ __device__ __forceinline__ int64_t moment_parts(const Problem& problem) {
  return (problem.m + ROWS - 1) / ROWS;
}

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

  // Writes the moments of the warp's rows, or of those of the warpgroup where parts are of so many:
  // what all its warps keep, which call this together. The tile's column is `first_column`.
  template <class Problem>
  __device__ __forceinline__ void store(const Problem& problem, int first_row, int first_column,
                                        RowBuffer& buffer) const {
    const bool is_joined = problem.moment_parts == moment_parts<GROUP_MOMENT_ROWS>(problem);
    const int warp = static_cast<int>(threadIdx.x) % GROUP_THREADS / 32;
    __syncwarp();  // the rows before have been read
    float* const own = &buffer.numbers[0][0];
#pragma unroll
    for (int k = 0; k < KEPT; ++k) {
      const int first = (k * Lanes::DOWN + Lanes::row()) * Lanes::COLUMNS;
      if (first >= COLUMNS) continue;
      store_vector(own + first + Lanes::column(), kept[k].means);
      store_vector(own + COLUMNS + first + Lanes::column(), kept[k].squares);
    }
    const int left = static_cast<int>(problem.m) - first_row;
    const int columns = min(static_cast<int>(problem.n) - first_column, COLUMNS);
    if (is_joined) {
      sync_group();
      const int above = warp * MOMENT_ROWS, part = first_row / GROUP_MOMENT_ROWS;
      float* const to =
          problem.moments + (part * problem.moment_pitch + first_column) * MOMENT_WORDS;
      join<GROUP_MOMENT_ROWS>(to, left + above, columns, &buffer - warp,
                              threadIdx.x % GROUP_THREADS, GROUP_THREADS);
      sync_group();  // buffers are read
    } else if (left > 0) {
      __syncwarp();
      const int part = first_row / MOMENT_ROWS;
      float* const to =
          problem.moments + (part * problem.moment_pitch + first_column) * MOMENT_WORDS;
      join<MOMENT_ROWS>(to, left, columns, &buffer, threadIdx.x % 32, 32);
    }
  }

 private:
  static constexpr int GROUP_THREADS = 128;

  __device__ __forceinline__ static void sync_group() {
    constexpr int FIRST_BARRIER = 4;
    sync_warps(FIRST_BARRIER + static_cast<int>(threadIdx.x) / GROUP_THREADS, GROUP_THREADS);
  }

  // Of ROWS rows, of which `rows` exist, what the buffers of their warps have.
  template <int ROWS>
  __device__ __forceinline__ static void join(float* to, int rows, int columns,
                                              const RowBuffer* buffers, int thread, int threads) {
    const auto count = static_cast<float>(min(rows, ROWS));
    const float share = 1.0f / count;
    for (int column = thread; column < columns; column += threads) {
      const auto of_warps = [&](const auto& term) {
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < ROWS / MOMENT_ROWS; ++warp) {
          const int there = min(max(rows - warp * MOMENT_ROWS, 0), MOMENT_ROWS);
          const float* const found = &buffers[warp].numbers[0][0] + column;
          if (there > 0) sum += term(static_cast<float>(there), found[0], found[COLUMNS]);
        }
        return sum;
      };
      const float mean =
          of_warps([](float there, float own_mean, float) { return there * own_mean; }) * share;
      const float squares = of_warps([&](float there, float own_mean, float own_squares) {
        const float distance = own_mean - mean;
        return own_squares + there * distance * distance;
      });
      to[column * MOMENT_WORDS] = count;
      to[column * MOMENT_WORDS + 1] = mean;
      to[column * MOMENT_WORDS + 2] = squares;
    }
  }
};
