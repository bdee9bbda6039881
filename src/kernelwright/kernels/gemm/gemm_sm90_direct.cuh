#pragma once
// From the fragments of a warp to the rows of the result of factors as they are. A tile of these is
// multiplied in the time that a few waits for memory take, or for code: most blocks store one tile
// or two, and instructions that run once come from memory, 100 ns for each 128 bytes. So nothing
// here is unrolled that needs no registers by number. Rows may begin anywhere, as those of a
// language model's scores of 50,257 words: they are stored in aligned accesses all the same.
//
// A config for such factors has
//   Masks  JoiningMasks of the operands that join the result

#include "gemm_sm90_lines.cuh"
#include "gemm_sm90_moments.cuh"
#include "gemm_sm90_store.cuh"

// Registers: with more, some of what a thread has are spilled.
template <class Config>
constexpr int MOST_HELD = direct_registers(Config::RESIDENT) - 56;

// A warp's rows of a part, from `place` on, in vectors. What an element has of its own is fetched
// while the 32 columns before are stored, where registers have room for both; what a row has is
// fetched once, and what all rows share is in the cache. `rows` and `columns`, from the part's
// first ones on, are as many as exist. `moments`: keeps those of the columns, where results are
// sums and anybody wants them.
template <class Config, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_vectors(const Epilogue& epilogue,
                                              const typename Epilogue::Place& place, int rows,
                                              int columns, const float (&sums)[PARTS][COUNT],
                                              int part, int row, RowBuffer& buffer,
                                              [[maybe_unused]] WarpMoments<COUNT>* moments) {
  using Masks = typename Config::Masks;
  using Lanes = RunLanes<COUNT>;
  constexpr int COLUMNS = Lanes::COLUMNS, RUNS = Lanes::RUNS, RUN_ROWS = Lanes::DOWN;
  using Joining = typename Epilogue::template Joining<RUN, Masks>;
  constexpr int OWN_BYTES = RUNS * Epilogue::template own_bytes<RUN, Masks>();
  // Of a thread: sums, what is fetched for these columns and for the next, and for all rows.
  constexpr int HELD = PARTS * COUNT + OWN_BYTES / 2 + static_cast<int>(sizeof(Joining)) / 4;
  constexpr bool IS_AHEAD = 0 < OWN_BYTES && OWN_BYTES <= 64 && HELD <= MOST_HELD<Config>;
  const int own_row = Lanes::row(), own_column = Lanes::column();
  const int end = ANY_EDGES ? min(COUNT * 2, columns) : COUNT * 2;
  const bool has_rows = !ANY_EDGES || rows >= RowBuffer::ROWS;
  const auto has_columns = [&](int first) { return !ANY_EDGES || first + own_column < columns; };
  const auto exists = [&](int i) { return own_row + i * RUN_ROWS < rows; };
  constexpr unsigned OWN = ~(Masks::BY_ROW | Masks::BY_COLUMN);
  Joining of_row[RUNS] = {}, own[RUNS] = {}, next[RUNS] = {};
#pragma unroll
  for (int i = 0; i < RUNS; ++i) {
    if (!has_rows && !exists(i)) continue;
    of_row[i] = epilogue.template fetch<RUN, Masks, Masks::BY_ROW>(place, i * RUN_ROWS, 0);
  }
  const auto fetch = [&](Joining(&into)[RUNS], int first) {
    if (!has_columns(first)) return;
#pragma unroll
    for (int i = 0; i < RUNS; ++i) {
      if (!has_rows && !exists(i)) continue;
      into[i] = epilogue.template fetch<RUN, Masks, OWN>(place, i * RUN_ROWS, first);
    }
  };
  const auto store = [&](const Joining& of_columns, int i, int first) {
    const auto run = load_vector<RUN>(&buffer.numbers[own_row + i * RUN_ROWS][own_column]);
    const auto joining = epilogue.template merged<Masks>(of_row[i], of_columns, own[i]);
    epilogue.apply_inside(run, joining, place, i * RUN_ROWS, first);
  };
  if (IS_AHEAD) fetch(next, 0);
#pragma unroll 1
  for (int first = 0; first < end; first += COLUMNS) {
    Joining of_columns = {};
    if (has_columns(first)) {
      of_columns = epilogue.template fetch<RUN, Masks, Masks::BY_COLUMN>(place, 0, first);
    }
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
    if constexpr (ANY_COLUMN_MOMENTS) {
      if (moments != nullptr) {
        Vector<float, RUN> runs[RUNS];
#pragma unroll
        for (int i = 0; i < RUNS; ++i) {
          runs[i] = load_vector<RUN>(&buffer.numbers[own_row + i * RUN_ROWS][own_column]);
        }
        moments->keep(first, moments_of_warp<Lanes::ACROSS>(rows, runs));
      }
    }
    if (!has_columns(first)) continue;
    // Without a test for each row, what all have in common is computed once.
    if (has_rows) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) store(of_columns, i, first);
    } else {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        if (exists(i)) store(of_columns, i, first);
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
  using Lanes = RunLanes<COUNT>;
  constexpr int COLUMNS = Lanes::COLUMNS, ROWS = RowBuffer::ROWS;
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
      for (int i = 0; i < Lanes::RUNS; ++i) {
        const int r = Lanes::row() + i * Lanes::DOWN, c = Lanes::column();
        epilogue.apply(load_vector<RUN>(&buffer.numbers[r][c]), first_row + r,
                       first_column + columns + c);
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < ROWS * COLUMNS / 32; ++i) {
        const int r = along_rows ? lane % ROWS : lane / COLUMNS + i * (32 / COLUMNS);
        const int c = along_rows ? lane / ROWS + i * (32 / ROWS) : lane % COLUMNS;
        epilogue.apply(Vector<float, 1>{{buffer.numbers[r][c]}}, first_row + r,
                       first_column + columns + c);
      }
    }
  }
}

// Asks the L2 for what joins a warp's rows of a unit, while they are multiplied: lines of 128
// bytes. `first_row`: of the first of PARTS, 64 rows apart.
template <int PARTS, int COLUMNS, class Problem>
__device__ __forceinline__ void ask_for_direct(const Sm90Parameters<Problem>& p,
                                               const Sm90Work& work, int first_row) {
  constexpr int STEP = 128 / sizeof(typename Problem::Result);
  constexpr int LANES = (COLUMNS + STEP - 1) / STEP;
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

// The best results of a warp's rows among the `columns` of a unit that exist, straight from the
// registers: of each 8 columns a lane has two, in row `row` and in the row 8 below. The loop's code
// is for 64 columns, which come down to the first registers in turn.
template <class Problem, class Epilogue, int COUNT>
__device__ __forceinline__ void keep_best(const Problem& problem, const Epilogue& epilogue,
                                          int first_row, int columns, const float (&sums)[COUNT],
                                          int row) {
  using Own = Kept<decltype(problem.epilogue)>;
  constexpr int AT_ONCE = COUNT < 32 ? COUNT : 32;
  const int upper = first_row + row, lower = upper + 8, last = static_cast<int>(problem.m) - 1;
  const auto of_upper = epilogue.row_joining(min(upper, last));
  const auto of_lower = epilogue.row_joining(min(lower, last));
  float rest[COUNT], best[2] = {Own::NONE, Own::NONE};
#pragma unroll
  for (int i = 0; i < COUNT; ++i) rest[i] = sums[i];
  int end = columns - threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int first = 0; first < COUNT; first += AT_ONCE, end -= 2 * AT_ONCE) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; i += 4) {
#pragma unroll
      for (int next = 0; next < 2; ++next) {
        const float own = Own::better(best[0], epilogue.row_result(rest[i + next], of_upper));
        const float below = Own::better(best[1], epilogue.row_result(rest[i + 2 + next], of_lower));
        const bool exists = 2 * i + next < end;
        best[0] = exists ? own : best[0];
        best[1] = exists ? below : best[1];
      }
    }
#pragma unroll
    for (int i = 0; i + AT_ONCE < COUNT; ++i) rest[i] = rest[i + AT_ONCE];
  }
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2) {
#pragma unroll
    for (float& found : best) {
      found = Own::better(found, __shfl_xor_sync(0xffffffffu, found, apart));
    }
  }
  if (threadIdx.x % 4 == 0) {
    if (upper <= last) epilogue.keep_in_row(upper, best[0]);
    if (lower <= last) epilogue.keep_in_row(lower, best[1]);
  }
}

// The result of a product of factors as they are, as store_results writes that of others: of PARTS
// of 64 rows, from `first_row` of this warp on.
template <class Config, class Problem, int PARTS, int COUNT>
__device__ __forceinline__ void store_direct(const Sm90Parameters<Problem>& p, const Sm90Work& work,
                                             int first_row, int row,
                                             const float (&sums)[PARTS][COUNT], RowBuffer& buffer) {
  const Problem& problem = p.problem;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  if constexpr (ANY_EXTREMES && Kept<decltype(problem.epilogue)>::IS_ONE) {
    static_assert((Config::Masks::BY_COLUMN | Config::Masks::BY_PLACE) == 0,
                  "what joins has one value for a row");
#pragma unroll
    for (int i = 0; i < PARTS; ++i, first_row += 64) {
      if (first_row < problem.m) {
        keep_best(problem, epilogue, first_row, static_cast<int>(problem.n) - work.column, sums[i],
                  row);
      }
    }
  } else {
    using Lanes = RunLanes<COUNT>;
    using Epilogue = decltype(epilogue);
    using Masks = typename Config::Masks;
    constexpr bool ARE_LINES =
        sizeof(typename Problem::Result) == 2 && 2 * COUNT % LINE_COLUMNS == 0;
    constexpr bool IN_LINES = ARE_LINES && Epilogue::template leaves_in_lines<Masks>();
    // Rows that begin anywhere are as fast without, where nothing joins each element.
    constexpr bool USES_VECTORS = !IN_LINES || Masks::BY_PLACE != 0;
    const bool has_vectors = !ANY_EDGES || epilogue.has_vectors();
    const int columns = static_cast<int>(problem.n) - work.column;
#pragma unroll 1
    for (int part = 0; part < PARTS; ++part, first_row += 64) {
      const int rows = static_cast<int>(problem.m) - first_row;
      const auto store = [&](WarpMoments<COUNT>* moments) {
        const auto place = epilogue.place(first_row + Lanes::row(), work.column + Lanes::column());
        store_vectors<Config>(epilogue, place, rows, columns, sums, part, row, buffer, moments);
      };
      if constexpr (ANY_COLUMN_MOMENTS) {
        if (problem.moments != nullptr) {
          if (rows + first_row % PART_MOMENT_ROWS <= 0) return;
          WarpMoments<COUNT> moments;
          if (rows > 0) store(&moments);
          moments.store(problem, first_row, work.column, buffer);
          continue;
        }
      }
      if (rows <= 0) return;
      if constexpr (IN_LINES) {
        if (epilogue.template has_lines<Masks>()) {
          store_lines<Config>(epilogue, first_row, work.column, rows, columns, sums, part, row,
                              buffer);
          continue;
        }
      }
      if constexpr (USES_VECTORS) {
        if (has_vectors) {
          store(nullptr);
          continue;
        }
      }
      if constexpr (ARE_LINES) {
        if (problem.operands[Problem::OUT].column_stride == 1) {
          store_shifted<Config>(problem, epilogue, first_row, work.column, sums, part, row, buffer);
          continue;
        }
      }
      store_anywhere(problem, epilogue, first_row, work.column, sums, part, row, buffer);
    }
  }
}
