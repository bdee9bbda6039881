#pragma once
// Pooling with small windows: each thread has a few neighbouring columns of the result and walks
// along the outermost pooled dimension. What a plane of the source (a row, where two dimensions are
// pooled) gives to these columns stays in registers until the last window that it is in; source
// rows come in whole vectors, of which neighbours in the block find most in the first-level cache.
// Of products with weights, each row of a window has others: there the elements stay instead, and
// windows are in one or two dimensions.
// A config has
//   THREADS  threads of a block
//   VECTOR   elements of the source that one access moves
//   OUTPUTS  columns of the result that a thread has
//   STEPS    elements of the result along the walk that a thread has; where one dimension alone is
//            pooled there is no walk, and a thread has so many groups of columns, a warp's apart
//   PLANES   planes that a thread reads before it uses the first of them
//   AHEAD    so many steps before its use the second-level cache is asked for a plane; 0: never
//   REPEATED  a bit for each operand (the result is 0) of which one element is for all columns

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
  static constexpr bool IS_DEEP = Operation::DIMS == 3, IS_FLAT = Operation::DIMS == 1;
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

  static_assert(VECTORS <= 32 && Cross::SIZE <= 32, "a word has a bit for each of them");

  // A row of an operand.
  template <class T>
  struct VectorRow {
    Vector<T, VECTOR> vectors[VECTORS];
  };
  // Operands of which one element is for all columns.
  __host__ __device__ static constexpr bool is_repeated(int operand) {
    return (Config::REPEATED >> operand & 1) != 0;
  }
  using Inputs = typename Problem::template BeforePack<VectorRow>;
  using Totals = Value[OUTPUTS];
  static constexpr bool HAS_WEIGHTS = Problem::HAS_WEIGHTS;
  static_assert(!HAS_WEIGHTS || !IS_DEEP, "a plane of a window is a row");
  // What stays of a plane.
  using Kept = Value[HAS_WEIGHTS ? VECTORS * VECTOR : OUTPUTS];

  // Bit e: some window takes element e of the vectors.
  __host__ __device__ static constexpr uint64_t used_columns() {
    uint64_t used = 0;
    for (int x = 0; x < OUTPUTS; ++x) {
      for (int k = 0; k < Width::SIZE; ++k) {
        used |= uint64_t{1} << (OFFSET + x * Width::STRIDE + k * Width::DILATION);
      }
    }
    return used;
  }
  // Bit q: this step or a later one takes the plane that stands there in the window.
  __host__ __device__ static constexpr uint64_t used_planes() {
    uint64_t used = 0;
    for (int j = 0; j < Walk::SIZE; ++j) {
      for (int q = j * Walk::DILATION; q < Walk::SPAN; q += Walk::STRIDE) used |= uint64_t{1} << q;
    }
    return used;
  }
  static_assert(VECTORS * VECTOR <= 64 && Walk::SPAN <= 64, "a word has a bit for each of them");

  __device__ static constexpr bool is_column_used(int element) {
    constexpr uint64_t COLUMNS = used_columns();
    return (COLUMNS >> element & 1) != 0;
  }
  __device__ static constexpr bool is_plane_used(int plane) {
    constexpr uint64_t PLANES = used_planes();
    return (PLANES >> plane & 1) != 0;
  }
  // A bit for each element of a vector that is used.
  __device__ static constexpr unsigned used(int vector) {
    constexpr uint64_t COLUMNS = used_columns();
    return static_cast<unsigned>(COLUMNS >> (vector * VECTOR)) & ((1u << VECTOR) - 1);
  }
  static constexpr unsigned ALL_VECTORS = static_cast<unsigned>((uint64_t{1} << VECTORS) - 1);

  const Problem& problem;
  int64_t offsets[OPERANDS];
  // The number of the plane among those that are not pooled; output row across the walk; column of
  // the first element of the vectors.
  int plane, cross, column;
  // Where to read each vector: those outside of the row in another place, for nothing, because that
  // takes less time than to branch.
  int columns[VECTORS];
  // Which vectors of a row of the source are inside of it (the others are outside), and which rows
  // of a plane.
  unsigned inside_vectors, inside_rows;
  Value weights[HAS_WEIGHTS ? Walk::SIZE : 1][HAS_WEIGHTS ? Width::SIZE : 1];

  __device__ __forceinline__ void load_weights() {
    if constexpr (HAS_WEIGHTS) {
#pragma unroll
      for (int j = 0; j < Walk::SIZE; ++j) {
#pragma unroll
        for (int k = 0; k < Width::SIZE; ++k) weights[j][k] = problem.weight(offsets, 0, j, k);
      }
    }
  }

  // Starts at the columns of the result from `x` on.
  __device__ __forceinline__ void start(int x) {
    const int width = static_cast<int>(problem.source.width);
    column = x * Width::STRIDE - LEAD;
    inside_vectors = ALL_VECTORS;
    if (IS_FLAT && column >= 0 && column + VECTORS * VECTOR <= width) return;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = column + v * VECTOR;
      if (at < 0 || at >= width) inside_vectors &= ~(1u << v);
      columns[v] = clamp(at, 0, width - VECTOR);
    }
  }
  // Finds out which rows of a plane are inside.
  __device__ __forceinline__ void look_across() {
    inside_rows = 0;
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
    if constexpr (is_repeated(OPERAND)) {
      const T value = load_constant(address);
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) vectors[v].element[i] = value;
      }
      return;
    }
    if (IS_FLAT && inside_vectors == ALL_VECTORS) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) load_used(vectors[v], address + column + v * VECTOR, v);
    } else {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) load_used(vectors[v], address + columns[v], v);
    }
  }

  template <class T>
  __device__ __forceinline__ static void load_used(Vector<T, VECTOR>& vector, const T* address,
                                                   int v) {
    if ((used(v) & (used(v) - 1)) != 0) vector = load_constant_vector<VECTOR>(address);
    // One element alone is used.
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) {
      if (used(v) == 1u << i) vector.element[i] = load_constant(address + i);
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
    const int at = clamp(walk, 0, walk_size() - 1);
#pragma unroll
    for (int j = 0; j < Cross::SIZE; ++j) {
      load_rows(inputs[j], at, clamp(across(j), 0, cross_size() - 1),
                typename Problem::BeforeIndices());
    }
  }

  // Asks for a plane of which a later step has more use, without waiting for it.
  __device__ __forceinline__ void prefetch_plane(int walk) const {
    const int at = clamp(walk, 0, walk_size() - 1);
#pragma unroll
    for (int j = 0; j < Cross::SIZE; ++j) {
      prefetch_rows(at, clamp(across(j), 0, cross_size() - 1), typename Problem::BeforeIndices());
    }
  }

  template <size_t... AT>
  __device__ __forceinline__ void prefetch_rows(int walk, int row,
                                                std::index_sequence<AT...>) const {
    (prefetch_row<1 + static_cast<int>(AT)>(walk, row), ...);
  }

  template <int OPERAND>
  __device__ __forceinline__ void prefetch_row(int walk, int row) const {
    const Extents& stride = problem.strides[OPERAND];
    int64_t at = offsets[OPERAND] + columns[LEAD / VECTOR];
    at += IS_DEEP ? walk * stride.depth + row * stride.height : walk * stride.height;
    if constexpr (!is_repeated(OPERAND)) {
      prefetch(problem.data[OPERAND] + at * Problem::element_bytes(OPERAND));
    }
  }

  // The elements of one row of the source; what lies outside changes nothing.
  __device__ __forceinline__ void row_values(Value (&values)[VECTORS * VECTOR],
                                             const Inputs& inputs, int walk, int row) const {
#pragma unroll
    for (int e = 0; e < VECTORS * VECTOR; ++e) {
      if (is_column_used(e)) {
        values[e] =
            pooled(place(walk, row, column + e), inputs, e, typename Problem::BeforeIndices());
      }
    }
    if (inside_vectors != ALL_VECTORS) {
#pragma unroll
      for (int e = 0; e < VECTORS * VECTOR; ++e) {
        if (is_column_used(e) && (inside_vectors >> (e / VECTOR) & 1) == 0) {
          values[e] = neutral_pooled<POOLING, Value>();
        }
      }
    }
  }

  // What one row of the source gives to each of the columns.
  __device__ __forceinline__ void pool_row(Totals& totals, const Inputs& inputs, int walk,
                                           int row) const {
    Value values[VECTORS * VECTOR];
    row_values(values, inputs, walk, row);
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
      Value total = values[OFFSET + x * Width::STRIDE];
#pragma unroll
      for (int k = 1; k < Width::SIZE; ++k) {
        total = pool<POOLING>(total, values[OFFSET + x * Width::STRIDE + k * Width::DILATION]);
      }
      totals[x] = total;
    }
  }

  __device__ __forceinline__ void keep_plane(Kept& kept, const Inputs (&inputs)[Cross::SIZE],
                                             int walk) const {
    const bool is_inside = walk >= 0 && walk < walk_size();
    if constexpr (HAS_WEIGHTS) {
      row_values(kept, inputs[0], walk, 0);
#pragma unroll
      for (int e = 0; e < VECTORS * VECTOR; ++e) {
        if (is_column_used(e) && !is_inside) kept[e] = Value(0);
      }
    } else {
#pragma unroll
      for (int j = 0; j < Cross::SIZE; ++j) {
        Totals row;
        pool_row(row, inputs[j], walk, across(j));
        const bool counts = is_inside && (inside_rows >> j & 1) != 0;
#pragma unroll
        for (int x = 0; x < OUTPUTS; ++x) {
          const Value own = counts ? row[x] : neutral_pooled<POOLING, Value>();
          kept[x] = j == 0 ? own : pool<POOLING>(kept[x], own);
        }
      }
    }
  }

  // What a window's planes come to.
  __device__ __forceinline__ void total(Totals& totals, const Kept (&window)[Walk::SPAN]) const {
#pragma unroll
    for (int x = 0; x < OUTPUTS; ++x) {
#pragma unroll
      for (int j = 0; j < Walk::SIZE; ++j) {
        const Value row = of_plane(window[j * Walk::DILATION], j, x);
        totals[x] = j == 0 ? row : pool<POOLING>(totals[x], row);
      }
    }
  }

  // What one plane of a window gives to a column.
  __device__ __forceinline__ Value of_plane(const Kept& kept, int j, int x) const {
    if constexpr (!HAS_WEIGHTS) return kept[x];
    Value sum = weights[j][0] * kept[OFFSET + x * Width::STRIDE];
#pragma unroll
    for (int k = 1; k < Width::SIZE; ++k) {
      sum += weights[j][k] * kept[OFFSET + x * Width::STRIDE + k * Width::DILATION];
    }
    return sum;
  }

  // The planes [BEGIN, END) of the window whose first plane is `first`.
  template <int BEGIN, int END>
  __device__ __forceinline__ void take(Kept (&window)[Walk::SPAN], int first) const {
    constexpr int PLANES = Config::PLANES;
#pragma unroll
    for (int start = BEGIN; start < END; start += PLANES) {
      Inputs inputs[PLANES][Cross::SIZE];
#pragma unroll
      for (int q = start; q < start + PLANES; ++q) {
        if (q < END && is_plane_used(q)) load_plane(inputs[q - start], first + q);
      }
#pragma unroll
      for (int q = start; q < start + PLANES; ++q) {
        if (q < END && is_plane_used(q)) keep_plane(window[q], inputs[q - start], first + q);
      }
    }
  }

  __device__ __forceinline__ void write(const Totals& totals, int walk, int x,
                                        bool is_active) const {
    using Out = typename Problem::Out;
    Vector<Out, OUTPUTS> result;
    const int width = static_cast<int>(problem.result.width);
    const int remaining = is_active ? width - x : 0;
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
      if (Problem::AFTER == 0 || i < remaining) {
        result.element[i] = problem.result_at(offsets, place(walk, cross, x + i), totals[i],
                                              typename Problem::AfterIndices());
      }
    }
    const Extents& stride = problem.strides[0];
    Out* address = reinterpret_cast<Out*>(problem.data[0]) + offsets[0] + x +
                   (IS_DEEP ? walk * stride.depth + cross * stride.height : walk * stride.height);
    store_run(address, result, remaining, x > 0);
  }

  // The elements [begin, end) along the walk of the thread's columns, the first being `x`, in so
  // many steps: warps store together, so that all lanes take as many, whatever they have to do.
  __device__ __forceinline__ void run(int begin, int end, int steps, int x) const {
    Kept window[Walk::SPAN];
    constexpr int KEPT = Walk::SPAN - NEW;
    if constexpr (KEPT > 0) {
      Kept start[Walk::SPAN];
      if (begin < end) take<0, KEPT>(start, begin * Walk::STRIDE - Walk::PADDING);
#pragma unroll
      for (int q = 0; q < KEPT; ++q) copy(window[q + NEW], start[q]);
    }
    for (int step = 0; step < steps; ++step) {
      const int walk = begin + step;
      Totals totals;
      if (walk < end) {
        if constexpr (Config::AHEAD > 0) {
          const int first = (walk + Config::AHEAD) * Walk::STRIDE - Walk::PADDING;
#pragma unroll
          for (int q = KEPT; q < Walk::SPAN; ++q) {
            if (is_plane_used(q)) prefetch_plane(first + q);
          }
        }
#pragma unroll
        for (int q = 0; q < KEPT; ++q) copy(window[q], window[q + NEW]);
        take<KEPT, Walk::SPAN>(window, walk * Walk::STRIDE - Walk::PADDING);
        total(totals, window);
      }
      write(totals, walk, x, walk < end);
    }
  }

  __device__ __forceinline__ static void copy(Kept& to, const Kept& from) {
    constexpr int COUNT = sizeof(Kept) / sizeof(Value);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) to[i] = from[i];
  }
};

// The threads of a launch: groups of columns come first, then rows across the walk, segments of the
// walk, and planes. Where one dimension is pooled, the warps of a row come first, then the planes.
template <class Config, class Problem_>
struct WalkParameters {
  using Problem = Problem_;
  using Walker = WindowWalk<Config, Problem>;
  static constexpr bool IS_FLAT = Walker::IS_FLAT;
  // Columns that a warp has one after the other.
  static constexpr int WARP_COLUMNS = 32 * Walker::OUTPUTS * Config::STEPS;

  Problem problem;
  Divisor groups, crosses, segments;
  // Of a segment.
  int steps;
  uint32_t count;

  // Whether every number that a thread computes with fits into 31 bits.
  static bool is_countable(const Problem& problem) {
    const Extents &source = problem.source, &result = problem.result;
    constexpr int64_t MOST = int64_t{1} << 30;
    const int64_t groups =
        IS_FLAT ? (result.width / WARP_COLUMNS + 1) * 32 : result.width / Walker::OUTPUTS + 1;
    return problem.planes * result.depth * result.height * groups < MOST &&
           std::max({source.width, source.height, source.depth}) < MOST;
  }

  static WalkParameters describe(const Problem& problem) {
    const Extents& result = problem.result;
    const auto planes = static_cast<uint32_t>(problem.planes);
    const auto width = static_cast<uint32_t>(result.width);
    if (IS_FLAT) {
      const uint32_t warps = (width + WARP_COLUMNS - 1) / WARP_COLUMNS;
      return {problem, Divisor(warps), Divisor(1), Divisor(1), Config::STEPS, planes * warps * 32};
    }
    const auto walk = static_cast<uint32_t>(Walker::IS_DEEP ? result.depth : result.height);
    const auto cross = static_cast<uint32_t>(Walker::IS_DEEP ? result.height : 1);
    // Segments are as long as one another, but for the last.
    const uint32_t wanted = (walk + Config::STEPS - 1) / Config::STEPS;
    const uint32_t steps = (walk + wanted - 1) / wanted;
    const uint32_t segments = (walk + steps - 1) / steps;
    const uint32_t groups = (width + Walker::OUTPUTS - 1) / Walker::OUTPUTS;
    return {problem,           Divisor(groups),         Divisor(cross),
            Divisor(segments), static_cast<int>(steps), planes * segments * cross * groups};
  }
};

// One dimension is pooled: each warp has neighbouring groups of columns, STEPS times.
template <class Config, class Problem>
__device__ __forceinline__ void window_flat(const WalkParameters<Config, Problem>& parameters) {
  using Walker = WindowWalk<Config, Problem>;
  const Problem& problem = parameters.problem;
  const uint32_t warp = (blockIdx.x * Walker::THREADS + threadIdx.x) / 32;
  if (warp * 32 >= parameters.count) return;
  const uint32_t plane = parameters.groups.quotient(warp);
  const int part = static_cast<int>(warp - plane * parameters.groups.value());
  Walker walker{problem, {}, static_cast<int>(plane)};
  problem.locate(plane, walker.offsets);
  walker.load_weights();
  walker.look_across();
  const int width = static_cast<int>(problem.result.width);
  int x = part * parameters.WARP_COLUMNS + static_cast<int>(threadIdx.x % 32) * Walker::OUTPUTS;
#pragma unroll 1
  for (int step = 0; step < Config::STEPS; ++step) {
    typename Walker::Totals totals;
    if (x < width) {
      typename Walker::Kept window[1];
      walker.start(x);
      walker.template take<0, 1>(window, 0);
      walker.total(totals, window);
    }
    walker.write(totals, 0, x, x < width);
    x += 32 * Walker::OUTPUTS;
  }
}

template <class Config, class Problem>
__device__ __forceinline__ void window_segments(const WalkParameters<Config, Problem>& parameters) {
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
  Walker walker{problem, {}, static_cast<int>(plane), cross};
  problem.locate(plane, walker.offsets);
  walker.load_weights();
  walker.look_across();
  walker.start(x);
  // Threads beyond the last go along, because warps store together.
  const int end = own < parameters.count ? min(begin + parameters.steps, walk_size) : begin;
  walker.run(begin, end, parameters.steps, x);
}

template <class Config, class Problem>
__device__ __forceinline__ void window_walk(const WalkParameters<Config, Problem>& parameters) {
  wait_for_previous_kernel();
  if constexpr (WalkParameters<Config, Problem>::IS_FLAT) {
    window_flat(parameters);
  } else {
    window_segments(parameters);
  }
}
