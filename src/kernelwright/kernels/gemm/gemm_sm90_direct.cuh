#pragma once
// From the fragments of a warp to the rows of the result of factors as they are. A tile of these is
// multiplied in the time that a few waits for memory take, or for code: most blocks store one tile
// or two, and instructions that run once come from memory, 100 ns for each 128 bytes. So nothing
// here is unrolled that needs no registers by number. Rows may begin anywhere, as those of a
// language model's scores of 50,257 words: they are stored in aligned accesses all the same.
//
// A config for such factors has
//   Masks     JoiningMasks of the operands that join the result
//   IS_PLAIN  whether results are sums, rounded

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

// A warp's 16 rows by OF_COLUMNS columns of 16-bit results, and the 8 columns before them, in the
// room of its sums. Rows of the result may begin anywhere: each is stored in aligned vectors of its
// own, the last columns of which wait for the next.
template <int OF_COLUMNS, int OF_PITCH>
struct ShiftedRows {
  static constexpr int ROWS = RowBuffer::ROWS, COLUMNS = OF_COLUMNS, VECTOR = 8;
  static constexpr int LANES = COLUMNS / VECTOR;  // of a row
  static constexpr int WORDS = COLUMNS / 2, BEFORE = VECTOR / 2, PITCH = OF_PITCH;
  static constexpr int KEPT = PITCH - BEFORE;  // where no sums are
  unsigned words[ROWS][PITCH];

  // The last columns, once all have been stored, until the sums after them have been read.
  __device__ __forceinline__ void keep() { move(WORDS, KEPT); }
  __device__ __forceinline__ void bring_back() { move(KEPT, 0); }
  // Both, where results come with no sums in their room.
  __device__ __forceinline__ void move_on() { move(WORDS, 0); }

  // Sums as they are, rounded: see RowBuffer::take_from.
  template <class T, int PARTS, int COUNT>
  __device__ __forceinline__ void take_from(const float (&sums)[PARTS][COUNT], int part,
                                            int columns, int row) {
    const auto pair = [](float left, float right) {
      const Vector<T, 2> both = {{narrow<T>(left), narrow<T>(right)}};
      return reinterpret_cast<const unsigned&>(both);
    };
    const int own = BEFORE + threadIdx.x % 4;
    visit_columns<COLUMNS>(sums, part, columns, [&](const float* registers) {
#pragma unroll
      for (int i = 0; i < WORDS; i += 4) {
        words[row][own + i] = pair(registers[i], registers[i + 1]);
        words[row + 8][own + i] = pair(registers[i + 2], registers[i + 3]);
      }
    });
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

 private:
  __device__ __forceinline__ void move(int from, int to) {
#pragma unroll
    for (int i = threadIdx.x % 32; i < ROWS * BEFORE; i += 32) {
      words[i / BEFORE][to + i % BEFORE] = words[i / BEFORE][from + i % BEFORE];
    }
  }
};

// The 16-bit result of a warp's rows from `first_row` on, some of which exist, and whose columns
// are neighbours in memory. `tile`: of the first row and column.
template <class Config, class Problem, class Epilogue, int PARTS, int COUNT>
__device__ __forceinline__ void store_shifted(const Problem& problem, const Epilogue& epilogue,
                                              typename Problem::Result* tile, int first_row,
                                              int first_column, const float (&sums)[PARTS][COUNT],
                                              int part, int row, RowBuffer& buffer) {
  using Result = typename Problem::Result;
  // Of no more than sums twice as many columns, at a pitch with hardly a bank conflict.
  using PlainRows = ShiftedRows<(COUNT * 2 < 64 ? COUNT * 2 : 64), 37>;
  using OtherRows = ShiftedRows<RowBuffer::COLUMNS, RowBuffer::PITCH>;
  using Rows = std::conditional_t<Config::IS_PLAIN, PlainRows, OtherRows>;
  constexpr int VECTOR = Rows::VECTOR, LANES = Rows::LANES;
  constexpr int AT_ONCE = 32 / LANES;  // rows
  static_assert(sizeof(Rows) <= sizeof(RowBuffer), "results take the place of sums");
  auto& results = reinterpret_cast<Rows&>(buffer);
  const int lane = threadIdx.x % 32, own_row = lane / 8, own_column = lane % 8 * RUN;
  const int rows = min(static_cast<int>(problem.m) - first_row, Rows::ROWS);
  const int columns = min(COUNT * 2, static_cast<int>(problem.n) - first_column);
  const int64_t pitch = problem.operands[Problem::OUT].row_stride;
  const auto ahead_of_vector = [](const Result* to) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(Result) % VECTOR);
  };
#pragma unroll 1
  for (int first = 0; first < COUNT * 2; first += Rows::COLUMNS) {
    __syncwarp();  // the results before have been read
    if constexpr (Config::IS_PLAIN) {
      if (first > 0) {
        results.move_on();
        __syncwarp();
      }
      results.template take_from<Result>(sums, part, first, row);
    } else {
      if (first > 0) {
        results.keep();
        __syncwarp();
      }
      buffer.take_from(sums, part, first, row);
      __syncwarp();
      Vector<Result, RUN> runs[RUNS];
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        const int of_warp = own_row + i * RUN_ROWS;
        runs[i] = epilogue.results(load_vector<RUN>(&buffer.numbers[of_warp][own_column]),
                                   first_row + of_warp, first_column + first + own_column);
      }
      __syncwarp();  // the sums have been read
      if (first > 0) results.bring_back();
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        unsigned* const to = &results.words[own_row + i * RUN_ROWS][Rows::BEFORE + own_column / 2];
        *reinterpret_cast<uint2*>(to) = reinterpret_cast<const uint2&>(runs[i]);
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int r = lane / LANES; r < rows; r += AT_ONCE) {
      Result* const to = tile + r * pitch + first;
      const int column = lane % LANES * VECTOR - ahead_of_vector(to), in_tile = first + column;
      if (in_tile >= 0 && in_tile + VECTOR <= columns) {
        *reinterpret_cast<uint4*>(to + column) = results.vector(r, column);
      } else {
#pragma unroll 1
        for (int i = max(0, -in_tile); i < min(VECTOR, columns - in_tile); ++i) {
          to[column + i] = results.template at<Result>(r, column + i);
        }
      }
    }
  }
  // The last columns of rows that begin between vectors.
  constexpr int END = Rows::COLUMNS;
#pragma unroll 1
  for (int r = lane / VECTOR; r < rows; r += 32 / VECTOR) {
    Result* const to = tile + r * pitch + COUNT * 2;
    const int column = lane % VECTOR - ahead_of_vector(to);
    if (column < 0 && COUNT * 2 + column < columns) {
      to[column] = results.template at<Result>(r, END + column);
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
      if (has_vectors) {
        store(nullptr);
        continue;
      }
      if constexpr (sizeof(typename Problem::Result) == 2 && Lanes::COLUMNS == 32) {
        if (problem.operands[Problem::OUT].column_stride == 1) {
          store_shifted<Config>(problem, epilogue, epilogue.place(first_row, work.column).out,
                                first_row, work.column, sums, part, row, buffer);
          continue;
        }
      }
      store_anywhere(problem, epilogue, first_row, work.column, sums, part, row, buffer);
    }
  }
}
