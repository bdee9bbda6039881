#pragma once
// From the fragments of a warp to the rows of the result of 16-bit factors. A tile of these is
// multiplied in the time that a few waits for memory take. Rows may begin anywhere, as those of a
// language model's scores of 50,257 words: they are stored in aligned accesses all the same.

#include "gemm_sm90_store.cuh"

// A warp's rows of a tile that lies inside the result, from `place` on. What joins them is fetched
// for several columns at one time: a warp waits for each time.
template <class Epilogue, int COUNT>
__device__ __forceinline__ void store_inside(const Epilogue& epilogue,
                                             const typename Epilogue::Place& place,
                                             const float (&sums)[COUNT], int row,
                                             RowBuffer& buffer) {
  constexpr int OF_BUFFER = RowBuffer::COLUMNS / 2;  // registers
  constexpr int BYTES = RUNS * sizeof(typename Epilogue::template Joining<RUN>);
  constexpr int MOST_BYTES = 128;  // in registers
  constexpr int GROUP = 2 * BYTES > MOST_BYTES                      ? 1
                        : 4 * BYTES > MOST_BYTES || COUNT % 64 != 0 ? 2
                                                                    : 4;
  static_assert(COUNT % (GROUP * OF_BUFFER) == 0, "groups are whole");
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int first = 0; first < COUNT; first += GROUP * OF_BUFFER) {
    typename Epilogue::template Joining<RUN> joining[GROUP][RUNS];
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        joining[g][i] =
            epilogue.template load_inside<RUN>(place, i * RUN_ROWS, (first + g * OF_BUFFER) * 2);
      }
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
      __syncwarp();  // the rows before have been read
      buffer.take(sums + first + g * OF_BUFFER, row);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        epilogue.apply_inside(
            load_vector<RUN>(&buffer.numbers[lane / 8 + i * RUN_ROWS][lane % 8 * RUN]),
            joining[g][i], place, i * RUN_ROWS, (first + g * OF_BUFFER) * 2);
      }
    }
  }
}

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

// The 16-bit result of a warp's rows from `first_row` on, whose columns are neighbours in memory.
template <class Problem, class Epilogue, int COUNT>
__device__ __forceinline__ void store_shifted(const Problem& problem, const Epilogue& epilogue,
                                              typename Problem::Result* tile, int first_row,
                                              int first_column, int row, const float (&sums)[COUNT],
                                              ShiftedRows& buffer) {
  using Result = typename Problem::Result;
  static_assert(sizeof(ShiftedRows) <= sizeof(RowBuffer), "it takes its place");
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

// The result of a product of 16-bit factors, as store_results writes that of others.
template <class Problem, int COUNT>
__device__ __forceinline__ void store_direct(const Sm90Parameters<Problem>& p, const Sm90Work& work,
                                             int first_row, int row, const float (&sums)[COUNT],
                                             RowBuffer& buffer) {
  const Problem& problem = p.problem;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  const int lane = threadIdx.x % 32;
  const auto place = epilogue.place(first_row + lane / 8, work.column + lane % 8 * RUN);
  if (first_row + RowBuffer::ROWS <= problem.m && work.column + COUNT * 2 <= problem.n &&
      epilogue.has_vectors()) {
    store_inside(epilogue, place, sums, row, buffer);
    return;
  }
  if constexpr (sizeof(typename Problem::Result) == 2) {
    if (problem.operands[Problem::OUT].column_stride == 1) {
      store_shifted(problem, epilogue, epilogue.place(first_row, work.column).out, first_row,
                    work.column, row, sums, reinterpret_cast<ShiftedRows&>(buffer));
      return;
    }
  }
  store_results(p, work, first_row, row, sums, buffer);
}
