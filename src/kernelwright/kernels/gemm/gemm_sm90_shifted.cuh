#pragma once
// 16-bit results from the fragments of a warp to rows that begin anywhere, in aligned accesses: a
// language model's scores of 50,257 words are such rows.

#include "gemm_epilogue.cuh"
#include "gemm_sm90_tile.cuh"

// A warp's 16 rows by 64 columns of 16-bit results, and the 8 columns before them. Rows of the
// result may begin anywhere: each is stored in aligned vectors of its own, the last columns of
// which wait for the next 64. The pitch keeps both ways nearly free of bank conflicts.
struct ShiftedRows {
  static constexpr int ROWS = 16, COLUMNS = 64, VECTOR = 8;
  static constexpr int LANES = COLUMNS / VECTOR;  // of a row
  static constexpr int WORDS = COLUMNS / 2, BEFORE = VECTOR / 2, PITCH = 37;
  unsigned words[ROWS][PITCH];

  // The last columns become those before the next.
  __device__ __forceinline__ void move_on() {
#pragma unroll
    for (int i = threadIdx.x % 32; i < ROWS * BEFORE; i += 32) {
      words[i / BEFORE][i % BEFORE] = words[i / BEFORE][WORDS + i % BEFORE];
    }
  }

  // From `column` on, which may be odd, down to -VECTOR.
  __device__ __forceinline__ uint4 vector(int row, int column) const {
    const unsigned* const from = &words[row][(column + VECTOR) / 2];
    const bool is_odd = column % 2 != 0;
    const unsigned next = is_odd ? from[VECTOR / 2] : 0;
    const unsigned bytes = is_odd ? 0x5432 : 0x3210;
    return make_uint4(__byte_perm(from[0], from[1], bytes), __byte_perm(from[1], from[2], bytes),
                      __byte_perm(from[2], from[3], bytes), __byte_perm(from[3], next, bytes));
  }

  template <class T>
  __device__ __forceinline__ T at(int row, int column) const {
    return reinterpret_cast<const T*>(words[row])[column + VECTOR];
  }
};
static_assert(sizeof(ShiftedRows) <= ROW_BUFFER_BYTES, "it takes a RowBuffer's place");

// The 16-bit result of a warp's rows from `first_row` on, whose columns are neighbours in memory.
template <class Problem, class Epilogue, int COUNT>
__device__ __forceinline__ void store_shifted(const Problem& problem, const Epilogue& epilogue,
                                              typename Problem::Result* tile, int first_row,
                                              int first_column, int row, const float (&sums)[COUNT],
                                              ShiftedRows& buffer) {
  using Result = typename Problem::Result;
  constexpr int VECTOR = ShiftedRows::VECTOR, LANES = ShiftedRows::LANES;
  constexpr int AT_ONCE = 32 / LANES;                     // rows
  constexpr int OF_BUFFER = ShiftedRows::COLUMNS / 2;     // registers
  const int lane = threadIdx.x % 32, own = lane % 4 * 2;  // column of the fragment
  const int rows = static_cast<int>(problem.m) - first_row;
  const int columns = min(COUNT * 2, static_cast<int>(problem.n) - first_column);
  const int64_t pitch = problem.operands[Problem::OUT].row_stride;
#pragma unroll
  for (int first = 0; first < COUNT; first += OF_BUFFER) {
    __syncwarp();  // the rows before have been read
    if (first > 0) {
      buffer.move_on();
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < OF_BUFFER; i += 2) {
      const int below = i % 4 / 2 * 8, column = i / 4 * 8 + own;
      const Vector<float, 2> pair = {{sums[first + i], sums[first + i + 1]}};
      const auto results =
          epilogue.results(pair, first_row + row + below, first_column + first * 2 + column);
      buffer.words[row + below][ShiftedRows::BEFORE + column / 2] =
          reinterpret_cast<const unsigned&>(results);
    }
    __syncwarp();
#pragma unroll 1
    for (int r = lane / LANES; r < min(rows, ShiftedRows::ROWS); r += AT_ONCE) {
      Result* const to = tile + r * pitch + first * 2;
      const int ahead = static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(Result) % VECTOR);
      const int column = lane % LANES * VECTOR - ahead, in_tile = first * 2 + column;
      if (in_tile >= 0 && in_tile + VECTOR <= columns) {
        *reinterpret_cast<uint4*>(to + column) = buffer.vector(r, column);
      } else {
#pragma unroll 1
        for (int i = max(0, -in_tile); i < min(VECTOR, columns - in_tile); ++i) {
          to[column + i] = buffer.at<Result>(r, column + i);
        }
      }
    }
  }
  // The last columns of rows that begin between vectors.
  for (int r = lane / LANES; r < min(rows, ShiftedRows::ROWS); r += AT_ONCE) {
    Result* const to = tile + r * pitch + COUNT * 2;
    const int ahead = static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(Result) % VECTOR);
    const int column = lane % LANES - ahead;
    if (column < 0 && COUNT * 2 + column < columns) {
      to[column] = buffer.at<Result>(r, ShiftedRows::COLUMNS + column);
    }
  }
}
