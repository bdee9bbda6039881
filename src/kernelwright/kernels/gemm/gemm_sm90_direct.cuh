#pragma once
// From the fragments of a warp to the rows of the result of 16-bit factors. A tile of these is
// multiplied in the time that a few waits for memory take, or for code: most blocks store one tile
// or two, and instructions that run once come from memory, 100 ns for each 128 bytes. So nothing
// here is unrolled that needs no registers by number. Rows may begin anywhere, as those of a
// language model's scores of 50,257 words: they are stored in aligned accesses all the same.
//
// A config for such factors has
//   Masks  JoiningMasks of the operands that join the result

#include "gemm_sm90_store.cuh"

// A warp's rows of a part, from `place` on, in vectors. What each row has of its own is fetched
// while the 32 columns before are stored, where registers have room for both; what all rows share
// is in the cache. `rows` and `columns`, from the part's first ones on, are as many as exist.
template <class Masks, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_vectors(const Epilogue& epilogue,
                                              const typename Epilogue::Place& place, int rows,
                                              int columns, const float (&sums)[PARTS][COUNT],
                                              int part, int row, RowBuffer& buffer) {
  constexpr int COLUMNS = RowBuffer::COLUMNS;
  using Joining = typename Epilogue::template Joining<RUN, Masks>;
  constexpr int OWN_BYTES = RUNS * Epilogue::template own_bytes<RUN, Masks>();
  constexpr bool IS_AHEAD = 0 < OWN_BYTES && OWN_BYTES <= 64;
  const int lane = threadIdx.x % 32, own_row = lane / 8, own_column = lane % 8 * RUN;
  const int end = ANY_EDGES ? min(COUNT * 2, columns) : COUNT * 2;
  const bool has_rows = !ANY_EDGES || rows >= RowBuffer::ROWS;
  const auto has_columns = [&](int first) { return !ANY_EDGES || first + own_column < columns; };
  const auto exists = [&](int i) { return own_row + i * RUN_ROWS < rows; };
  Joining own[RUNS] = {}, next[RUNS] = {};
  const auto fetch = [&](Joining(&into)[RUNS], int first) {
    if (!has_columns(first)) return;
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      if (!has_rows && !exists(i)) continue;
      into[i] = epilogue.template fetch<RUN, Masks, false>(place, i * RUN_ROWS, first);
    }
  };
  const auto store = [&](const Joining& shared, int i, int first) {
    const auto run = load_vector<RUN>(&buffer.numbers[own_row + i * RUN_ROWS][own_column]);
    const auto joining = epilogue.template merged<Masks>(shared, own[i]);
    epilogue.apply_inside(run, joining, place, i * RUN_ROWS, first);
  };
  if (IS_AHEAD) fetch(next, 0);
#pragma unroll 1
  for (int first = 0; first < end; first += COLUMNS) {
    Joining shared = {};
    if (has_columns(first)) shared = epilogue.template fetch<RUN, Masks, true>(place, 0, first);
    if constexpr (IS_AHEAD) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) own[i] = next[i];
      if (first + COLUMNS < end) fetch(next, first + COLUMNS);
    } else if constexpr (OWN_BYTES > 0) {
      fetch(own, first);
    }
    __syncwarp();  // the rows before have been read
    buffer.take_from(sums, part, first, row);
    __syncwarp();
    if (!has_columns(first)) continue;
    // Without a test for each row, what all have in common is computed once.
    if (has_rows) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) store(shared, i, first);
    } else {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        if (exists(i)) store(shared, i, first);
      }
    }
  }
}

// Four 16-bit results of a row that begin `by` of them, fewer than four, before those of `run`, and
// follow those of `before`.
__device__ __forceinline__ uint2 shifted_run(uint2 before, uint2 run, int by) {
  const bool is_half = by >= 2;
  const unsigned bytes = by % 2 != 0 ? 0x5432 : 0x7654;
  const unsigned first = is_half ? before.x : before.y, second = is_half ? before.y : run.x;
  return make_uint2(__byte_perm(first, second, bytes),
                    __byte_perm(second, is_half ? run.x : run.y, bytes));
}

// Stores those of four 16-bit results, from an aligned place on, whose columns from `column` on
// exist: all of them at once, where a uint2 was stored in two halves.
template <class T>
__device__ __forceinline__ void store_existing(T* to, uint2 run, int column, int columns) {
  const uint64_t bits = static_cast<uint64_t>(run.y) << 32 | run.x;
  if (column >= 0 && column + RUN <= columns) {
    *reinterpret_cast<uint64_t*>(to) = bits;
    return;
  }
#pragma unroll 1
  for (int i = max(0, -column); i < min(RUN, columns - column); ++i) {
    reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(bits >> 16 * i);
  }
}

// The 16-bit result of a warp's rows from `first_row` on, some of which exist, and whose columns
// are neighbours in memory. `tile`: of the first row and column. A row is stored in aligned runs of
// its own: lanes get what is missing from those before them, the first one from the last one 32
// columns ago. So the last columns are those of one more round.
template <class Problem, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_shifted(const Problem& problem, const Epilogue& epilogue,
                                              typename Problem::Result* tile, int first_row,
                                              int first_column, const float (&sums)[PARTS][COUNT],
                                              int part, int row, RowBuffer& buffer) {
  using Result = typename Problem::Result;
  constexpr int LANES = RowBuffer::COLUMNS / RUN;  // of a row
  const int lane = threadIdx.x % 32, own_row = lane / LANES, own_column = lane % LANES * RUN;
  const int lane_before = lane / LANES * LANES + (lane + LANES - 1) % LANES;
  const int rows = static_cast<int>(problem.m) - first_row;
  const int columns = min(COUNT * 2, static_cast<int>(problem.n) - first_column);
  const int64_t pitch = problem.operands[Problem::OUT].row_stride;
  uint2 runs[RUNS], before[RUNS];
#pragma unroll
  for (int i = 0; i < RUNS; ++i) runs[i] = {};
#pragma unroll 1
  for (int first = 0; first <= COUNT * 2; first += RowBuffer::COLUMNS) {
    __syncwarp();  // the rows before have been read
    buffer.take_from(sums, part, first, row);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      const int of_warp = own_row + i * RUN_ROWS;
      const auto results = epilogue.results(load_vector<RUN>(&buffer.numbers[of_warp][own_column]),
                                            first_row + of_warp, first_column + first + own_column);
      const uint2 ago = runs[i];
      runs[i] = reinterpret_cast<const uint2&>(results);
      const uint2 sent = lane % LANES == LANES - 1 ? ago : runs[i];
      before[i] = make_uint2(__shfl_sync(0xffffffffu, sent.x, lane_before),
                             __shfl_sync(0xffffffffu, sent.y, lane_before));
    }
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      const int of_warp = own_row + i * RUN_ROWS;
      Result* const to = tile + of_warp * pitch + first + own_column;
      const int by = static_cast<unsigned>(reinterpret_cast<uintptr_t>(to)) / sizeof(Result) % RUN;
      if (of_warp < rows) {
        store_existing(to - by, shifted_run(before[i], runs[i], by), first + own_column - by,
                       columns);
      }
    }
  }
}

// The same of any results, in any strides.
template <class Problem, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_anywhere(const Problem& problem, const Epilogue& epilogue,
                                               int first_row, int first_column,
                                               const float (&sums)[PARTS][COUNT], int part, int row,
                                               RowBuffer& buffer) {
  const MatrixOperand& out = problem.operands[Problem::OUT];
  const int lane = threadIdx.x % 32;
  // Lanes side by side where the result lies side by side.
  const bool along_rows = out.column_stride > out.row_stride;
#pragma unroll 1
  for (int columns = 0; columns < COUNT * 2; columns += RowBuffer::COLUMNS) {
    __syncwarp();  // the rows before have been read
    buffer.take_from(sums, part, columns, row);
    __syncwarp();
    if (out.has_column_vectors) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        const int r = lane / 8 + i * RUN_ROWS, c = lane % 8 * RUN;
        epilogue.apply(load_vector<RUN>(&buffer.numbers[r][c]), first_row + r,
                       first_column + columns + c);
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < RowBuffer::ROWS; ++i) {
        const int r = along_rows ? lane % RowBuffer::ROWS : i;
        const int c = along_rows ? lane / RowBuffer::ROWS + 2 * i : lane;
        epilogue.apply(Vector<float, 1>{{buffer.numbers[r][c]}}, first_row + r,
                       first_column + columns + c);
      }
    }
  }
}

// Asks the L2 for what joins a warp's rows of a unit, while they are multiplied: 64 columns at a
// time. `first_row`: of the first of PARTS, 64 rows apart.
template <int PARTS, int COLUMNS, class Problem>
__device__ __forceinline__ void ask_for_direct(const Sm90Parameters<Problem>& p,
                                               const Sm90Work& work, int first_row) {
  constexpr int STEP = 64, LANES = (COLUMNS + STEP - 1) / STEP;
  const Problem& problem = p.problem;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  const int lane = threadIdx.x % 32, column = work.column + lane % LANES * STEP;
#pragma unroll 1
  for (int i = lane / LANES; i < PARTS * RowBuffer::ROWS; i += 32 / LANES) {
    const int row = first_row + i / RowBuffer::ROWS * 64 + i % RowBuffer::ROWS;
    if (lane < 32 / LANES * LANES && row < problem.m && column < problem.n) {
      epilogue.ask_for(row, column);
    }
  }
}

// The result of a product of 16-bit factors, as store_results writes that of others: of PARTS of 64
// rows, from `first_row` of this warp on.
template <class Config, class Problem, int PARTS, int COUNT>
__device__ __forceinline__ void store_direct(const Sm90Parameters<Problem>& p, const Sm90Work& work,
                                             int first_row, int row,
                                             const float (&sums)[PARTS][COUNT], RowBuffer& buffer) {
  const Problem& problem = p.problem;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  const int lane = threadIdx.x % 32;
  using Masks = typename Config::Masks;
  const bool has_vectors = !ANY_EDGES || epilogue.has_vectors();
  const int columns = static_cast<int>(problem.n) - work.column;
#pragma unroll 1
  for (int part = 0; part < PARTS; ++part, first_row += 64) {
    if (first_row >= problem.m) return;
    if (has_vectors) {
      const auto place = epilogue.place(first_row + lane / 8, work.column + lane % 8 * RUN);
      const int rows = static_cast<int>(problem.m) - first_row;
      store_vectors<Masks>(epilogue, place, rows, columns, sums, part, row, buffer);
      continue;
    }
    if constexpr (sizeof(typename Problem::Result) == 2) {
      if (problem.operands[Problem::OUT].column_stride == 1) {
        store_shifted(problem, epilogue, epilogue.place(first_row, work.column).out, first_row,
                      work.column, sums, part, row, buffer);
        continue;
      }
    }
    store_anywhere(problem, epilogue, first_row, work.column, sums, part, row, buffer);
  }
}
