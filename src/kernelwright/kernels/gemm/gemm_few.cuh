#pragma once
// Matrix product of 16-bit factors with up to 16 rows or columns, of which memory sets the speed: a
// token or some for each of a few texts. Tensor cores multiply out of registers, where both factors
// come to straight from memory: nothing waits in shared memory but the sums of warps.
//
// Below, "rows" are those of the small factor, "columns" those of the wide one; where it is N that
// is small, the product is computed as its transpose. A block has all rows of some columns; its
// warps share K, and add their sums in order in the end: the same bits in every run.
//
// Of a row or column a thread has 8 neighbours along K where an instruction asks for twice two
// pairs: which of the K of an instruction they are is all the same, if both factors agree.
//
// A config has
//   GROUPS   of 8 columns that a block computes
//   LOADS    of 32 neighbours along K of each row and column that a warp has under way
//   WARPS    of a block

#include <cstring>

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_problem.cuh"
#include "mma_16x8x16.cuh"

template <class Config, class Problem>
struct FewProductTile {
  using T = typename Problem::Factor;
  static constexpr int ROWS = 16, GROUPS = Config::GROUPS, COLUMNS = 8 * GROUPS;
  static constexpr int LOADS = Config::LOADS, WARPS = Config::WARPS, THREADS = 32 * WARPS;
  static constexpr int VECTOR = 8;        // neighbours along K that a thread loads at once
  static constexpr int RUN = 4 * VECTOR;  // that four threads load
  static constexpr int STEP = LOADS * RUN;
  static constexpr int WIDTH = Problem::COLUMN_VECTOR;
  static_assert(sizeof(T) == 2, "the factors have 16 bits");
  static_assert(COLUMNS % WIDTH == 0, "a block's columns are whole vectors");
};

// Eight neighbours along K, two in each word.
struct FewWords {
  uint32_t word[4];
};

template <class T>
__device__ __forceinline__ FewWords load_few(const T* address, bool exists) {
  FewWords words = {};
  if (exists) {
    const Vector<T, 8> loaded = load_constant_vector<8>(address);
    memcpy(&words, &loaded, sizeof(words));
  }
  return words;
}

// The sums of this warp's part of K: sums[group] as WarpProduct has them.
template <class Tile, class Problem>
__device__ __forceinline__ void sum_few(const Problem& problem, const typename Tile::T* lhs,
                                        const typename Tile::T* rhs, int64_t first,
                                        float (&sums)[Tile::GROUPS][4]) {
  using T = typename Tile::T;
  const int lane = threadIdx.x % 32, place = lane / 4, part = lane % 4;
  const int64_t row_stride = problem.lhs().row_stride;
  const int64_t column_stride = problem.rhs().column_stride;
  const bool has_upper = place < problem.m, has_lower = place + 8 < problem.m;
  const T* const upper = lhs + place * row_stride;
  const T* const lower = lhs + (place + 8) * row_stride;
  const T* const column = rhs + (first + place) * column_stride;
#pragma unroll 1
  for (int64_t step = threadIdx.x / 32 * Tile::STEP; step < problem.k;
       step += Tile::WARPS * Tile::STEP) {
    FewWords wide[Tile::LOADS][Tile::GROUPS], rows[Tile::LOADS][2];
#pragma unroll
    for (int load = 0; load < Tile::LOADS; ++load) {
      const int64_t at = step + load * Tile::RUN + part * Tile::VECTOR;
      const bool exists = at < problem.k;
#pragma unroll
      for (int group = 0; group < Tile::GROUPS; ++group) {
        const bool has_column = first + group * 8 + place < problem.n;
        wide[load][group] = load_few(column + group * 8 * column_stride + at, exists && has_column);
      }
      rows[load][0] = load_few(upper + at, exists && has_upper);
      rows[load][1] = load_few(lower + at, exists && has_lower);
    }
#pragma unroll
    for (int load = 0; load < Tile::LOADS; ++load) {
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const uint32_t pairs[4] = {rows[load][0].word[half], rows[load][1].word[half],
                                   rows[load][0].word[half + 1], rows[load][1].word[half + 1]};
#pragma unroll
        for (int group = 0; group < Tile::GROUPS; ++group) {
          const FewWords& own = wide[load][group];
          const uint32_t columns[2] = {own.word[half], own.word[half + 1]};
          WarpProduct<T>::add(sums[group], pairs, columns);
        }
      }
    }
  }
}

// The body of a kernel of Tile::THREADS threads.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_few(const Problem& problem) {
  using Tile = FewProductTile<Config, Problem>;
  using T = typename Tile::T;
  __shared__ __align__(16) float shared[Tile::WARPS][Tile::ROWS][Tile::COLUMNS];
  const int64_t tiles = (problem.n + Tile::COLUMNS - 1) / Tile::COLUMNS;
  const int64_t batch = problem.batches > 1 ? blockIdx.x / tiles : 0;
  const int64_t first = (blockIdx.x - batch * tiles) * Tile::COLUMNS;
  int64_t at[MAX_BATCH_RANK];
  split_batch(problem, batch, at);

  // The wide factor is on its way while the kernel before ends.
  const T* const rhs = batch_base<const T>(problem, Problem::RHS, at);
  const int64_t stride = problem.rhs().column_stride, left = problem.n - first;
  prefetch_lines(rhs + first * stride, stride,
                 left < Tile::COLUMNS ? static_cast<int>(left) : Tile::COLUMNS, problem.k,
                 threadIdx.x, Tile::THREADS);
  wait_for_previous_kernel();
  let_next_kernel_start();
  float sums[Tile::GROUPS][4] = {};
  sum_few<Tile>(problem, batch_base<const T>(problem, Problem::LHS, at), rhs, first, sums);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int group = 0; group < Tile::GROUPS; ++group) {
    float* const target = &shared[warp][lane / 4][group * 8 + lane % 4 * 2];
    store_vector(target, Vector<float, 2>{{sums[group][0], sums[group][1]}});
    store_vector(target + 8 * Tile::COLUMNS, Vector<float, 2>{{sums[group][2], sums[group][3]}});
  }
  __syncthreads();

  constexpr int RUNS = Tile::COLUMNS / Tile::WIDTH;
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(at);
  for (int run = threadIdx.x; run < Tile::ROWS * RUNS; run += Tile::THREADS) {
    const int row = run / RUNS, column = run % RUNS * Tile::WIDTH;
    Vector<float, Tile::WIDTH> all = {};
#pragma unroll
    for (int i = 0; i < Tile::WARPS; ++i) {
      const auto own = load_vector<Tile::WIDTH>(&shared[i][row][column]);
#pragma unroll
      for (int w = 0; w < Tile::WIDTH; ++w) all.element[w] += own.element[w];
    }
    epilogue.apply(all, row, first + column);
  }
}

// A __global__ function that runs gemm_few<Config>.
template <class Config, class Problem>
struct FewProductVariant {
  using Tile = FewProductTile<Config, Problem>;
  static constexpr int THREADS = Tile::THREADS;
  void (*kernel)(Problem);

  static bool admits(const Problem& given) {
    const Problem problem = with_few_rows(given);
    return problem.m <= Tile::ROWS && problem.k % Tile::VECTOR == 0 &&
           problem.rhs().row_stride == 1 && problem.lhs().column_stride == 1 &&
           problem.is_aligned(Problem::RHS, problem.rhs().column_stride, Tile::VECTOR) &&
           problem.is_aligned(Problem::LHS, problem.lhs().row_stride, Tile::VECTOR) &&
           blocks(problem) < (int64_t{1} << 31);
  }

  static int64_t workspace_bytes(const Problem&) { return 0; }

  cudaError_t launch(const Problem& given, cudaStream_t stream, void*) const {
    const Problem problem = with_few_rows(given);
    return launch_dependent(kernel, static_cast<unsigned>(blocks(problem)), THREADS, stream,
                            problem);
  }

 private:
  static Problem with_few_rows(const Problem& given) {
    return given.n < given.m ? given.transposed() : given;
  }

  static int64_t blocks(const Problem& problem) {
    return problem.batches * ((problem.n + Tile::COLUMNS - 1) / Tile::COLUMNS);
  }
};
