#pragma once
// From the fragments of a warp to the rows of the result.

#include "gemm_epilogue.cuh"
#include "gemm_sm90_tile.cuh"

// A warp's 16 rows by 32 columns: fragments go in, whole rows come out, so that a store fills cache
// lines. The pitch keeps both ways free of bank conflicts.
struct RowBuffer {
  static constexpr int ROWS = 16, COLUMNS = 32, PITCH = 40;
  float numbers[ROWS][PITCH];
};
static_assert(sizeof(RowBuffer) == ROW_BUFFER_BYTES, "Sm90Tile reserves as much");

// Calls visit(columns, buffer) for each 32 columns of a warp's sums, `columns` after the first.
// Of each 8 columns a lane has two neighbours, in row `row` and in the row 8 below (PTX ISA,
// "wgmma.mma_async", matrix D).
template <int COUNT, class Visit>
__device__ __forceinline__ void for_each_columns(const float (&sums)[COUNT], int row,
                                                 RowBuffer& buffer, const Visit& visit) {
  constexpr int OF_BUFFER = RowBuffer::COLUMNS / 2;  // registers
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int first = 0; first < COUNT; first += OF_BUFFER) {
    __syncwarp();  // the rows before have been read
#pragma unroll
    for (int i = 0; i < OF_BUFFER; i += 4) {
      const float* const pair = sums + first + i;
      float* const place = &buffer.numbers[row][column + 2 * i];
      store_vector(place, Vector<float, 2>{{pair[0], pair[1]}});
      store_vector(place + 8 * RowBuffer::PITCH, Vector<float, 2>{{pair[2], pair[3]}});
    }
    __syncwarp();
    visit(first * 2, buffer);
  }
}

// The same in runs: calls visit(i, columns, run) for run i of this lane, whose row is 4 i below
// lane / 8, and its first column 4 (lane % 8) + columns.
constexpr int RUN = 4;
constexpr int RUN_ROWS = 4;  // of a warp at one time
constexpr int RUNS = RowBuffer::ROWS / RUN_ROWS;
template <int COUNT, class Visit>
__device__ __forceinline__ void for_each_run(const float (&sums)[COUNT], int row, RowBuffer& buffer,
                                             const Visit& visit) {
  const int lane = threadIdx.x % 32;
  for_each_columns(sums, row, buffer, [&](int columns, const RowBuffer& rows) {
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      visit(i, columns, load_vector<RUN>(&rows.numbers[lane / 8 + i * RUN_ROWS][lane % 8 * RUN]));
    }
  });
}

// This slice's sums, for the last kernel to add.
template <class Problem, int COUNT>
__device__ __forceinline__ void store_partials(const Sm90Parameters<Problem>& p,
                                               const Sm90Work& work, int first_row, int row,
                                               const float (&sums)[COUNT], RowBuffer& buffer) {
  const int lane = threadIdx.x % 32;
  const int own_row = first_row + lane / 8;
  const int column = work.column + lane % 8 * RUN;
  const int64_t above = (work.slice * p.problem.batches + work.batch) * p.problem.m + own_row;
  float* const part = p.partials + above * p.partial_pitch + column;
  for_each_run(sums, row, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
    if (own_row + i * RUN_ROWS < p.problem.m && column + columns < p.partial_pitch) {
      store_vector(part + i * RUN_ROWS * p.partial_pitch + columns, run);
    }
  });
}

// The result of a warp's rows from `first_row` on; `row` is this lane's among them.
template <class Problem, int COUNT>
__device__ __forceinline__ void store_results(const Sm90Parameters<Problem>& p,
                                              const Sm90Work& work, int first_row, int row,
                                              const float (&sums)[COUNT], RowBuffer& buffer) {
  const Problem& problem = p.problem;
  const MatrixOperand& out = problem.operands[Problem::OUT];
  const int lane = threadIdx.x % 32;
  int64_t index[MAX_BATCH_RANK];
  split_batch(problem, work.batch, index);
  const GemmEpilogue epilogue(problem, index);
  const int own_row = first_row + lane / 8;
  const int own_column = work.column + lane % 8 * RUN;
  const bool inside =
      first_row + RowBuffer::ROWS <= problem.m && work.column + COUNT * 2 <= problem.n;
  if (out.has_column_vectors && inside) {
    const auto place = epilogue.place(own_row, own_column);
    for_each_run(sums, row, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
      epilogue.apply_inside(run, place, i * RUN_ROWS, columns);
    });
  } else if (out.has_column_vectors) {
    for_each_run(sums, row, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
      epilogue.apply(run, own_row + i * RUN_ROWS, own_column + columns);
    });
  } else {
    // Lanes side by side where the result lies side by side.
    const bool along_rows = out.column_stride > out.row_stride;
    for_each_columns(sums, row, buffer, [&](int columns, const RowBuffer& rows) {
#pragma unroll 4
      for (int i = 0; i < RowBuffer::ROWS; ++i) {
        const int r = along_rows ? lane % RowBuffer::ROWS : i;
        const int c = along_rows ? lane / RowBuffer::ROWS + 2 * i : lane;
        epilogue.apply(Vector<float, 1>{{rows.numbers[r][c]}}, first_row + r,
                       work.column + columns + c);
      }
    });
  }
}
