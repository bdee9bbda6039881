#pragma once
// Moments of the columns of a float32 result, in parts of its rows, beside the result: who
// normalises it begins with them (row_column_parts.cuh).

#include "vector.cuh"

constexpr int MOMENT_ROWS = 16;    // of a warp's part
constexpr int MOMENT_COLUMNS = 4;  // neighbours that a lane has
constexpr int MOMENT_WORDS = 3;    // of a column: what MomentsFold<float> calls a state (folds.cuh)

// The part of a warp, of which every ACROSS lanes have the columns: row lane / ACROSS of it, and
// those 32 / ACROSS apart. `to`: of this lane's columns; `rows`: from the part's first one on.
template <int ACROSS, int COUNT>
__device__ __forceinline__ void store_moments(float* to, int rows,
                                              const Vector<float, MOMENT_COLUMNS> (&runs)[COUNT],
                                              bool has_columns) {
  constexpr int DOWN = 32 / ACROSS;
  static_assert(DOWN * COUNT == MOMENT_ROWS, "a warp has the rows of a part");
  const int own_row = static_cast<int>(threadIdx.x) % 32 / ACROSS;
  const auto count = static_cast<float>(rows < MOMENT_ROWS ? rows : MOMENT_ROWS);
  const float share = 1.0f / count;
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
  const auto sums = added([](float x, int) { return x; });
  const auto squares = added([&](float x, int c) {
    const float distance = x - sums.element[c] * share;
    return distance * distance;
  });
  if (own_row > 0 || !has_columns) return;
  Vector<float, MOMENT_COLUMNS> words[MOMENT_WORDS];
#pragma unroll
  for (int c = 0; c < MOMENT_COLUMNS; ++c) {
    const float own[MOMENT_WORDS] = {count, sums.element[c] * share, squares.element[c]};
#pragma unroll
    for (int w = 0; w < MOMENT_WORDS; ++w) {
      const int at = c * MOMENT_WORDS + w;
      words[at / MOMENT_COLUMNS].element[at % MOMENT_COLUMNS] = own[w];
    }
  }
#pragma unroll
  for (int w = 0; w < MOMENT_WORDS; ++w) store_vector(to + w * MOMENT_COLUMNS, words[w]);
}
