#pragma once
// Moments of the columns of a float32 result, in parts of its rows, beside the result: who
// normalises it begins with them (row_column_parts.cuh).

#include "vector.cuh"

constexpr int MOMENT_ROWS = 16;    // of a warp
constexpr int MOMENT_COLUMNS = 4;  // neighbours that a lane has
constexpr int MOMENT_WORDS = 3;    // of a column: what MomentsFold<float> calls a state (folds.cuh)

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

// The part of a warp; `to`: of this lane's columns.
template <int ACROSS, int COUNT>
__device__ __forceinline__ void store_moments(float* to, int rows,
                                              const Vector<float, MOMENT_COLUMNS> (&runs)[COUNT],
                                              bool has_columns) {
  const LaneMoments moments = moments_of_warp<ACROSS>(rows, runs);
  if (static_cast<int>(threadIdx.x) % 32 / ACROSS > 0 || !has_columns) return;
  const auto count = static_cast<float>(rows < MOMENT_ROWS ? rows : MOMENT_ROWS);
  Vector<float, MOMENT_COLUMNS> words[MOMENT_WORDS];
#pragma unroll
  for (int c = 0; c < MOMENT_COLUMNS; ++c) {
    const float own[MOMENT_WORDS] = {count, moments.means.element[c], moments.squares.element[c]};
#pragma unroll
    for (int w = 0; w < MOMENT_WORDS; ++w) {
      const int at = c * MOMENT_WORDS + w;
      words[at / MOMENT_COLUMNS].element[at % MOMENT_COLUMNS] = own[w];
    }
  }
#pragma unroll
  for (int w = 0; w < MOMENT_WORDS; ++w) store_vector(to + w * MOMENT_COLUMNS, words[w]);
}
