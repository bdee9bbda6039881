#pragma once
// Host side of gemm_extreme.cuh: keys of the rows, the product by whichever variant, and the kernel
// that turns keys into results.

#include <algorithm>

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_launch.cuh"

constexpr int EXTREME_THREADS = 256;

// Bytes of the keys, one for each row, at the beginning of the workspace.
template <class Problem>
int64_t key_bytes(const Problem& problem) {
  return (problem.batches * problem.m * static_cast<int64_t>(sizeof(uint32_t)) + 255) / 256 * 256;
}

template <class Problem, class... Variants>
int64_t extreme_workspace(const Problem& problem, const Variants&... variants) {
  return key_bytes(problem) + gemm_workspace(problem, variants...);
}

// As launch_gemm; `finish` is a kernel of write_extremes. Rows without columns get NaN.
template <class Problem, class... Variants>
cudaError_t launch_extreme(void (*finish)(Problem), Problem problem, cudaStream_t stream,
                           void* workspace, const Variants&... variants) {
  constexpr int64_t MOST_BLOCKS = 1 << 16;
  const int64_t bytes = key_bytes(problem), rows = problem.batches * problem.m;
  if (rows == 0) return cudaSuccess;
  problem.keys = static_cast<uint32_t*>(workspace);
  cudaError_t status = cudaMemsetAsync(workspace, 0, static_cast<size_t>(bytes), stream);
  if (status != cudaSuccess) return status;
  status = launch_gemm(problem, stream, static_cast<char*>(workspace) + bytes, variants...);
  if (status != cudaSuccess) return status;
  const int64_t blocks = std::min((rows + EXTREME_THREADS - 1) / EXTREME_THREADS, MOST_BLOCKS);
  return launch_dependent(finish, static_cast<unsigned>(blocks), EXTREME_THREADS, stream, problem);
}

// The body of the kernel after the product.
template <class Problem>
__device__ __forceinline__ void write_extremes(const Problem& problem) {
  using Result = typename Problem::Result;
  using Own = Kept<decltype(problem.epilogue)>;
  wait_for_previous_kernel();
  const int64_t rows = problem.batches * problem.m, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < rows; i += step) {
    int64_t index[MAX_BATCH_RANK];
    split_batch(problem, i / problem.m, index);
    Result* const out = batch_base<Result>(problem, Problem::OUT, index);
    out[i % problem.m * problem.operands[Problem::OUT].row_stride] =
        narrow<Result>(Own::value(problem.keys[i]));
  }
}
