#pragma once
// The last kernel of a product on the tensor cores that is cut into slices of K, or whose guard
// speaks late. It adds the slices; where the guard speaks late and the pairs of fp16 numbers do not
// carry the factors, it computes the whole product on the CUDA cores, so that infinities, NaN and
// far ranges come out as IEEE has them. The host never waits to know which.

#include "dependent_launch.cuh"
#include "gemm_guard.cuh"
#include "gemm_plain.cuh"
#include "gemm_simt.cuh"

// Runs of neighbours in the slices, which are added in order.
template <class Problem>
class SlicedSums {
 public:
  static constexpr int WIDTH = 4;
  using Sums = Vector<float, WIDTH>;

  __device__ __forceinline__ explicit SlicedSums(const Problem& problem)
      : problem_(problem),
        slice_(problem.batches * problem.m * problem.rest.partial_pitch),
        runs_per_row_(problem.rest.partial_pitch / WIDTH) {}

  __device__ __forceinline__ int64_t runs() const { return slice_ / WIDTH; }

  // That of a row, of all batches, from a column on.
  __device__ __forceinline__ int64_t run_of(int64_t row, int64_t column) const {
    return row * runs_per_row_ + column / WIDTH;
  }

  __device__ __forceinline__ Sums of(int64_t run) const {
    Sums sums[1];
    of({run}, sums);
    return sums[0];
  }
  // Of several runs, which are on their way together.
  template <int COUNT>
  __device__ __forceinline__ void of(const int64_t (&runs)[COUNT], Sums (&sums)[COUNT]) const {
    constexpr int SLICES = COUNT < 4 ? 4 / COUNT : 2;  // at one time
    const GemmRest& rest = problem_.rest;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) sums[k] = {};
#pragma unroll SLICES
    for (int s = 0; s < rest.slices; ++s) {
      Sums part[COUNT];
#pragma unroll
      for (int k = 0; k < COUNT; ++k) {
        part[k] = load_vector<WIDTH>(rest.partials + s * slice_ + runs[k] * WIDTH);
      }
#pragma unroll
      for (int k = 0; k < COUNT; ++k) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sums[k].element[i] += part[k].element[i];
      }
    }
  }

  // The epilogue's results of a run; `exponents`: of the scales.
  __device__ __forceinline__ void finish(int64_t run, Sums sums,
                                         const int (&exponents)[SCALES]) const {
    const int64_t row = run / runs_per_row_, batch = row / problem_.m;
    const int product = problem_.product_of(batch);
    int right = exponents[1];
#pragma unroll
    for (int p = 1; p < SCALES - 1; ++p) right = product == p ? exponents[1 + p] : right;
    const Unscale unscale = Unscale::of(exponents[0] + right);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sums.element[i] = unscale(sums.element[i]);
    GemmEpilogue epilogue(problem_);
    if constexpr (ANY_BATCHES) epilogue.select(batch);
    epilogue.apply(sums, row - batch * problem_.m, (run - row * runs_per_row_) * WIDTH);
  }

 private:
  const Problem& problem_;
  int64_t slice_, runs_per_row_;
};

// out = epilogue of the slices' sums, if the pairs carried the factors; whether they did.
template <class Problem>
__device__ __forceinline__ bool sum_slices(const Problem& problem) {
  int exponents[SCALES] = {};
  if (problem.rest.header != nullptr) {  // Only pairs have scales, and a guard.
    // The scales are on their way while the guard is looked at.
#pragma unroll
    for (int i = 0; i < SCALES; ++i) exponents[i] = problem.rest.header->exponents[i];
    if (!pairs_were_exact(problem.rest)) return false;
  }
  const SlicedSums<Problem> slices(problem);
  for (int64_t run = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
       run < slices.runs(); run += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    slices.finish(run, slices.of(run), exponents);
  }
  return true;
}

// A __global__ function that runs add_slices: little, in many threads.
template <class Problem>
struct SumVariant {
  static constexpr int THREADS = 256;
  static constexpr int MIN_BLOCKS = 5;  // of a multiprocessor

  void (*kernel)(Problem);

  // The kernel after another one has left it `problem.rest`.
  cudaError_t launch_rest(const Problem& problem, cudaStream_t stream, int multiprocessors) const {
    const int64_t sums = problem.batches * problem.m * problem.rest.partial_pitch;
    const int64_t all = (sums / SlicedSums<Problem>::WIDTH + THREADS - 1) / THREADS;
    const int64_t at_once = int64_t{MIN_BLOCKS} * multiprocessors;
    return launch_dependent(kernel, static_cast<unsigned>(all < at_once ? all : at_once), THREADS,
                            stream, problem);
  }
};

// Its body. A kernel before has computed all, where the pairs did not carry the factors.
template <class Problem>
__device__ __forceinline__ void add_slices(const Problem& problem) {
  wait_for_previous_kernel();
  static_cast<void>(sum_slices(problem));
}

// Whether a kernel before has multiplied; then its slices are added.
template <class Problem>
__device__ __forceinline__ bool is_multiplied(const Problem& problem) {
  if constexpr (sizeof(compute_t<typename Problem::Factor>) == 4) {
    if (problem.rest.header != nullptr) {
      if (ANY_SLICES && problem.rest.slices > 0) return sum_slices(problem);
      return pairs_were_exact(problem.rest);
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
