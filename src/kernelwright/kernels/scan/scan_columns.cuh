#pragma once
// Running totals along any dimension of operands of any strides: each lane of a warp has a column,
// or COLUMNS of them that are neighbours in memory, and each warp of a block some rows of a chunk.
// A config has
//   COLUMNS  columns of a lane; more than one only where every operand has them side by side
//   ITEMS    rows of a chunk that a thread has
//   WARPS    warps of a block

#include "scan.cuh"

template <class Config, class Problem>
struct ColumnScan {
  using Value = typename Problem::Value;
  using Part = typename Problem::Part;
  using Operation = typename Problem::Operation;
  static constexpr Running RUNNING = Problem::RUNNING;
  static constexpr int OPERANDS = Problem::OPERANDS;
  static constexpr int COLUMNS = Config::COLUMNS, ITEMS = Config::ITEMS, WARPS = Config::WARPS;
  static_assert(WARPS <= 32, "a block has at most 32 warps");
  static constexpr int THREADS = 32 * WARPS, CHUNK = ITEMS * WARPS;

  using Inputs = typename Problem::template BeforeVectors<COLUMNS>;
  // Totals of the warps, of two chunks, so that a barrier for each chunk is enough.
  using Shared = Part[2][WARPS][COLUMNS][32];
  using Total = RunningTotal<RUNNING, Value>;
  using Carry = Total[COLUMNS];

  const Problem& problem;
  // Offsets of the column's first element in memory.
  int64_t offsets[OPERANDS];
  // Rows of the column; none for lanes beyond the last column.
  int64_t length;

  // Rows are counted along the scan; where they lie in memory.
  __device__ __forceinline__ int64_t in_memory(int64_t row) const {
    return Operation::REVERSE ? problem.length - 1 - row : row;
  }

  template <class T, int OPERAND>
  __device__ __forceinline__ Vector<T, COLUMNS> load(int64_t row) const {
    const T* address = reinterpret_cast<const T*>(problem.data[OPERAND]) + offsets[OPERAND] +
                       in_memory(row) * problem.steps[OPERAND];
    if (COLUMNS == 1 || problem.row_strides[problem.row_rank - 1][OPERAND] == 1) {
      return load_constant_vector<COLUMNS>(address);
    }
    const T value = load_constant(address);
    Vector<T, COLUMNS> repeated;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) repeated.element[c] = value;
    return repeated;
  }

  template <int FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, COLUMNS>...>& inputs, int64_t row,
                                           std::index_sequence<AT...>) const {
    ((get<AT>(inputs) = load<Ts, FIRST + static_cast<int>(AT)>(row)), ...);
  }

  __device__ __forceinline__ void load_chunk(Inputs (&inputs)[ITEMS], int64_t first) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (first + i < length) {
        load_all<1>(inputs[i], first + i, typename Problem::BeforeIndices());
      }
    }
  }

  __device__ __forceinline__ int64_t element(int64_t row) const {
    return offsets[0] + in_memory(row) * problem.steps[0];
  }

  // Running totals of this thread's rows of a chunk; returns with those of all its rows in `sum`.
  __device__ __forceinline__ void accumulate(Part (&values)[ITEMS][COLUMNS], Part (&sum)[COLUMNS],
                                             const Inputs (&inputs)[ITEMS], int64_t first) const {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sum[c] = neutral_total<RUNNING, Part>();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (first + i < length) {
        Value read[COLUMNS];
        problem.template accumulated<COLUMNS>(read, element(first + i), inputs[i],
                                              typename Problem::BeforeIndices());
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          const Part before = sum[c];
          sum[c] = combine<RUNNING>(before, static_cast<Part>(read[c]));
          values[i][c] = Operation::EXCLUSIVE ? before : sum[c];
        }
      }
    }
  }

  // From the totals of the block's warps: what comes before this one, to `start` and `before`, and
  // all of them to `carry`. A product grows warp by warp, so that it stays what it has become.
  __device__ __forceinline__ static void share(Carry& start, Part (&before)[COLUMNS], Carry& carry,
                                               const Part (&sum)[COLUMNS],
                                               Part (&totals)[WARPS][COLUMNS][32], int warp,
                                               int lane) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) totals[warp][c][lane] = sum[c];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      start[c] = carry[c];
      before[c] = neutral_total<RUNNING, Part>();
      Part together = before[c];
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const Part total = totals[w][c][lane];
        if constexpr (Total::IS_PRODUCT) {
          if (w == warp) start[c] = carry[c];
          carry[c].add(total);
        } else {
          if (w == warp) before[c] = together;
          together = combine<RUNNING>(together, total);
        }
      }
      if constexpr (!Total::IS_PRODUCT) carry[c].add(together);
    }
  }

  __device__ __forceinline__ void write(const Part (&values)[ITEMS][COLUMNS],
                                        const Part (&before)[COLUMNS], const Carry& start,
                                        int64_t first) const {
    using Out = typename Problem::Out;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (first + i < length) {
        Value totals[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          totals[c] = start[c].with(combine<RUNNING>(before[c], values[i][c]));
        }
        typename Problem::template AfterVectors<COLUMNS> inputs;
        load_all<Problem::FIRST_AFTER>(inputs, first + i, typename Problem::AfterIndices());
        const int64_t at = element(first + i);
        store_vector(reinterpret_cast<Out*>(problem.data[0]) + at,
                     problem.template results<COLUMNS>(totals, at, inputs,
                                                       typename Problem::AfterIndices()));
      }
    }
  }

  __device__ __forceinline__ void run(Shared& shared, int& turn, int warp, int lane) const {
    Carry carry, start;
    Inputs now[ITEMS], next[ITEMS];
    load_chunk(now, warp * ITEMS);
    for (int64_t chunk = 0; chunk < problem.length; chunk += CHUNK) {
      const int64_t first = chunk + warp * ITEMS;
      load_chunk(next, first + CHUNK);
      Part values[ITEMS][COLUMNS], sum[COLUMNS], before[COLUMNS];
      accumulate(values, sum, now, first);
      share(start, before, carry, sum, shared[turn], warp, lane);
      turn ^= 1;
      write(values, before, start, first);
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) now[i] = next[i];
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void scan_columns(const Problem& problem) {
  wait_for_previous_kernel();
  using Scan = ColumnScan<Config, Problem>;
  __shared__ typename Scan::Shared shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * 32 * Scan::COLUMNS;
  int turn = 0;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * 32 * Scan::COLUMNS; first < problem.rows;
       first += stride) {
    const int64_t column = first + lane * Scan::COLUMNS;
    Scan scan{problem, {}, column < problem.rows ? problem.length : 0};
    if (column < problem.rows) problem.locate(column, scan.offsets);
    scan.run(shared, turn, warp, lane);
  }
}
