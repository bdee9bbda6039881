#pragma once
// Pooling of planes that are runs of memory, whatever the lengths of their rows: a block copies a
// run to shared memory in whole vectors, some planes or a band of one, and pools what it has there.
// Its results are a run of memory, too. A band is cut along the outermost pooled dimension. Where
// either side is a part of a concatenation, so many planes lie one after the other as the part has
// of an image, and a block has planes of one image. Of several operands the first has such planes,
// and others have few elements. A config has
//   THREADS  threads of a block
//   BYTES    of shared memory for the run of a block

#include <algorithm>

#include "async_copy.cuh"
#include "divide.cuh"
#include "window_plane.cuh"

template <class Config, class Problem_>
struct TileParameters {
  using Problem = Problem_;
  using Operation = typename Problem::Operation;
  using Out = typename Problem::Out;
  template <size_t AT>
  using InAt = typename PlaneWindows<Problem>::template InAt<AT>;
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
  uint32_t run_planes;                 // one after the other on both sides
  uint32_t own_planes;                 // of a block
  Divisor blocks_of_run;               // that share a run's planes
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
    const int64_t run_planes = planes_of_run(problem);
    const int64_t own_planes = bands == 1 ? std::min(room / length, run_planes) : 1;
    tiles.run_planes = static_cast<uint32_t>(run_planes);
    tiles.own_planes = static_cast<uint32_t>(own_planes);
    tiles.blocks_of_run =
        Divisor(static_cast<uint32_t>((run_planes + own_planes - 1) / own_planes));
    tiles.bands = Divisor(static_cast<uint32_t>((walk + steps - 1) / steps));
    tiles.steps = Divisor(static_cast<uint32_t>(steps));
    tiles.widths = Divisor(static_cast<uint32_t>(result.width));
    tiles.rows = Divisor(static_cast<uint32_t>(result.height));
    tiles.is_inside = PlaneWindows<Problem>::are_inside(source, result);
    return tiles;
  }

  int64_t blocks() const {
    return problem.planes / run_planes * blocks_of_run.value() * bands.value();
  }

  // Whether planes of both sides are runs of memory, one step of a band fits, and blocks have more
  // than the few elements of short runs, which leave most threads without a result.
  static bool admits(const Problem& problem) {
    constexpr int64_t MOST = int64_t{1} << 30;
    const Extents &source = problem.source, &result = problem.result;
    const int64_t plane = source.depth * source.height * source.width;
    const int64_t inner = plane / (DIMS == 3 ? source.depth : DIMS == 2 ? source.height : plane);
    const int64_t run_planes = planes_of_run(problem);
    const bool is_busy = run_planes == problem.planes || run_planes * plane >= ROOM / 2;
    return run_planes > 0 && is_busy && inner * Walk::SPAN <= ROOM && plane < MOST &&
           problem.planes < MOST && result.depth * result.height * result.width < MOST;
  }

 private:
  static int64_t planes_of_run(const Problem& problem) {
    return std::min(planes_in_run(problem, 1, problem.source),
                    planes_in_run(problem, 0, problem.result));
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
  static constexpr int DIMS = Parameters::DIMS, VECTOR = Parameters::VECTOR;
  static constexpr int THREADS = Config::THREADS;

  const Parameters& tiles;
  uint32_t plane, planes;                          // the first one, and how many
  int begin, end;                                  // along the walk, of the result
  int from, to;                                    // of the source
  int64_t offsets[Parameters::Problem::OPERANDS];  // of the first plane

  __device__ __forceinline__ WindowTile(const Parameters& tiles, uint32_t tile) : tiles(tiles) {
    const uint32_t group = tiles.bands.quotient(tile), band = tile - group * tiles.bands.value();
    const int steps = static_cast<int>(tiles.steps.value());
    const uint32_t run = tiles.blocks_of_run.quotient(group);
    const uint32_t skipped = (group - run * tiles.blocks_of_run.value()) * tiles.own_planes;
    plane = run * tiles.run_planes + skipped;
    planes = min(tiles.own_planes, tiles.run_planes - skipped);
    begin = static_cast<int>(band) * steps;
    end = min(begin + steps, tiles.walk);
    const bool is_whole = tiles.bands.value() == 1;
    from = is_whole ? 0 : max(begin * Walk::STRIDE - Walk::PADDING, 0);
    to = (end - 1) * Walk::STRIDE - Walk::PADDING + Walk::SPAN;
    to = is_whole ? tiles.source_walk : min(to, tiles.source_walk);
    tiles.problem.locate(plane, offsets);
  }

  // Copies the run; returns where its first element is.
  template <class In>
  __device__ __forceinline__ const In* copy(char* memory) const {
    const int64_t first = offsets[1] + int64_t{from} * tiles.source_inner;
    const In* source = reinterpret_cast<const In*>(tiles.problem.data[1]) + first;
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
    const PlaneWindows<Problem> windows{problem};
    const int count = static_cast<int>(planes) * (end - begin) * tiles.result_inner;
    const int64_t first = offsets[0] + int64_t{begin} * tiles.result_inner;
    Out* const out = reinterpret_cast<Out*>(problem.data[0]) + first;
    for (int at = static_cast<int>(threadIdx.x); at < count; at += THREADS) {
      const Place place = place_of(at);
      const int own = static_cast<int>(place.plane - plane);
      const In* source = shared + (own * tiles.source_walk - from) * tiles.source_inner;
      int64_t own_offsets[Problem::OPERANDS];
      if constexpr (Problem::OPERANDS > 2) problem.locate(place.plane, own_offsets);
      const Value total = windows.template pool_window<CHECKED>(source, place, own_offsets);
      out[at] = problem.result_at(own_offsets, place, total, typename Problem::AfterIndices());
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
};

template <class Config, class Problem>
__device__ __forceinline__ void window_tiles(const TileParameters<Config, Problem>& tiles) {
  wait_for_previous_kernel();
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
