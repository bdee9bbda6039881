#pragma once
// The choice among the ways to pool, by the sizes and strides of the call.

#include <algorithm>

#include "window_any.cuh"

// Blocks that a launch has at most: each then does several parts, one after the other.
constexpr int64_t MAX_WINDOW_BLOCKS = (int64_t{1} << 31) - 1;

template <class Problem>
cudaError_t launch_window_kernel(void (*kernel)(Problem), const Problem& problem, int64_t parts,
                                 int threads, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min(parts, MAX_WINDOW_BLOCKS));
  kernel<<<blocks, static_cast<unsigned>(threads), 0, stream>>>(problem);
  return cudaGetLastError();
}

template <class Config, class Problem>
struct AnyWindowVariant {
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Problem);

  bool admits(const Problem&) const { return true; }
  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    const int64_t blocks = (problem.count() + THREADS - 1) / THREADS;
    return launch_window_kernel(kernel, problem, blocks, THREADS, stream);
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
