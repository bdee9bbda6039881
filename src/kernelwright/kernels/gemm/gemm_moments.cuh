#pragma once
// Moments of a product's columns (column_moments.cuh) where no kernel of gemm_sm90_direct.cuh
// stores the result: of slices' sums by the kernel that adds them, else by one that reads the
// result.

#include "column_moments.cuh"
#include "dependent_launch.cuh"
#include "gemm_finish.cuh"
#include "gemm_sm90_moments.cuh"
#include "moments_of_columns.cuh"

// A block's part of all rows, 32 columns of it: each warp has 16 rows.
template <class Problem>
struct MomentUnit {
  static constexpr int ACROSS = 8, DOWN = 32 / ACROSS, COUNT = MOMENT_ROWS / DOWN;
  static constexpr int COLUMNS = ACROSS * MOMENT_COLUMNS;
  static constexpr int WARPS = PART_MOMENT_ROWS / MOMENT_ROWS, THREADS = 32 * WARPS;

  __host__ __device__ static int64_t across(const Problem& problem) {
    return (problem.n + COLUMNS - 1) / COLUMNS;
  }
  __host__ __device__ static int64_t rows(const Problem& problem) {
    return problem.m * problem.batches;
  }
  static unsigned blocks(const Problem& problem) {
    return static_cast<unsigned>(moment_parts(rows(problem)) * across(problem));
  }

  using Runs = Vector<float, MOMENT_COLUMNS>[COUNT];

  // `fill` is called once, with rows, the column from which on they are wanted, which of them there
  // are, and where they go. Those that are not there are some that are: all may be read.
  template <class Fill>
  __device__ __forceinline__ static void store(const Problem& problem, const Fill& fill) {
    __shared__ __align__(16) float means[WARPS * COLUMNS], squares[WARPS * COLUMNS];
    const int64_t part = blockIdx.x / across(problem), part_row = part * PART_MOMENT_ROWS;
    const int64_t first_column = (blockIdx.x - part * across(problem)) * COLUMNS;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int own_column = lane % ACROSS * MOMENT_COLUMNS;
    const int64_t column = first_column + own_column, left = rows(problem) - part_row;
    const int there = left < PART_MOMENT_ROWS ? static_cast<int>(left) : PART_MOMENT_ROWS;
    const bool has_column = column < problem.n;
    int64_t own_rows[COUNT];
    bool exist[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int row = warp * MOMENT_ROWS + lane / ACROSS + i * DOWN;
      exist[i] = row < there && has_column;
      own_rows[i] = part_row + (exist[i] ? row : 0);
    }
    Runs runs;
    fill(own_rows, has_column ? column : 0, exist, runs);
    const LaneMoments own = moments_of_warp<ACROSS>(there - warp * MOMENT_ROWS, runs);
    if (lane < ACROSS) {
      store_vector(means + warp * COLUMNS + own_column, own.means);
      store_vector(squares + warp * COLUMNS + own_column, own.squares);
    }
    __syncthreads();
    const int64_t columns = problem.n - first_column;
    join_moments(problem.moments + (part * problem.moment_pitch + first_column) * MOMENT_WORDS,
                 there, columns < COLUMNS ? static_cast<int>(columns) : COLUMNS, means, squares,
                 COLUMNS, static_cast<int>(threadIdx.x), THREADS);
  }
};

// A __global__ function that runs add_slices_and_moments.
template <class Problem>
struct MomentSumVariant {
  using Unit = MomentUnit<Problem>;
  static constexpr int THREADS = Unit::THREADS;
  static constexpr int MIN_BLOCKS = 4;  // of a multiprocessor

  void (*kernel)(Problem);

  cudaError_t launch_rest(const Problem& problem, cudaStream_t stream, int) const {
    return launch_dependent(kernel, Unit::blocks(problem), THREADS, stream, problem);
  }
};

template <class Problem>
__device__ __forceinline__ void add_slices_and_moments(const Problem& problem) {
  wait_for_previous_kernel();
  const SlicedSums<Problem> slices(problem);
  const int exponents[SCALES] = {};  // of factors that are not scaled
  using Unit = MomentUnit<Problem>;
  constexpr int COUNT = Unit::COUNT;
  Unit::store(problem, [&](const int64_t (&rows)[COUNT], int64_t column, const bool (&exist)[COUNT],
                           typename Unit::Runs& sums) {
    int64_t runs[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) runs[i] = slices.run_of(rows[i], column);
    slices.of(runs, sums);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (exist[i]) slices.finish(runs[i], sums[i], exponents);
    }
  });
}

// A __global__ function that runs moments_of_columns, and whether it is needed.
template <class Problem>
struct MomentVariant {
  MomentKernel kernel;

  // Whether the kernel that stores rows of the result from registers stores their moments.
  static bool are_stored(const Problem& problem) {
    return problem.batches == 1 && problem.operands[Problem::OUT].has_column_vectors;
  }
  // The kernel of a variant, and after it this one, unless that one `stores` the moments.
  template <class Variant>
  cudaError_t launch(const Variant& variant, bool stores, const Problem& problem,
                     cudaStream_t stream, void* workspace) const {
    if (stores) return variant.launch(problem, stream, workspace);
    Problem without = problem;
    without.moments = nullptr;
    const cudaError_t status = variant.launch(without, stream, workspace);
    if (status != cudaSuccess) return status;
    const auto* const results = static_cast<const float*>(problem.operands[Problem::OUT].data);
    const int64_t rows = problem.m * problem.batches;
    const ColumnMoments moments{problem.moments,
                                results,
                                rows,
                                problem.n,
                                moment_parts(rows),
                                problem.moment_pitch,
                                problem.operands[Problem::OUT].row_stride};
    return launch_moments(kernel, moments, stream);
  }
};
