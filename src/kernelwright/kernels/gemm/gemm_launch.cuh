#pragma once
// The choice among variants of a matrix product, by the sizes and strides of the call.
//
// A variant has
//   admits(problem)                     whether it computes this problem
//   workspace_bytes(problem)            device memory that it needs besides, 256-byte aligned
//   launch(problem, stream, workspace)  -> cudaError_t

#include <cuda_runtime.h>

#include <cstdint>

// Launches the first variant that admits the problem; the last one should admit all. An empty
// result launches nothing; K = 0 sums to zero.
template <class Problem, class... Variants>
cudaError_t launch_gemm(const Problem& problem, cudaStream_t stream, void* workspace,
                        const Variants&... variants) {
  if (!problem.has_results()) return cudaSuccess;
  cudaError_t status = cudaErrorNotSupported;  // a file for one card, on another
  static_cast<void>(
      ((variants.admits(problem) && (status = variants.launch(problem, stream, workspace), true)) ||
       ...));
  return status;
}

// Bytes of the workspace that launch_gemm expects with the same variants.
template <class Problem, class... Variants>
int64_t gemm_workspace(const Problem& problem, const Variants&... variants) {
  if (!problem.has_results()) return 0;
  int64_t bytes = 0;
  static_cast<void>(
      ((variants.admits(problem) && (bytes = variants.workspace_bytes(problem), true)) || ...));
  return bytes;
}
