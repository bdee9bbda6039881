#pragma once
// Host side of loops that carry a value.

#include "loop.cuh"
#include "scan_launch.cuh"

// Takes all sizes and strides.
template <class Config, class Problem>
struct LoopVariant {
  using Parameters = Problem;
  static constexpr int THREADS = Config::BLOCK;

  void (*kernel)(Problem);

  bool admits(const Problem&) const { return true; }
  int64_t workspace_bytes(const Problem&) const { return 0; }

  cudaError_t launch(const Problem& problem, cudaStream_t stream, void*) const {
    const int64_t blocks = (problem.rows + THREADS - 1) / THREADS;
    return launch_scan_kernel(kernel, problem, blocks, THREADS, stream);
  }
};
