#pragma once
// The last kernel of a product on the tensor cores that is cut into slices of K, or whose guard
// speaks late. It adds the slices; where the pairs of fp16 numbers do not carry the factors, it
// computes the whole product on the CUDA cores, so that infinities, NaN and far ranges come out as
// IEEE has them. The host never waits to know which.

#include "dependent_launch.cuh"
#include "gemm_guard.cuh"
#include "gemm_plain.cuh"
#include "gemm_simt.cuh"

// out = epilogue of the slices' sums, which are added in order.
template <class Problem>
__device__ __forceinline__ void sum_slices(const Problem& problem) {
  constexpr int WIDTH = 4;
  const GemmRest& rest = problem.rest;
  // Without a guard there were no pairs, and no scales.
  const bool scaled = rest.guard_words > 0;
  const int left = scaled ? rest.header->exponents[0] : 0;
  auto unscale = Unscale::of(scaled ? left + rest.header->exponents[1] : 0);
  const int64_t slice = problem.batches * problem.m * rest.partial_pitch;
  const int64_t runs = slice / WIDTH, runs_per_row = rest.partial_pitch / WIDTH;
  for (int64_t run = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; run < runs;
       run += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    Vector<float, WIDTH> sums = {};
#pragma unroll 4
    for (int s = 0; s < rest.slices; ++s) {
      const auto part = load_vector<WIDTH>(rest.partials + s * slice + run * WIDTH);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sums.element[i] += part.element[i];
    }
    const int64_t row = run / runs_per_row;
    if constexpr (ANY_TOGETHER) {
      const int product = problem.product_of(row / problem.m);
      if (scaled) unscale = Unscale::of(left + rest.header->exponents[1 + product]);
    }
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sums.element[i] = unscale(sums.element[i]);
    GemmEpilogue epilogue(problem);
    if constexpr (ANY_BATCHES) epilogue.select(row / problem.m);
    epilogue.apply(sums, row % problem.m, run % runs_per_row * WIDTH);
  }
}

// Whether a kernel before has multiplied; then its slices are added.
template <class Problem>
__device__ __forceinline__ bool is_multiplied(const Problem& problem) {
  if constexpr (sizeof(compute_t<typename Problem::Factor>) == 4) {
    if (problem.rest.header != nullptr) {
      if (pairs_were_exact(problem.rest)) {
        if (ANY_SLICES && problem.rest.slices > 1) sum_slices(problem);
        return true;
      }
    }
  }
  return false;
}

// The body of the general kernel, alone or after one of gemm_sm90.cuh.
template <class Problem>
__device__ __forceinline__ void finish_plain(const Problem& problem) {
  wait_for_previous_kernel();
  if (!is_multiplied(problem)) gemm_plain(problem);
}

// The same of a config of gemm_simt.cuh.
template <class Config, class Problem>
__device__ __forceinline__ void finish_gemm(const Problem& problem) {
  wait_for_previous_kernel();
  if (is_multiplied(problem)) return;
  const int64_t tiles = GemmTile<Config, Problem>::count(problem);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    gemm_simt_tile<Config>(problem, locate_tile<GemmTile<Config, Problem>>(problem, tile));
    __syncthreads();
  }
}
