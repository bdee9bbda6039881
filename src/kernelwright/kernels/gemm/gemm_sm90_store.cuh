#pragma once
// From the fragments of a warp to the rows of the result: by asynchronous copies of all its columns
// where shared memory has room for them (store_buffered), or 32 columns at a time.

#include "gemm_epilogue.cuh"
#include "gemm_sm90_tile.cuh"

// Calls visit(registers) with those of COLUMNS columns from `columns` of part `part` on. Registers
// have no numbers at run time: there is a branch for each place, and what follows is there once.
template <int COLUMNS, int PARTS, int COUNT, class Visit>
__device__ __forceinline__ void visit_columns(const float (&sums)[PARTS][COUNT], int part,
                                              int columns, const Visit& visit) {
#pragma unroll
  for (int of = 0; of < PARTS; ++of) {
#pragma unroll
    for (int first = 0; first < COUNT; first += COLUMNS / 2) {
      if (part == of && columns == first * 2) visit(sums[of] + first);
    }
  }
}

// A warp's 16 rows by 32 columns: fragments go in, whole rows come out, so that a store fills cache
// lines. The pitch keeps both ways free of bank conflicts.
struct RowBuffer {
  static constexpr int ROWS = 16, COLUMNS = 32, PITCH = 40;
  float numbers[ROWS][PITCH];

  // A lane's registers of 32 columns: of each 8 columns it has two neighbours, in row `row` and in
  // the row 8 below (PTX ISA, "wgmma.mma_async", matrix D). Of fewer columns, so many registers.
  __device__ __forceinline__ void take(const float* sums, int row, int count = COLUMNS / 2) {
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < count; i += 4) {
      float* const place = &numbers[row][column + 2 * i];
      store_vector(place, Vector<float, 2>{{sums[i], sums[i + 1]}});
      store_vector(place + 8 * PITCH, Vector<float, 2>{{sums[i + 2], sums[i + 3]}});
    }
  }
  // The same from column `columns` of part `part` on.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ void take_from(const float (&sums)[PARTS][COUNT], int part,
                                            int columns, int row) {
    visit_columns<COLUMNS>(sums, part, columns, [&](const float* registers) {
      take(registers, row, min(COUNT, COLUMNS / 2));
    });
  }
};
static_assert(sizeof(RowBuffer) == ROW_BUFFER_BYTES, "Sm90Tile reserves as much");

// Calls visit(columns, buffer) for each 32 columns of a warp's sums, `columns` after the first;
// `row` is the lane's.
template <int COUNT, class Visit>
__device__ __forceinline__ void for_each_columns(const float (&sums)[COUNT], int row,
                                                 RowBuffer& buffer, const Visit& visit) {
  constexpr int OF_BUFFER = RowBuffer::COLUMNS / 2;  // registers
#pragma unroll
  for (int first = 0; first < COUNT; first += OF_BUFFER) {
    __syncwarp();  // the rows before have been read
    buffer.take(sums + first, row, min(COUNT, OF_BUFFER));
    __syncwarp();
    visit(first * 2, buffer);
  }
}

// The same where visit is long: its code is there once, and stays in the instruction cache.
template <int COUNT, class Visit>
__device__ __forceinline__ void for_each_columns_in_turn(const float (&sums)[COUNT], int row,
                                                         RowBuffer& buffer, const Visit& visit) {
  const auto& parts = reinterpret_cast<const float (&)[1][COUNT]>(sums);
#pragma unroll 1
  for (int columns = 0; columns < COUNT * 2; columns += RowBuffer::COLUMNS) {
    __syncwarp();  // the rows before have been read
    buffer.take_from(parts, 0, columns, row);
    __syncwarp();
    visit(columns, buffer);
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
  // Of fewer columns there are runs for some lanes alone.
  const bool has_runs = COUNT * 2 >= RowBuffer::COLUMNS || lane % 8 * RUN < COUNT * 2;
  for_each_columns(sums, row, buffer, [&](int columns, const RowBuffer& rows) {
    if (!has_runs) return;
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
  const int lane = threadIdx.x % 32;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(work.batch);
  const int own_row = first_row + lane / 8;
  const int own_column = work.column + lane % 8 * RUN;
  const bool inside =
      ANY_EDGES && first_row + RowBuffer::ROWS <= problem.m && work.column + COUNT * 2 <= problem.n;
  if (!ANY_EDGES || (inside && epilogue.has_vectors())) {
    const auto place = epilogue.place(own_row, own_column);
    for_each_run(sums, row, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
      epilogue.store_at(run, place, i * RUN_ROWS, columns);
    });
    return;
  }
  const MatrixOperand& out = problem.operands[Problem::OUT];
  if (out.has_column_vectors) {
    for_each_run(sums, row, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
      epilogue.apply(run, own_row + i * RUN_ROWS, own_column + columns);
    });
    return;
  }
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

// Where a unit's results, or its sums, go, from its first element on.
template <class Config, class Problem>
struct StoredPlace {
  using Result = std::conditional_t<(Config::SLICES > 1), float, typename Problem::Result>;

  Result* first;
  int64_t row_stride, column_stride;
  int rows, columns;  // that exist
  bool has_vectors;   // runs of 4 columns are aligned, and whole

  __device__ __forceinline__ static StoredPlace of(const Sm90Parameters<Problem>& p,
                                                   const Sm90Work& work) {
    const Problem& problem = p.problem;
    const MatrixOperand& out = problem.operands[Problem::OUT];
    int64_t index[MAX_BATCH_RANK];
    split_batch(problem, work.batch, index);
    return {batch_base<Result>(problem, Problem::OUT, index) + work.row * out.row_stride +
                work.column * out.column_stride,
            out.row_stride,
            out.column_stride,
            static_cast<int>(problem.m) - work.row,
            static_cast<int>(problem.n) - work.column,
            out.has_column_vectors};
  }
};

// A warp's 16 rows of a tile in shared memory, swizzled as the tensor memory accelerator has it:
// fragments meet in two banks at most, in none where store_buffered changes their order.
template <int COLUMNS>
struct RowStrip {
  static constexpr int ROWS = 16;

  unsigned char* bytes;

  // Of an element, in bytes.
  __device__ __forceinline__ static int offset(int row, int column) {
    const int plain = (row * COLUMNS + column) * 4;
    return plain ^ (plain >> 7 & 7) << 4;
  }
  // The same `columns` further, a multiple of 8, from one of the first 8 columns, or ahead of the
  // second 8.
  __device__ __forceinline__ static int further(int offset, int columns) {
    const int block = columns / 32, in_block = columns % 32;
    return (offset ^ in_block * 4 ^ block << 4) + block * 128;
  }

  template <class T>
  __device__ __forceinline__ T* at(int offset) const {
    return reinterpret_cast<T*>(bytes + offset);
  }
};

// Writes a warp's rows of the strip, from row `first_row` of the unit on, to the result: a row
// after the other.
template <int COLUMNS, class Place>
__device__ __forceinline__ void copy_rows(const RowStrip<COLUMNS>& strip, const Place& to,
                                          int first_row) {
  using Result = typename Place::Result;
  constexpr int LANES = COLUMNS / RUN;  // of a row
  const int lane = threadIdx.x % 32;
  const int rows = min(to.rows - first_row, strip.ROWS), columns = min(to.columns, COLUMNS);
  Result* const first = to.first + first_row * to.row_stride;
  if (to.has_vectors) {
    const int column = lane % LANES * RUN;
    for (int r = lane / LANES; r < rows; r += 32 / LANES) {
      if (column < columns) {
        store_vector(first + r * to.row_stride + column,
                     load_vector<RUN>(strip.template at<const Result>(strip.offset(r, column))));
      }
    }
    return;
  }
  // Lanes side by side where the result lies side by side.
  const bool along_rows = to.column_stride > to.row_stride;
  const int inner = along_rows ? rows : columns;
  for (int i = lane; i < rows * columns; i += 32) {
    const int outer = i / inner, in_inner = i - outer * inner;
    const int r = along_rows ? in_inner : outer, c = along_rows ? outer : in_inner;
    first[r * to.row_stride + c * to.column_stride] =
        *strip.template at<const Result>(strip.offset(r, c));
  }
}

// A warp's results, or this slice's sums for the last kernel to add, leave through its strip.
// `warp`: of those that multiply; `row`: this lane's among its rows, and that 8 below.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void store_buffered(const Sm90Parameters<Problem>& p,
                                               const Sm90Work& work, const Unscale& unscale,
                                               const float (&sums)[Tile::REGISTERS], int warp,
                                               int row, unsigned char* buffers) {
  using Place = StoredPlace<Config, Problem>;
  using Result = typename Place::Result;
  const RowStrip<Tile::BLOCK_N> strip{buffers + warp * Tile::STRIP_BYTES};
  const bool is_first = threadIdx.x % 32 == 0;
  const int own_column = threadIdx.x % 4 * 2;
  const int strip_row = warp * strip.ROWS;
  if (is_first) wait_bulk_stores_read<0>();
  __syncwarp();  // the rows before have been read
  // In strips of 128 columns, the rows of half a warp would meet in two banks each: every other
  // pair of rows stores its groups of 8 columns in the other order.
  const bool swaps = Tile::BLOCK_N == 128 && (row & 2) != 0;
  const int own = strip.offset(row, own_column ^ (swaps ? 8 : 0));
  const auto fill = [&](const auto& results) {
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; i += 8) {
#pragma unroll
      for (int below = 0; below < 16; below += 8) {
        const auto first = results(i + below / 4, below, i * 2);
        const auto second = results(i + below / 4 + 4, below, i * 2 + 8);
        Result* const target = strip.template at<Result>(strip.further(own, i * 2));
        Result* const other = strip.template at<Result>(strip.further(own, i * 2 + 8));
        store_vector(target + below * Tile::BLOCK_N, swaps ? second : first);
        store_vector(other + below * Tile::BLOCK_N, swaps ? first : second);
      }
    }
  };
  if constexpr (Config::SLICES > 1) {
    fill([&](int i, int, int) { return Vector<float, 2>{{sums[i], sums[i + 1]}}; });
  } else {
    const Problem& problem = p.problem;
    GemmEpilogue epilogue(problem);
    if constexpr (ANY_BATCHES) epilogue.select(work.batch);
    const int first_row = work.row + strip_row + row, first_column = work.column + own_column;
    const auto sum = [&](int i) {
      return Vector<float, 2>{{unscale(sums[i]), unscale(sums[i + 1])}};
    };
    const bool inside = epilogue.has_vectors() && work.row + Tile::BLOCK_M <= problem.m &&
                        work.column + Tile::BLOCK_N <= problem.n;
    if (inside) {
      const auto place = epilogue.place(first_row, first_column);
      fill([&](int i, int below, int columns) {
        return epilogue.results_at(sum(i), place, below, columns);
      });
    } else {
      fill([&](int i, int below, int columns) {
        return epilogue.results(sum(i), first_row + below, first_column + columns);
      });
    }
  }
  if (Config::SLICES > 1 || p.is_boxed) {
    constexpr int BLOCK = 32;  // columns, of a row of 128 bytes
    fence_shared_for_async();
    __syncwarp();
    if (is_first) {
      const int batches = static_cast<int>(p.problem.batches);
      const int product = Config::SLICES > 1 ? 0 : p.problem.product_of(work.batch);
      const int before = ANY_TOGETHER ? product * (batches / p.problem.together) : 0;
      store_box(&p.result_maps[product], strip.bytes, 0, work.column / BLOCK, work.row + strip_row,
                work.slice * batches + work.batch - before);
    }
  } else {
    __syncwarp();
    if constexpr (Config::SLICES == 1) copy_rows(strip, Place::of(p, work), strip_row);
  }
}
