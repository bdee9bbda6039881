#pragma once
// Pooling of planes that lie one after the other in memory, whatever the lengths of their rows: a
// block copies a run of memory to shared memory in whole vectors, some planes or a band of one, and
// pools what it has there. Its results are a run of memory, too. A band is cut along the outermost
// pooled dimension. Of several operands the first is such a run, and others have few elements. A
// config has
//   THREADS  threads of a block
//   BYTES    of shared memory for the run of a block

#include <algorithm>

#include "async_copy.cuh"
#include "divide.cuh"
#include "window.cuh"

template <class Config, class Problem_>
struct TileParameters {
  using Problem = Problem_;
  using Operation = typename Problem::Operation;
  using Out = typename Problem::Out;
  template <class T>
  using Own = T;
  template <size_t AT>
  using InAt = std::remove_reference_t<decltype(get<AT>(
      std::declval<typename Problem::template BeforePack<Own>&>()))>;
  static constexpr int DIMS = Operation::DIMS;
  using Walk = std::conditional_t<
      DIMS == 3, typename Operation::Depth,
      std::conditional_t<DIMS == 2, typename Operation::Height, typename Operation::Width>>;
  static_assert(!Problem::HAS_WEIGHTS, "weights are not here");
  static constexpr int IN_BYTES = static_cast<int>(Problem::element_bytes(1));
  static constexpr int VECTOR = 16 / IN_BYTES;
  static constexpr int ROOM = Config::BYTES / IN_BYTES - 2 * VECTOR;

  Problem problem;
  int walk, source_walk;               // sizes along the dimension that bands cut
  int source_inner, result_inner;      // elements of one step along it
  uint32_t planes;                     // of the whole
  uint32_t own_planes;                 // of a block
  Divisor bands, steps, widths, rows;  // of a plane; of a band; of the result
  bool is_inside;                      // no window reaches beyond the source

  // Bands of a plane where a block has one, or planes of a block.
  static TileParameters describe(const Problem& problem) {
    const Extents &source = problem.source, &result = problem.result;
    TileParameters tiles{problem};
    const bool is_deep = DIMS == 3, is_flat = DIMS == 1;
    const int64_t source_inner = (is_deep ? source.height : 1) * (is_flat ? 1 : source.width);
    const int64_t result_inner = (is_deep ? result.height : 1) * (is_flat ? 1 : result.width);
    const int64_t walk = is_deep ? result.depth : is_flat ? result.width : result.height;
    const int64_t length = is_deep ? source.depth : is_flat ? source.width : source.height;
    const int64_t room = std::max(int64_t{ROOM} / source_inner, int64_t{1});
    const int64_t most = room < Walk::SPAN ? 1 : (room - Walk::SPAN) / Walk::STRIDE + 1;
    const int64_t bands = room >= length ? 1 : (walk + most - 1) / most;
    const int64_t steps = (walk + bands - 1) / bands;
    tiles.walk = static_cast<int>(walk);
    tiles.source_walk = static_cast<int>(length);
    tiles.source_inner = static_cast<int>(source_inner);
    tiles.result_inner = static_cast<int>(result_inner);
    tiles.planes = static_cast<uint32_t>(problem.planes);
    tiles.own_planes = static_cast<uint32_t>(bands == 1 ? room / length : 1);
    tiles.bands = Divisor(static_cast<uint32_t>((walk + steps - 1) / steps));
    tiles.steps = Divisor(static_cast<uint32_t>(steps));
    tiles.widths = Divisor(static_cast<uint32_t>(result.width));
    tiles.rows = Divisor(static_cast<uint32_t>(result.height));
    tiles.is_inside = is_within<typename Operation::Depth>(result.depth, source.depth) &&
                      is_within<typename Operation::Height>(result.height, source.height) &&
                      is_within<typename Operation::Width>(result.width, source.width);
    return tiles;
  }

  int64_t blocks() const { return (int64_t{planes} + own_planes - 1) / own_planes * bands.value(); }

  // Whether both sides are runs of memory, and one step of a band fits.
  static bool admits(const Problem& problem) {
    constexpr int64_t MOST = int64_t{1} << 30;
    const Extents &source = problem.source, &result = problem.result;
    const int64_t plane = source.depth * source.height * source.width;
    const int64_t inner = plane / (DIMS == 3 ? source.depth : DIMS == 2 ? source.height : plane);
    return is_run(problem, 1, source) && is_run(problem, 0, result) && inner * Walk::SPAN <= ROOM &&
           plane < MOST && problem.planes < MOST &&
           result.depth * result.height * result.width < MOST;
  }

  // Of an operand with planes of this size.
  static bool is_run(const Problem& problem, int operand, const Extents& size) {
    const Extents& stride = problem.strides[operand];
    int64_t run = 1;
    bool is =
        reinterpret_cast<uintptr_t>(problem.data[operand]) % Problem::element_bytes(operand) == 0;
    const auto next = [&](int64_t own, int64_t step) {
      is = is && (own == 1 || step == run);
      run *= own;
    };
    next(size.width, stride.width);
    next(size.height, stride.height);
    next(size.depth, stride.depth);
    for (int d = problem.plane_rank - 1; d >= 0; --d) {
      next(problem.plane_sizes[d], problem.plane_strides[d][operand]);
    }
    return is;
  }

 private:
  template <class Axis>
  static bool is_within(int64_t result, int64_t source) {
    return Axis::PADDING == 0 && (result - 1) * Axis::STRIDE + Axis::SPAN <= source;
  }
};

// A block at work on its tile.
template <class Config, class Problem>
struct WindowTile {
  using Parameters = TileParameters<Config, Problem>;
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Place = typename Problem::Place;
  using Walk = typename Parameters::Walk;
  using Depth = typename Operation::Depth;
  using Height = typename Operation::Height;
  using Width = typename Operation::Width;
  static constexpr Pooling POOLING = Operation::POOLING;
  static constexpr int DIMS = Parameters::DIMS, VECTOR = Parameters::VECTOR;
  static constexpr int THREADS = Config::THREADS;
  static constexpr int ROWS = Depth::SIZE * Height::SIZE;  // of a window

  const Parameters& tiles;
  uint32_t plane, planes;  // the first one, and how many
  int begin, end;          // along the walk, of the result
  int from, to;            // of the source

  __device__ __forceinline__ WindowTile(const Parameters& tiles, uint32_t tile) : tiles(tiles) {
    const uint32_t group = tiles.bands.quotient(tile), band = tile - group * tiles.bands.value();
    const int steps = static_cast<int>(tiles.steps.value());
    plane = group * tiles.own_planes;
    planes = min(tiles.own_planes, tiles.planes - plane);
    begin = static_cast<int>(band) * steps;
    end = min(begin + steps, tiles.walk);
    const bool is_whole = tiles.bands.value() == 1;
    from = is_whole ? 0 : max(begin * Walk::STRIDE - Walk::PADDING, 0);
    to = (end - 1) * Walk::STRIDE - Walk::PADDING + Walk::SPAN;
    to = is_whole ? tiles.source_walk : min(to, tiles.source_walk);
  }

  // Copies the run; returns where its first element is.
  template <class In>
  __device__ __forceinline__ const In* copy(char* memory) const {
    const int64_t first = int64_t{plane} * tiles.source_walk + from;
    const In* source =
        reinterpret_cast<const In*>(tiles.problem.data[1]) + first * tiles.source_inner;
    const int lines = (static_cast<int>(planes) - 1) * tiles.source_walk + to - from;
    const int count = lines * tiles.source_inner;
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(source) / sizeof(In) % VECTOR);
    In* const shared = reinterpret_cast<In*>(memory) + shift;
    // Vectors begin where memory is aligned: the first and the last may be partly outside.
    for (int at = static_cast<int>(threadIdx.x) * VECTOR - shift; at < count;
         at += THREADS * VECTOR) {
      if (at >= 0 && at + VECTOR <= count) {
        copy_async<16>(shared + at, source + at, true);
      } else {
        for (int i = max(at, 0); i < min(at + VECTOR, count); ++i) shared[i] = source[i];
      }
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    return shared;
  }

  // CHECKED: windows may reach beyond the source.
  template <bool CHECKED, class In>
  __device__ __forceinline__ void pool_all(const In* shared) const {
    const Problem& problem = tiles.problem;
    const int count = static_cast<int>(planes) * (end - begin) * tiles.result_inner;
    const int64_t first = int64_t{plane} * tiles.walk + begin;
    Out* const out = reinterpret_cast<Out*>(problem.data[0]) + first * tiles.result_inner;
    for (int at = static_cast<int>(threadIdx.x); at < count; at += THREADS) {
      const Place place = place_of(at);
      const int own = static_cast<int>(place.plane - plane);
      const In* source = shared + (own * tiles.source_walk - from) * tiles.source_inner;
      int64_t offsets[Problem::OPERANDS];
      if constexpr (Problem::OPERANDS > 2) problem.locate(place.plane, offsets);
      const Value total = pool_window<CHECKED>(source, place, offsets);
      out[at] = problem.result_at(offsets, place, total, typename Problem::AfterIndices());
    }
  }

 private:
  // Where a result of the tile stands.
  __device__ __forceinline__ Place place_of(int at) const {
    uint32_t rest = static_cast<uint32_t>(at);
    const auto split = [&](const Divisor& size) {
      const uint32_t quotient = size.quotient(rest), place = rest - quotient * size.value();
      rest = quotient;
      return static_cast<int>(place);
    };
    const int column = DIMS > 1 ? split(tiles.widths) : 0;
    const int row = DIMS > 2 ? split(tiles.rows) : 0;
    const int walk = begin + split(tiles.steps);
    return {tiles.problem.plane_shape, plane + rest, DIMS == 3 ? walk : 0,
            DIMS == 3   ? row
            : DIMS == 2 ? walk
                        : 0,
            DIMS == 1 ? walk : column};
  }

  template <class Axis>
  __device__ __forceinline__ static int position(int64_t output, int k) {
    return static_cast<int>(output) * Axis::STRIDE - Axis::PADDING + k * Axis::DILATION;
  }
  __device__ __forceinline__ static bool is_in(int position, int64_t size) {
    return static_cast<unsigned>(position) < static_cast<unsigned>(size);
  }

  // What is pooled at a position, where the first operand has `element`.
  template <class In, size_t... AT>
  __device__ __forceinline__ Value pooled_at(const In& element,
                                             const int64_t (&offsets)[Problem::OPERANDS],
                                             const Place& at, std::index_sequence<AT...>) const {
    return tiles.problem.operation.prologue(at, input<AT>(element, offsets, at)...);
  }
  template <size_t AT, class In>
  __device__ __forceinline__ auto input(const In& element,
                                        const int64_t (&offsets)[Problem::OPERANDS],
                                        const Place& at) const {
    if constexpr (AT == 0) {
      return widen(element);
    } else {
      using Other = typename Parameters::template InAt<AT>;
      return widen(tiles.problem.template load<Other, 1 + AT>(offsets[1 + AT], at));
    }
  }

  // `source`: where the plane would begin.
  template <bool CHECKED, class In>
  __device__ __forceinline__ Value pool_window(const In* source, const Place& place,
                                               const int64_t (&offsets)[Problem::OPERANDS]) const {
    const Extents& size = tiles.problem.source;
    Value total = neutral_pooled<POOLING, Value>();
#pragma unroll(ROWS* Width::SIZE <= 32 ? ROWS : 1)
    for (int line = 0; line < ROWS; ++line) {
      const int depth = position<Depth>(place.depth, line / Height::SIZE);
      const int row = position<Height>(place.row, line % Height::SIZE);
      const bool is_line = !CHECKED || (is_in(depth, size.depth) && is_in(row, size.height));
      const In* elements =
          source + (depth * static_cast<int>(size.height) + row) * static_cast<int>(size.width);
      // Each row of the window for itself, so that long sums lose less.
      Value own = neutral_pooled<POOLING, Value>();
#pragma unroll(Width::SIZE <= 32 ? Width::SIZE : 8)
      for (int k = 0; k < Width::SIZE; ++k) {
        const int column = position<Width>(place.column, k);
        if (is_line && (!CHECKED || is_in(column, size.width))) {
          const Place at{place.planes, place.plane, depth, row, column};
          own = pool<POOLING>(
              own, pooled_at(elements[column], offsets, at, typename Problem::BeforeIndices()));
        }
      }
      total = pool<POOLING>(total, own);
    }
    return total;
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_tiles(const TileParameters<Config, Problem>& tiles) {
  using In = typename TileParameters<Config, Problem>::template InAt<0>;
  extern __shared__ __align__(16) char window_memory[];
  const WindowTile<Config, Problem> tile(tiles, blockIdx.x);
  const In* const shared = tile.template copy<In>(window_memory);
  if (tiles.is_inside) {
    tile.template pool_all<false>(shared);
  } else {
    tile.template pool_all<true>(shared);
  }
}
