#pragma once
// Moments of the columns of a float32 result, in parts of its rows, beside the result: who
// normalises it begins with them (row_column_parts.cuh).

#include "vector.cuh"

constexpr int MOMENT_ROWS = 16;       // of a warp
constexpr int PART_MOMENT_ROWS = 64;  // of a part of a product's result: of four warps
constexpr int MOMENT_COLUMNS = 4;     // neighbours that a lane has
constexpr int MOMENT_WORDS = 3;  // of a column: what MomentsFold<float> calls a state (folds.cuh)

// Parts that so many rows have.
__host__ __device__ __forceinline__ int64_t moment_parts(int64_t rows) {
  return (rows + PART_MOMENT_ROWS - 1) / PART_MOMENT_ROWS;
}

// Of a lane's columns: means, and sums of squared distances from them.
struct LaneMoments {
  Vector<float, MOMENT_COLUMNS> means, squares;
};

// Those of a warp's rows, of which every ACROSS lanes have the columns: row lane / ACROSS of them,
// and those 32 / ACROSS apart. `rows`: as many of them as exist. All lanes have what it comes to.
template <int ACROSS, int COUNT>
__device__ __forceinline__ LaneMoments
moments_of_warp(int rows, const Vector<float, MOMENT_COLUMNS> (&runs)[COUNT]) {
  constexpr int DOWN = 32 / ACROSS;
  static_assert(DOWN * COUNT == MOMENT_ROWS, "a warp has so many rows");
  const int own_row = static_cast<int>(threadIdx.x) % 32 / ACROSS;
  const float share = 1.0f / static_cast<float>(rows < MOMENT_ROWS ? rows : MOMENT_ROWS);
  const auto added = [&](const auto& term) {
    Vector<float, MOMENT_COLUMNS> sums = {};
#pragma unroll
    for (int c = 0; c < MOMENT_COLUMNS; ++c) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        if (own_row + i * DOWN < rows) sums.element[c] += term(runs[i].element[c], c);
      }
#pragma unroll
      for (int distance = ACROSS; distance < 32; distance *= 2) {
        sums.element[c] += __shfl_xor_sync(0xffffffffu, sums.element[c], distance);
      }
    }
    return sums;
  };
  LaneMoments moments;
  moments.means = added([](float x, int) { return x; });
#pragma unroll
  for (float& mean : moments.means.element) mean *= share;
  moments.squares = added([&](float x, int c) {
    const float distance = x - moments.means.element[c];
    return distance * distance;
  });
  return moments;
}

// Stores the moments of a part, of which `rows` rows exist, and `columns` columns: every thread of
// `threads` those of some columns, from means[warp * pitch + column] and squares[...] of its warps.
// `to`: of the first column.
__device__ __forceinline__ void join_moments(float* to, int rows, int columns, const float* means,
                                             const float* squares, int pitch, int thread,
                                             int threads) {
  const auto count = static_cast<float>(rows < PART_MOMENT_ROWS ? rows : PART_MOMENT_ROWS);
  const float share = 1.0f / count;
  for (int column = thread; column < columns; column += threads) {
    const auto of_warps = [&](const auto& term) {
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < PART_MOMENT_ROWS / MOMENT_ROWS; ++warp) {
        const int there = min(max(rows - warp * MOMENT_ROWS, 0), MOMENT_ROWS);
        const int at = warp * pitch + column;
        if (there > 0) sum += term(static_cast<float>(there), means[at], squares[at]);
      }
      return sum;
    };
    const float mean =
        of_warps([](float there, float own_mean, float) { return there * own_mean; }) * share;
    const float squared = of_warps([&](float there, float own_mean, float own_squares) {
      const float distance = own_mean - mean;
      return own_squares + there * distance * distance;
    });
    to[column * MOMENT_WORDS] = count;
    to[column * MOMENT_WORDS + 1] = mean;
    to[column * MOMENT_WORDS + 2] = squared;
  }
}
