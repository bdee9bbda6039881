#pragma once
// Pooling with large windows, or windows far apart: each block has neighbouring columns of one row
// of the result. Each thread first pools a few columns of the source over all rows and planes of
// the window, in whole vectors, and puts what it gets into shared memory; then each thread pools a
// window along it. A config has
//   THREADS  threads of a block
//   VECTOR   elements of the source that one access moves
//   OUTPUTS  columns of the result that a block has
//   STEPS    rows of the source that a thread has in flight
//   REPEATED  a bit for each operand (the result is 0) of which one element is for all columns

#include "window.cuh"

template <class Config, class Problem>
struct WindowLines {
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Depth = typename Operation::Depth;
  using Height = typename Operation::Height;
  using Width = typename Operation::Width;
  static constexpr Pooling POOLING = Operation::POOLING;
  static constexpr int THREADS = Config::THREADS, VECTOR = Config::VECTOR;
  static constexpr int OUTPUTS = Config::OUTPUTS, STEPS = Config::STEPS;
  static constexpr int LINES = Depth::SIZE * Height::SIZE;
  static_assert(OUTPUTS * Width::STRIDE % VECTOR == 0, "every block starts at a whole vector");
  // The vectors of a block start LEAD elements before the first column's own position, a whole
  // number of vectors; OFFSET of them are in no window.
  static constexpr int LEAD = (Width::PADDING + VECTOR - 1) / VECTOR * VECTOR;
  static constexpr int OFFSET = LEAD - Width::PADDING;
  static constexpr int VECTORS =
      (OFFSET + (OUTPUTS - 1) * Width::STRIDE + Width::SPAN + VECTOR - 1) / VECTOR;
  static_assert(VECTORS * VECTOR * sizeof(Value) <= 48 * 1024, "a line fits into shared memory");

  template <class T>
  using Own = Vector<T, VECTOR>;
  using Inputs = typename Problem::template BeforePack<Own>;
  using Totals = Vector<Value, VECTOR>;

  const Problem& problem;
  int64_t offsets[Problem::OPERANDS];
  int64_t plane;
  // Of the result: its place along the pooled dimensions; of the source: its first vector's column.
  int depth, row, column;

  template <class T, int OPERAND>
  __device__ __forceinline__ Vector<T, VECTOR> load(int from_depth, int from_row, int at) const {
    const Extents& stride = problem.strides[OPERAND];
    const T* address = reinterpret_cast<const T*>(problem.data[OPERAND]) + offsets[OPERAND] +
                       from_depth * stride.depth + from_row * stride.height;
    constexpr bool IS_REPEATED = (Config::REPEATED >> OPERAND & 1) != 0;
    if constexpr (!IS_REPEATED) return load_constant_vector<VECTOR>(address + at);
    const T value = load_constant(address);
    Vector<T, VECTOR> repeated;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) repeated.element[i] = value;
    return repeated;
  }

  template <class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, VECTOR>...>& inputs, int from_depth,
                                           int from_row, int at, std::index_sequence<AT...>) const {
    ((get<AT>(inputs) = load<Ts, 1 + static_cast<int>(AT)>(from_depth, from_row, at)), ...);
  }

  template <size_t... AT>
  __device__ __forceinline__ Value pooled(int from_depth, int from_row, int at,
                                          const Inputs& inputs, int i,
                                          std::index_sequence<AT...>) const {
    const typename Problem::Place place{problem.plane_shape, plane, from_depth, from_row, at + i};
    return problem.operation.prologue(place, widen(get<AT>(inputs).element[i])...);
  }

  __device__ __forceinline__ int depth_of(int line) const {
    return depth * Depth::STRIDE - Depth::PADDING + line / Height::SIZE * Depth::DILATION;
  }
  __device__ __forceinline__ int row_of(int line) const {
    return row * Height::STRIDE - Height::PADDING + line % Height::SIZE * Height::DILATION;
  }
  __device__ __forceinline__ bool is_inside(int line) const {
    const int from_depth = depth_of(line), from_row = row_of(line);
    return line < LINES && from_depth >= 0 && from_depth < problem.source.depth && from_row >= 0 &&
           from_row < problem.source.height;
  }

  // What all rows of the window give to the columns of one vector.
  __device__ __forceinline__ Totals pool_lines(int at) const {
    Totals totals;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) totals.element[i] = neutral_pooled<POOLING, Value>();
    // A vector is wholly inside of the row or wholly outside.
    if (at < 0 || at >= problem.source.width) return totals;
#pragma unroll(LINES <= STEPS ? 1 : 2)
    for (int first = 0; first < LINES; first += STEPS) {
      Inputs inputs[STEPS];
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        if (is_inside(first + s)) {
          load_all(inputs[s], depth_of(first + s), row_of(first + s), at,
                   typename Problem::BeforeIndices());
        }
      }
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        if (is_inside(first + s)) {
#pragma unroll
          for (int i = 0; i < VECTOR; ++i) {
            totals.element[i] = pool<POOLING>(
                totals.element[i], pooled(depth_of(first + s), row_of(first + s), at, inputs[s], i,
                                          typename Problem::BeforeIndices()));
          }
        }
      }
    }
    return totals;
  }

  __device__ __forceinline__ void run(Value* line, int x) const {
#pragma unroll
    for (int v = 0; v < (VECTORS + THREADS - 1) / THREADS; ++v) {
      const int vector = v * THREADS + static_cast<int>(threadIdx.x);
      if (vector < VECTORS) {
        store_vector(line + vector * VECTOR, pool_lines(column + vector * VECTOR));
      }
    }
    __syncthreads();
    const Extents& stride = problem.strides[0];
    using Out = typename Problem::Out;
    Out* address = reinterpret_cast<Out*>(problem.data[0]) + offsets[0] + depth * stride.depth +
                   row * stride.height;
    for (int own = static_cast<int>(threadIdx.x); own < OUTPUTS; own += THREADS) {
      if (x + own >= problem.result.width) return;
      const Value* window = line + OFFSET + own * Width::STRIDE;
      Value total = window[0];
#pragma unroll 8
      for (int k = 1; k < Width::SIZE; ++k) {
        total = pool<POOLING>(total, window[k * Width::DILATION]);
      }
      const typename Problem::Place place{problem.plane_shape, plane, depth, row, x + own};
      address[x + own] = problem.result_at(offsets, place, total, typename Problem::AfterIndices());
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_lines(const Problem& problem) {
  wait_for_previous_kernel();
  using Lines = WindowLines<Config, Problem>;
  __shared__ __align__(16) typename Lines::Value line[Lines::VECTORS * Lines::VECTOR];
  const int64_t parts = (problem.result.width + Lines::OUTPUTS - 1) / Lines::OUTPUTS;
  int64_t part, row, depth;
  int64_t plane = divide(blockIdx.x, parts, part);
  plane = divide(plane, problem.result.height, row);
  plane = divide(plane, problem.result.depth, depth);
  const int x = static_cast<int>(part) * Lines::OUTPUTS;
  Lines lines{problem,
              {},
              plane,
              static_cast<int>(depth),
              static_cast<int>(row),
              x * Lines::Width::STRIDE - Lines::LEAD};
  problem.locate(plane, lines.offsets);
  lines.run(line, x);
}
