#pragma once
// The choice among the ways to pool, by the sizes and strides of the call.

#include <algorithm>

#include "window_any.cuh"
#include "window_bands.cuh"
#include "window_channels.cuh"
#include "window_flat.cuh"
#include "window_lines.cuh"
#include "window_tiles.cuh"
#include "window_walk.cuh"

// Blocks that a launch has at most: each then does several parts, one after the other.
constexpr int64_t MAX_WINDOW_BLOCKS = (int64_t{1} << 31) - 1;

template <class Parameters>
cudaError_t launch_window_kernel(void (*kernel)(Parameters), const Parameters& parameters,
                                 int64_t parts, int threads, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(parts, MAX_WINDOW_BLOCKS));
  return launch_dependent(kernel, blocks, static_cast<unsigned>(threads), stream, parameters);
}

// Whether every vector of WIDTH elements in the rows of the prologue's operands begins at a
// multiple of its access width, counted from the first column.
template <int WIDTH, class Config, class Problem>
bool has_whole_vectors(const Problem& problem) {
  for (int o = 1; o < Problem::FIRST_AFTER; ++o) {
    const Extents& stride = problem.strides[o];
    if ((Config::REPEATED >> o & 1) != 0) {
      if (stride.width != 0) return false;
      continue;
    }
    const int64_t bytes = Problem::element_bytes(o);
    const int64_t alignment = access_bytes(static_cast<int>(WIDTH * bytes));
    if (stride.width != 1 || reinterpret_cast<uintptr_t>(problem.data[o]) % alignment != 0 ||
        stride.height * bytes % alignment != 0 || stride.depth * bytes % alignment != 0) {
      return false;
    }
    for (int d = 0; d < problem.plane_rank; ++d) {
      if (problem.plane_strides[d][o] * bytes % alignment != 0) return false;
    }
  }
  return true;
}

template <class Config, class Problem>
struct AnyWindowVariant {
  using Parameters = Problem;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem&) const { return true; }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const int64_t blocks = (problem.count() + THREADS - 1) / THREADS;
    return launch_window_kernel(kernel, problem, blocks, THREADS, stream);
  }
};

// Small windows of rows that are whole vectors, each contiguous, or one element for all its
// columns.
template <class Config, class Problem>
struct WalkVariant {
  using Parameters = WalkParameters<Config, Problem>;
  using Walker = WindowWalk<Config, Problem>;
  static constexpr int THREADS = Walker::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem& problem) const {
    return Parameters::is_countable(problem) && problem.source.width % Walker::VECTOR == 0 &&
           has_whole_vectors<Walker::VECTOR, Config>(problem);
  }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const auto parameters = Parameters::describe(problem);
    const int64_t blocks = (int64_t{parameters.count} + THREADS - 1) / THREADS;
    return launch_window_kernel(kernel, parameters, blocks, THREADS, stream);
  }
};

// The same with weights, of rows that are short.
template <class Config, class Problem>
struct BandVariant {
  using Parameters = BandParameters<Config, Problem>;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem& problem) const {
    return has_whole_vectors<Parameters::VECTOR, Config>(problem) && Parameters::admits(problem);
  }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const Parameters bands = Parameters::describe(problem);
    return launch_dependent(kernel, static_cast<unsigned>(bands.blocks()), THREADS, stream, bands,
                            bands.bytes);
  }
};

// The same of channels that are last.
template <class Config, class Problem>
struct ChannelVariant {
  using Parameters = ChannelParameters<Config, Problem>;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem& problem) const { return Parameters::admits(problem); }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const Parameters parameters = Parameters::describe(problem);
    return launch_window_kernel(kernel, parameters, parameters.blocks(), THREADS, stream);
  }
};

// Large windows, or windows far apart, of such rows.
template <class Config, class Problem>
struct LinesVariant {
  using Parameters = Problem;
  using Lines = WindowLines<Config, Problem>;
  static constexpr int THREADS = Lines::THREADS;

  void (*kernel)(Parameters);

  static int64_t blocks(const Problem& problem) {
    const Extents& result = problem.result;
    const int64_t parts = (result.width + Lines::OUTPUTS - 1) / Lines::OUTPUTS;
    return problem.planes * result.depth * result.height * parts;
  }
  bool admits(const Problem& problem) const {
    const Extents& source = problem.source;
    constexpr int64_t MOST = int64_t{1} << 30;
    return blocks(problem) <= MAX_WINDOW_BLOCKS &&
           std::max({source.width, source.height, source.depth}) < MOST &&
           source.width % Lines::VECTOR == 0 && has_whole_vectors<Lines::VECTOR, Config>(problem);
  }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    return launch_window_kernel(kernel, problem, blocks(problem), THREADS, stream);
  }
};

// Small windows of planes that are runs of memory.
template <class Config, class Problem>
struct TileVariant {
  using Parameters = TileParameters<Config, Problem>;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem& problem) const {
    return Parameters::admits(problem) &&
           Parameters::describe(problem).blocks() <= MAX_WINDOW_BLOCKS;
  }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const Parameters tiles = Parameters::describe(problem);
    return launch_dependent(kernel, static_cast<unsigned>(tiles.blocks()), THREADS, stream, tiles,
                            Config::BYTES);
  }
};

// The same of which each element of the result is for itself.
template <class Config, class Problem>
struct FlatVariant {
  using Parameters = FlatParameters<Config, Problem>;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  bool admits(const Problem& problem) const { return Parameters::admits(problem); }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    constexpr int64_t PART = THREADS * Config::OUTPUTS;
    const int64_t blocks = (problem.count() + PART - 1) / PART;
    return launch_window_kernel(kernel, Parameters::describe(problem), blocks, THREADS, stream);
  }
};

// Launches the first variant that admits the problem; the last one should admit all. An empty
// result launches nothing.
template <class Problem, class... Variants>
cudaError_t launch_window(const Problem& problem, cudaStream_t stream,
                          const Variants&... variants) {
  if (problem.count() == 0) return cudaSuccess;
  cudaError_t status = cudaErrorInvalidValue;
  static_cast<void>(
      ((variants.admits(problem) && (status = variants.launch(problem, stream), true)) || ...));
  return status;
}
