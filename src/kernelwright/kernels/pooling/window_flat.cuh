#pragma once
// Pooling of planes that are runs of memory, each element of the result for itself: what windows
// share comes from the first-level cache. A config has
//   THREADS  threads of a block
//   OUTPUTS  elements of the result that a thread has, THREADS apart

#include "window_plane.cuh"

template <class Config, class Problem_>
struct FlatParameters {
  using Problem = Problem_;

  Problem problem;
  uint32_t count;                // elements of the result
  uint32_t source_plane;         // elements of a plane
  Divisor widths, rows, depths;  // of the result
  bool is_inside;                // no window reaches beyond the source

  static FlatParameters describe(const Problem& problem) {
    const Extents &source = problem.source, &result = problem.result;
    FlatParameters flat{problem};
    flat.count = static_cast<uint32_t>(problem.count());
    flat.source_plane = static_cast<uint32_t>(source.depth * source.height * source.width);
    flat.widths = Divisor(static_cast<uint32_t>(result.width));
    flat.rows = Divisor(static_cast<uint32_t>(result.height));
    flat.depths = Divisor(static_cast<uint32_t>(result.depth));
    flat.is_inside = PlaneWindows<Problem>::are_inside(source, result);
    return flat;
  }

  // Whether both sides are runs of memory.
  static bool admits(const Problem& problem) {
    constexpr int64_t MOST = int64_t{1} << 31;
    const Extents &source = problem.source, &result = problem.result;
    return is_run_of_planes(problem, 1, source) && is_run_of_planes(problem, 0, result) &&
           problem.count() < MOST - Config::THREADS * Config::OUTPUTS &&
           source.depth * source.height * source.width < MOST;
  }

  // Where an element of the result stands.
  __device__ __forceinline__ typename Problem::Place place_of(uint32_t at) const {
    uint32_t rest = at;
    const auto split = [&](const Divisor& size) {
      const uint32_t quotient = size.quotient(rest), place = rest - quotient * size.value();
      rest = quotient;
      return static_cast<int>(place);
    };
    constexpr int DIMS = Problem::Operation::DIMS;
    const int column = split(widths);
    const int row = DIMS > 1 ? split(rows) : 0;
    const int depth = DIMS > 2 ? split(depths) : 0;
    return {problem.plane_shape, rest, depth, row, column};
  }
};

template <bool CHECKED, class Config, class Problem>
__device__ __forceinline__ void pool_flat(const FlatParameters<Config, Problem>& flat) {
  using Windows = PlaneWindows<Problem>;
  using In = typename Windows::template InAt<0>;
  using Out = typename Problem::Out;
  constexpr int OUTPUTS = Config::OUTPUTS;
  const Problem& problem = flat.problem;
  const Windows windows{problem};
  const uint32_t first = blockIdx.x * (Config::THREADS * OUTPUTS) + threadIdx.x;
  Out results[OUTPUTS];
#pragma unroll
  for (int k = 0; k < OUTPUTS; ++k) {
    // Past the end the last one again.
    const auto place = flat.place_of(min(first + k * Config::THREADS, flat.count - 1));
    const In* source =
        reinterpret_cast<const In*>(problem.data[1]) + place.plane * flat.source_plane;
    int64_t offsets[Problem::OPERANDS];
    if constexpr (Problem::OPERANDS > 2) problem.locate(place.plane, offsets);
    const auto total = windows.template pool_window<CHECKED>(source, place, offsets);
    results[k] = problem.result_at(offsets, place, total, typename Problem::AfterIndices());
  }
  Out* const out = reinterpret_cast<Out*>(problem.data[0]);
#pragma unroll
  for (int k = 0; k < OUTPUTS; ++k) {
    const uint32_t at = first + k * Config::THREADS;
    if (at < flat.count) out[at] = results[k];
  }
}

template <class Config, class Problem>
__device__ __forceinline__ void window_flat(const FlatParameters<Config, Problem>& flat) {
  wait_for_previous_kernel();
  if (flat.is_inside) {
    pool_flat<false>(flat);
  } else {
    pool_flat<true>(flat);
  }
}
