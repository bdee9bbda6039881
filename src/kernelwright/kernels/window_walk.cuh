#pragma once
// Pooling with small windows: each thread has a few neighbouring columns of the result and walks
// along the outermost pooled dimension. What a plane of the source (a row, where two dimensions are
// pooled) gives to these columns stays in registers until the last window that it is in; source
// rows come in whole vectors, of which neighbours in the block find most in the first-level cache.
// A config has
//   THREADS  threads of a block
//   VECTOR   elements of the source that one access moves
//   OUTPUTS  columns of the result that a thread has
//   STEPS    elements of the result along the walk that a thread has

#include <algorithm>

#include "divide.cuh"
#include "store_run.cuh"
#include "window.cuh"

template <class Config, class Problem>
struct WindowWalk {
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Place = typename Problem::Place;
  using Single = Axis<1, 1, 0, 1>;
  static constexpr bool IS_DEEP = Operation::DIMS == 3;
  using Walk = std::conditional_t<IS_DEEP, typename Operation::Depth, typename Operation::Height>;
  using Cross = std::conditional_t<IS_DEEP, typename Operation::Height, Single>;
  using Width = typename Operation::Width;
  static constexpr Pooling POOLING = Operation::POOLING;
  static constexpr int OPERANDS = Problem::OPERANDS;
  static constexpr int VECTOR = Config::VECTOR, OUTPUTS = Config::OUTPUTS;
  static constexpr int STEPS = Config::STEPS, THREADS = Config::THREADS;
  static_assert(OUTPUTS * Width::STRIDE % VECTOR == 0, "every thread starts at a whole vector");

  // The vectors that hold the windows of a thread's columns start LEAD elements before the first
  // column's own position, a whole number of vectors; OFFSET of them are in no window.
  static constexpr int LEAD = (Width::PADDING + VECTOR - 1) / VECTOR * VECTOR;
  static constexpr int OFFSET = LEAD - Width::PADDING;
  static constexpr int VECTORS =
      (OFFSET + (OUTPUTS - 1) * Width::STRIDE + Width::SPAN + VECTOR - 1) / VECTOR;
  // Planes of a step that the step before has not had.
  static constexpr int NEW = Walk::STRIDE < Walk::SPAN ? Walk::STRIDE : Walk::SPAN;

  static_assert(VECTORS <= 32 && Cross::SIZE <= 32, "a word has a bit for each vector of a row");

  // A row of an operand.
  template <class T>
  struct VectorRow {
    Vector<T, VECTOR> vectors[VECTORS];
  };
  using Inputs = typename Problem::template BeforePack<VectorRow>;
  using Totals = Value[OUTPUTS];

  // Whether some window takes what stands there in the vectors.
  __device__ static constexpr bool is_column_used(int element) {
    for (int x = 0; x < OUTPUTS; ++x) {
      const int from = element - OFFSET - x * Width::STRIDE;
      if (from >= 0 && from < Width::SPAN && from % Width::DILATION == 0) return true;
    }
    return false;
  }
  __device__ static constexpr bool is_vector_used(int vector) {
    for (int i = 0; i < VECTOR; ++i) {
      if (is_column_used(vector * VECTOR + i)) return true;
    }
    return false;
  }
  // Whether this step or a later one takes the plane that stands there in the window.
  __device__ static constexpr bool is_plane_used(int plane) {
    for (; plane >= 0; plane -= Walk::STRIDE) {
      if (plane % Walk::DILATION == 0) return true;
    }
    return false;
  }

  // Whether one element alone is used of a vector; which one, then.
  __device__ static constexpr bool is_single(int vector) {
    int used = 0;
    for (int i = 0; i < VECTOR; ++i) used += is_column_used(vector * VECTOR + i) ? 1 : 0;
    return used == 1;
  }
  __device__ static constexpr int single(int vector) {
    int i = 0;
    while (!is_column_used(vector * VECTOR + i)) ++i;
    return i;
  }

  const Problem& problem;
  int64_t offsets[OPERANDS];
  // The number of the plane among those that are not pooled; output row across the walk; column of
  // the first element of the vectors.
  int plane, cross, column;
  // Which vectors of a row of the source are inside of it (the others are outside), and which rows
  // of a plane.
  unsigned inside_vectors, inside_rows;

  // Finds out what is inside.
  __device__ __forceinline__ void look() {
    inside_vectors = inside_rows = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = column + v * VECTOR;
      if (at >= 0 && at < static_cast<int>(problem.source.width)) inside_vectors |= 1u << v;
    }
#pragma unroll
    for (int j = 0; j < Cross::SIZE; ++j) {
      const int at = across(j);
      if (at >= 0 && at < cross_size()) inside_rows |= 1u << j;
    }
  }

  __device__ __forceinline__ Place place(int walk, int row, int at) const {
    if constexpr (IS_DEEP) return {problem.plane_shape, plane, walk, row, at};
    return {problem.plane_shape, plane, 0, walk, at};
  }
  __device__ __forceinline__ int walk_size() const {
    return static_cast<int>(IS_DEEP ? problem.source.depth : problem.source.height);
  }
  __device__ __forceinline__ int cross_size() const {
    return IS_DEEP ? static_cast<int>(problem.source.height) : 1;
  }
  // Row of a plane of the source.
  __device__ __forceinline__ int across(int j) const {
    return cross * Cross::STRIDE - Cross::PADDING + j * Cross::DILATION;
  }

  template <class T, int OPERAND>
  __device__ __forceinline__ void load_row(Vector<T, VECTOR> (&vectors)[VECTORS], int walk,
                                           int row) const {
    const Extents& stride = problem.strides[OPERAND];
    const T* address = reinterpret_cast<const T*>(problem.data[OPERAND]) + offsets[OPERAND];
    address += IS_DEEP ? walk * stride.depth + row * stride.height : walk * stride.height;
    if (stride.width == 0) {
      const T value = load_constant(address);
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) vectors[v].element[i] = value;
      }
      return;
    }
    address += column;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      if (!is_vector_used(v) || (inside_vectors >> v & 1) == 0) continue;
      if (is_single(v)) {
        vectors[v].element[single(v)] = load_constant(address + v * VECTOR + single(v));
      } else {
        vectors[v] = load_constant_vector<VECTOR>(address + v * VECTOR);
      }
    }
  }

  template <class... Ts, size_t... AT>
  __device__ __forceinline__ void load_rows(Pack<VectorRow<Ts>...>& inputs, int walk, int row,
                                            std::index_sequence<AT...>) const {
    (load_row<Ts, 1 + static_cast<int>(AT)>(get<AT>(inputs).vectors, walk, row), ...);
  }

  template <size_t... AT>
  __device__ __forceinline__ Value pooled(const Place& at, const Inputs& inputs, int e,
                                          std::index_sequence<AT...>) const {
    return problem.operation.prologue(
        at, widen(get<AT>(inputs).vectors[e / VECTOR].element[e % VECTOR])...);
  }

  // All that a plane of the source gives is on its way before any of it is used.
  __device__ __forceinline__ void load_plane(Inputs (&inputs)[Cross::SIZE], int walk) const {
    if (walk < 0 || walk >= walk_size()) return;
#pragma unroll
    for (int j = 0; j < Cross::SIZE; ++j) {
      if ((inside_rows >> j & 1) != 0) {
        load_rows(inputs[j], walk, across(j), typename Problem::BeforeIndices());
      }
    }
  }

  // What one row of the source gives to each of the columns.
  __device__ __forceinline__ void pool_row(Totals& totals, const Inputs& inputs, int walk,
                                           int row) const {
    Value values[VECTORS * VECTOR];
#pragma unroll
    for (int e = 0; e < VECTORS * VECTOR; ++e) {
      if (is_column_used(e)) {
        values[e] =
            pooled(place(walk, row, column + e), inputs, e, typename Problem::BeforeIndices());
      }
    }
    constexpr unsigned ALL = static_cast<unsigned>((uint64_t{1} << VECTORS) - 1);
    if (inside_vectors != ALL) {
#pragma unroll
      for (int e = 0; e < VECTORS * VECTOR; ++e) {
        if (is_column_used(e) && (inside_vectors >> (e / VECTOR) & 1) == 0) {
          values[e] = neutral_pooled<POOLING, Value>();
        }
      }
    }
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
      Value total = values[OFFSET + x * Width::STRIDE];
#pragma unroll
      for (int k = 1; k < Width::SIZE; ++k) {
        total = pool<POOLING>(total, values[OFFSET + x * Width::STRIDE + k * Width::DILATION]);
      }
      totals[x] = pool<POOLING>(totals[x], total);
    }
  }

  __device__ __forceinline__ void pool_plane(Totals& totals, const Inputs (&inputs)[Cross::SIZE],
                                             int walk) const {
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) totals[x] = neutral_pooled<POOLING, Value>();
    if (walk < 0 || walk >= walk_size()) return;
#pragma unroll
    for (int j = 0; j < Cross::SIZE; ++j) {
      if ((inside_rows >> j & 1) != 0) pool_row(totals, inputs[j], walk, across(j));
    }
  }

  // The planes [BEGIN, END) of the window whose first plane is `first`.
  template <int BEGIN, int END>
  __device__ __forceinline__ void take(Totals (&window)[Walk::SPAN], int first) const {
    Inputs inputs[END - BEGIN][Cross::SIZE];
#pragma unroll
    for (int q = BEGIN; q < END; ++q) {
      if (is_plane_used(q)) load_plane(inputs[q - BEGIN], first + q);
    }
#pragma unroll
    for (int q = BEGIN; q < END; ++q) {
      if (is_plane_used(q)) pool_plane(window[q], inputs[q - BEGIN], first + q);
    }
  }

  __device__ __forceinline__ void write(const Totals& totals, int walk, int x,
                                        bool is_active) const {
    using Out = typename Problem::Out;
    Vector<Out, OUTPUTS> result;
    const int width = static_cast<int>(problem.result.width), count = is_active ? width - x : 0;
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
      if (Problem::AFTER == 0 || i < count) {
        result.element[i] = problem.result_at(offsets, place(walk, cross, x + i), totals[i],
                                              typename Problem::AfterIndices());
      }
    }
    const Extents& stride = problem.strides[0];
    Out* address = reinterpret_cast<Out*>(problem.data[0]) + offsets[0] + x +
                   (IS_DEEP ? walk * stride.depth + cross * stride.height : walk * stride.height);
    store_run(address, result, count, x > 0, x + OUTPUTS < width);
  }

  // The elements [begin, end) along the walk of the thread's columns, the first being `x`, in so
  // many steps: warps store together, so that all lanes take as many, whatever they have to do.
  __device__ __forceinline__ void run(int begin, int end, int steps, int x) const {
    Totals window[Walk::SPAN];
    constexpr int KEPT = Walk::SPAN - NEW;
    if constexpr (KEPT > 0) {
      Totals start[Walk::SPAN];
      if (begin < end) take<0, KEPT>(start, begin * Walk::STRIDE - Walk::PADDING);
#pragma unroll
      for (int q = 0; q < KEPT; ++q) copy(window[q + NEW], start[q]);
    }
    for (int step = 0; step < steps; ++step) {
      const int walk = begin + step;
      Totals totals;
      if (walk < end) {
#pragma unroll
        for (int q = 0; q < KEPT; ++q) copy(window[q], window[q + NEW]);
        take<KEPT, Walk::SPAN>(window, walk * Walk::STRIDE - Walk::PADDING);
        copy(totals, window[0]);
#pragma unroll
        for (int j = 1; j < Walk::SIZE; ++j) {
#pragma unroll
          for (int i = 0; i < OUTPUTS; ++i) {
            totals[i] = pool<POOLING>(totals[i], window[j * Walk::DILATION][i]);
          }
        }
      }
      write(totals, walk, x, walk < end);
    }
  }

  __device__ __forceinline__ static void copy(Totals& to, const Totals& from) {
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) to[i] = from[i];
  }
};

// The threads of a launch: groups of columns come first, then rows across the walk, segments of the
// walk, and planes.
template <class Config, class Problem_>
struct WalkParameters {
  using Problem = Problem_;
  using Walker = WindowWalk<Config, Problem>;

  Problem problem;
  Divisor groups, crosses, segments;
  // Of a segment.
  int steps;
  uint32_t count;

  // Whether every number that a thread computes with fits into 31 bits.
  static bool is_countable(const Problem& problem) {
    const Extents &source = problem.source, &result = problem.result;
    constexpr int64_t MOST = int64_t{1} << 30;
    const int64_t groups = result.width / Walker::OUTPUTS + 1;
    return problem.planes * result.depth * result.height * groups < MOST &&
           std::max({source.width, source.height, source.depth}) < MOST;
  }

  static WalkParameters describe(const Problem& problem) {
    const Extents& result = problem.result;
    const auto walk = static_cast<uint32_t>(Walker::IS_DEEP ? result.depth : result.height);
    const auto cross = static_cast<uint32_t>(Walker::IS_DEEP ? result.height : 1);
    const auto width = static_cast<uint32_t>(result.width);
    // Segments are as long as one another, but for the last.
    const uint32_t wanted = (walk + Config::STEPS - 1) / Config::STEPS;
    const uint32_t steps = (walk + wanted - 1) / wanted;
    const uint32_t segments = (walk + steps - 1) / steps;
    const uint32_t groups = (width + Walker::OUTPUTS - 1) / Walker::OUTPUTS;
    WalkParameters parameters = {problem, Divisor(groups), Divisor(cross), Divisor(segments)};
    parameters.steps = static_cast<int>(steps);
    parameters.count = static_cast<uint32_t>(problem.planes) * segments * cross * groups;
    return parameters;
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_walk(const WalkParameters<Config, Problem>& parameters) {
  using Walker = WindowWalk<Config, Problem>;
  const Problem& problem = parameters.problem;
  const int walk_size =
      static_cast<int>(Walker::IS_DEEP ? problem.result.depth : problem.result.height);
  const uint32_t own = blockIdx.x * Walker::THREADS + threadIdx.x;
  const uint32_t index = min(own, parameters.count - 1);
  const uint32_t row = parameters.groups.quotient(index);
  const uint32_t part = parameters.crosses.quotient(row);
  const uint32_t plane = parameters.segments.quotient(part);
  const int x = static_cast<int>(index - row * parameters.groups.value()) * Walker::OUTPUTS;
  const int cross = static_cast<int>(row - part * parameters.crosses.value());
  const int begin = static_cast<int>(part - plane * parameters.segments.value()) * parameters.steps;
  Walker walker{
      problem, {}, static_cast<int>(plane), cross, x * Walker::Width::STRIDE - Walker::LEAD};
  problem.locate(plane, walker.offsets);
  walker.look();
  // Threads beyond the last go along, because warps store together.
  const int end = own < parameters.count ? min(begin + parameters.steps, walk_size) : begin;
  walker.run(begin, end, parameters.steps, x);
}
