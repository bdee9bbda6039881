#pragma once
// Moments of the columns of the 64 rows that a warpgroup stores together (column_moments.cuh).

#include "column_moments.cuh"
#include "gemm_sm90_store.cuh"

constexpr int GROUP_MOMENT_ROWS = 64;

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

  // Writes the moments of a part, of which `rows` rows exist, and `columns` columns: what all warps
  // of the warpgroup keep. `to`: of the first column.
  __device__ __forceinline__ void store(float* to, int rows, int columns, RowBuffer& buffer) const {
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
    const RowBuffer* const buffers = &buffer - thread / 32;
    const auto count = static_cast<float>(min(rows, GROUP_MOMENT_ROWS));
    const float share = 1.0f / count;
    for (int column = thread; column < min(columns, COLUMNS); column += THREADS) {
      const auto of_warps = [&](const auto& term) {
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < GROUP_MOMENT_ROWS / MOMENT_ROWS; ++warp) {
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
    sync_warps(barrier, THREADS);  // buffers are read
  }
};
