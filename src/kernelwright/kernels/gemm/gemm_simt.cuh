#pragma once
// Matrix product on the CUDA cores: fp32-accurate (fp64 for double), register-tiled.
//
// A block computes a BLOCK_M x BLOCK_N tile of out, stepping through K by BLOCK_K: while it
// multiplies one pair of shared tiles, the copies of the next STAGES - 1 are in flight. A warp
// computes (LANES_M THREAD_M) x (LANES_N THREAD_N), a thread THREAD_M x THREAD_N in registers. Each
// step of K costs a thread THREAD_M + THREAD_N shared reads for THREAD_M * THREAD_N multiply-adds;
// at 8 x 8 the multiply-adds are the limit: 2 M N K FLOP against 67 TFLOP/s on an H200.
//
// A config has
//   BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, STAGES
//   PROMOTE_K  sums of so many products are added to a second sum. One running sum of fp32 loses
//              accuracy as sqrt(K); the second sum lives in shared memory, costs 4 BLOCK_M BLOCK_N
//              bytes of it and well under 1 % of the time. 0: one running sum, and the launcher
//              takes another variant for K above LONGEST_SUM.
//   LHS, RHS   Major: how the factors lie
//   MIN_TILES  the launcher takes another variant for products with fewer tiles
// Legal when every static_assert below and in gemm_tile.cuh holds and SHARED_BYTES fits the device.

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_problem.cuh"
#include "gemm_tile.cuh"

// A tile of the result: which batch it belongs to, and its first row and column.
struct TilePosition {
  int64_t batch[MAX_BATCH_RANK];
  int64_t row;
  int64_t column;
};

template <class Config, class Problem>
struct GemmTile {
  using T = typename Problem::Factor;
  using S = compute_t<T>;
  static constexpr int BLOCK_M = Config::BLOCK_M, BLOCK_N = Config::BLOCK_N;
  static constexpr int BLOCK_K = Config::BLOCK_K, STAGES = Config::STAGES;
  static constexpr int THREAD_M = Config::THREAD_M, THREAD_N = Config::THREAD_N;
  static constexpr int PROMOTE_K = Config::PROMOTE_K;
  static constexpr int THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);
  // Of a warp: 4 x 8 threads, or as many side by side as a narrow tile has.
  static constexpr int ACROSS = BLOCK_N / THREAD_N, DOWN = BLOCK_M / THREAD_M;
  static constexpr int LANES_N = ACROSS < 8 ? ACROSS : DOWN < 4 ? 32 / DOWN : 8;
  static constexpr int LANES_M = 32 / LANES_N;
  static constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
  static constexpr int VECTOR = 16 / sizeof(S);  // elements of one shared access

  using LhsCopy = TileCopy<T, Config::LHS, BLOCK_K, BLOCK_M, THREADS>;
  using RhsCopy = TileCopy<T, Config::RHS, BLOCK_K, BLOCK_N, THREADS>;
  static constexpr int SUMS = PROMOTE_K > 0 ? THREADS * THREAD_M * THREAD_N : 0;
  static constexpr int SHARED_BYTES =
      (STAGES * (LhsCopy::ELEMENTS + RhsCopy::ELEMENTS) + SUMS) * static_cast<int>(sizeof(S)) +
      static_cast<int>(sizeof(TilePosition));

  // For __launch_bounds__: as many blocks on a multiprocessor as its shared memory holds and as
  // leave a thread the registers that its sums, its fragments and the addresses need.
  static constexpr int SUM_REGISTERS = THREAD_M * THREAD_N * static_cast<int>(sizeof(S)) / 4;
  static constexpr bool HAS_FEW_REGISTERS = SUM_REGISTERS <= (PROMOTE_K > 0 ? 16 : 32);
  static constexpr int REGISTERS = HAS_FEW_REGISTERS ? 96 : SUM_REGISTERS <= 64 ? 128 : 255;
  static constexpr int BLOCKS_BY_REGISTERS = 65536 / (THREADS * REGISTERS);
  static constexpr int BLOCKS_BY_SHARED = 228 * 1024 / (SHARED_BYTES + 1024);
  static constexpr int FEWER_BLOCKS =
      BLOCKS_BY_REGISTERS < BLOCKS_BY_SHARED ? BLOCKS_BY_REGISTERS : BLOCKS_BY_SHARED;
  static constexpr int MOST_BLOCKS = 32;
  static constexpr int MIN_BLOCKS = FEWER_BLOCKS > MOST_BLOCKS ? MOST_BLOCKS
                                    : FEWER_BLOCKS > 1         ? FEWER_BLOCKS
                                                               : 1;

  static_assert(LANES_M * LANES_N == 32, "a warp is a whole number of rows of threads");
  static_assert(BLOCK_M % WARP_M == 0, "warps of LANES_M THREAD_M rows tile BLOCK_M");
  static_assert(BLOCK_N % WARP_N == 0, "warps of LANES_N THREAD_N columns tile BLOCK_N");
  static_assert(THREADS <= 1024, "a block has at most 1024 threads");
  static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0,
                "a thread reads its rows and columns from shared memory 16 bytes at a time");
  static_assert(STAGES >= 2, "one stage is multiplied while another is filled");
  static_assert(PROMOTE_K % BLOCK_K == 0, "promotion happens between steps of BLOCK_K");
  static_assert(sizeof(S) >= 4, "products are summed in float or double");

  __host__ __device__ static int64_t count(const Problem& problem) {
    return problem.batches * ((problem.m + BLOCK_M - 1) / BLOCK_M) *
           ((problem.n + BLOCK_N - 1) / BLOCK_N);
  }

  // First of this thread's rows and columns in the tile; a thread's rows come in groups of 16
  // bytes, a group of every lane after another, so that a warp reads runs of neighbouring
  // addresses.
  __device__ static int row(int i) {
    const int warp_m = threadIdx.x / 32 % (BLOCK_M / WARP_M);
    const int lane_m = threadIdx.x % 32 / LANES_N;
    return warp_m * WARP_M + (i / VECTOR * LANES_M + lane_m) * VECTOR + i % VECTOR;
  }
  __device__ static int column(int j) {
    const int warp_n = threadIdx.x / 32 / (BLOCK_M / WARP_M);
    const int lane_n = threadIdx.x % LANES_N;
    return warp_n * WARP_N + (j / VECTOR * LANES_N + lane_n) * VECTOR + j % VECTOR;
  }
};

// Tiles are numbered down columns of GROUP tiles, then along N, then down M: the blocks that run at
// one time then share rows of lhs and columns of rhs, which stay in the L2 cache.
template <class Tile, class Problem>
__device__ __forceinline__ TilePosition locate_tile(const Problem& problem, int64_t tile) {
  constexpr int64_t GROUP = 8;
  const int64_t tiles_m = (problem.m + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
  const int64_t tiles_n = (problem.n + Tile::BLOCK_N - 1) / Tile::BLOCK_N;
  TilePosition position;
  const int64_t batch = tile / (tiles_m * tiles_n);
  const int64_t in_batch = tile % (tiles_m * tiles_n);
  split_batch(problem, batch, position.batch);
  const int64_t group = in_batch / (GROUP * tiles_n);
  const int64_t in_group = in_batch % (GROUP * tiles_n);
  const int64_t rows_left = tiles_m - group * GROUP;
  const int64_t group_rows = rows_left < GROUP ? rows_left : GROUP;
  position.row = (group * GROUP + in_group % group_rows) * Tile::BLOCK_M;
  position.column = in_group / group_rows * Tile::BLOCK_N;
  return position;
}

// Adds the products of one pair of shared tiles to this thread's sums.
template <class Tile>
__device__ __forceinline__ void multiply_tile(
    const typename Tile::S* lhs, const typename Tile::S* rhs,
    typename Tile::S (&sums)[Tile::THREAD_M][Tile::THREAD_N]) {
  using S = typename Tile::S;
  constexpr int VECTOR = Tile::VECTOR;
#pragma unroll
  for (int k = 0; k < Tile::BLOCK_K; ++k) {
    Vector<S, VECTOR> a[Tile::THREAD_M / VECTOR];
    Vector<S, VECTOR> b[Tile::THREAD_N / VECTOR];
#pragma unroll
    for (int i = 0; i < Tile::THREAD_M / VECTOR; ++i) {
      a[i] = load_vector<VECTOR>(lhs + k * Tile::LhsCopy::PITCH + Tile::row(i * VECTOR));
    }
#pragma unroll
    for (int j = 0; j < Tile::THREAD_N / VECTOR; ++j) {
      b[j] = load_vector<VECTOR>(rhs + k * Tile::RhsCopy::PITCH + Tile::column(j * VECTOR));
    }
#pragma unroll
    for (int i = 0; i < Tile::THREAD_M; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::THREAD_N; ++j) {
        sums[i][j] += a[i / VECTOR].element[i % VECTOR] * b[j / VECTOR].element[j % VECTOR];
      }
    }
  }
}

// The second sums of a block's threads, in shared memory. Each thread meets only its own, 16 bytes
// at a time beside its neighbours', so no barrier and no bank conflict is involved.
template <class Tile>
class PromotedSums {
 public:
  using S = typename Tile::S;
  using Sums = S[Tile::THREAD_M][Tile::THREAD_N];
  static constexpr int VECTOR = Tile::VECTOR;

  __device__ __forceinline__ explicit PromotedSums(S* shared)
      : own_(shared + threadIdx.x * VECTOR) {}

  // Moves the running sums here and starts them again from zero.
  __device__ __forceinline__ void promote(Sums& sums, bool first) {
    if (!first) add_to(sums);
#pragma unroll
    for (int i = 0; i < Tile::THREAD_M; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::THREAD_N; j += VECTOR) {
        Vector<S, VECTOR> values;
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          values.element[v] = sums[i][j + v];
          sums[i][j + v] = 0;
        }
        store_vector(address(i, j), values);
      }
    }
  }

  // Adds what was moved here to the running sums.
  __device__ __forceinline__ void add_to(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < Tile::THREAD_M; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::THREAD_N; j += VECTOR) {
        const Vector<S, VECTOR> values = load_vector<VECTOR>(address(i, j));
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sums[i][j + v] += values.element[v];
      }
    }
  }

 private:
  __device__ __forceinline__ S* address(int i, int j) const {
    return own_ + (i * Tile::THREAD_N + j) * Tile::THREADS;
  }

  S* own_;
};

// One tile of the result, by THREADS threads with SHARED_BYTES of dynamic shared memory.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_simt_tile(const Problem& problem, const TilePosition& at) {
  using Tile = GemmTile<Config, Problem>;
  using T = typename Tile::T;
  using S = typename Tile::S;
  constexpr int BLOCK_K = Tile::BLOCK_K;
  constexpr int STAGES = Tile::STAGES;

  extern __shared__ __align__(16) unsigned char shared[];
  S* const lhs_stages = reinterpret_cast<S*>(shared);
  S* const rhs_stages = lhs_stages + STAGES * Tile::LhsCopy::ELEMENTS;
  S* const second_sums = rhs_stages + STAGES * Tile::RhsCopy::ELEMENTS;
  // Registers are for the sums: the epilogue finds the position here.
  TilePosition* const position = reinterpret_cast<TilePosition*>(second_sums + Tile::SUMS);

  if (threadIdx.x == 0) *position = at;
  const MatrixOperand& lhs = problem.lhs();
  const MatrixOperand& rhs = problem.rhs();
  typename Tile::LhsCopy lhs_copy(batch_base<const T>(problem, Problem::LHS, at.batch),
                                  lhs.row_stride, lhs.column_stride, at.row, problem.m);
  typename Tile::RhsCopy rhs_copy(batch_base<const T>(problem, Problem::RHS, at.batch),
                                  rhs.column_stride, rhs.row_stride, at.column, problem.n);

  const int steps = static_cast<int>((problem.k + BLOCK_K - 1) / BLOCK_K);
  const int last_valid_k = static_cast<int>((problem.k - 1) % BLOCK_K) + 1;
  // One group is committed for each step, also past the end, so that waiting can count groups.
  const auto copy_step = [&](int step, int stage) {
    if (step < steps) {
      const int valid_k = step == steps - 1 ? last_valid_k : BLOCK_K;
      lhs_copy.copy_next(lhs_stages + stage * Tile::LhsCopy::ELEMENTS, valid_k);
      rhs_copy.copy_next(rhs_stages + stage * Tile::RhsCopy::ELEMENTS, valid_k);
    }
    commit_copies();
  };

  S sums[Tile::THREAD_M][Tile::THREAD_N] = {};
  PromotedSums<Tile> promoted(second_sums);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) copy_step(s, s);
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    wait_copies<STAGES - 2>();
    // This step's copies of every thread are visible, and the stage that is filled next is free.
    __syncthreads();
    copy_step(step + STAGES - 1, stage == 0 ? STAGES - 1 : stage - 1);
    multiply_tile<Tile>(lhs_stages + stage * Tile::LhsCopy::ELEMENTS,
                        rhs_stages + stage * Tile::RhsCopy::ELEMENTS, sums);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    if constexpr (Tile::PROMOTE_K > 0) {
      constexpr int INTERVAL = Tile::PROMOTE_K / BLOCK_K;
      if ((step + 1) % INTERVAL == 0) promoted.promote(sums, step + 1 == INTERVAL);
    }
  }
  if constexpr (Tile::PROMOTE_K > 0) {
    if (problem.k > Tile::PROMOTE_K - BLOCK_K) promoted.add_to(sums);
  }
  __syncthreads();  // K = 0 came here without one: the position must be visible

  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) epilogue.select(position->batch);
#pragma unroll
  for (int i = 0; i < Tile::THREAD_M; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::THREAD_N; j += Problem::COLUMN_VECTOR) {
      Vector<S, Problem::COLUMN_VECTOR> run;
#pragma unroll
      for (int v = 0; v < Problem::COLUMN_VECTOR; ++v) run.element[v] = sums[i][j + v];
      epilogue.apply(run, position->row + Tile::row(i), position->column + Tile::column(j));
    }
  }
}

// The body of a kernel with a block for each tile.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_simt(const Problem& problem) {
  wait_for_previous_kernel();
  gemm_simt_tile<Config>(
      problem, locate_tile<GemmTile<Config, Problem>>(problem, problem.first_tile + blockIdx.x));
}

// A __global__ function that runs gemm_simt<Config>, and what it was compiled for.
template <class Config, class Problem>
struct GemmVariant {
  using Tile = GemmTile<Config, Problem>;
  void (*kernel)(Problem);

  static int64_t tiles(const Problem& problem) { return Tile::count(problem); }

  // As many products are summed one after the other elsewhere, too (PROMOTE_K).
  static constexpr int64_t LONGEST_SUM = 512;

  // Whether the operands lie as the kernel was compiled to read them, and fill enough blocks.
  static bool admits(const Problem& problem) {
    const MatrixOperand& lhs = problem.lhs();
    const MatrixOperand& rhs = problem.rhs();
    return tiles(problem) >= Config::MIN_TILES &&
           (Config::PROMOTE_K > 0 || problem.k <= LONGEST_SUM) &&
           is_major(Config::LHS, problem, Problem::LHS, problem.m, lhs.row_stride,
                    lhs.column_stride) &&
           is_major(Config::RHS, problem, Problem::RHS, problem.n, rhs.column_stride,
                    rhs.row_stride);
  }

  static int64_t workspace_bytes(const Problem&) { return 0; }

  cudaError_t launch(Problem problem, cudaStream_t stream, void* /*workspace*/) const {
    constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;
    const int64_t all = tiles(problem);
    cudaError_t status = cudaSuccess;
    int64_t& begin = problem.first_tile;
    for (begin = 0; begin < all && status == cudaSuccess; begin += MAX_BLOCKS) {
      const int64_t left = all - begin;
      const auto blocks = static_cast<unsigned>(left < MAX_BLOCKS ? left : MAX_BLOCKS);
      status = launch_dependent(kernel, blocks, Tile::THREADS, stream, problem, Tile::SHARED_BYTES);
    }
    return status;
  }

  // The kernel (of finish_gemm) after another one has left it `problem.rest`.
  cudaError_t launch_rest(const Problem& problem, cudaStream_t stream, int multiprocessors) const {
    const int64_t at_once = int64_t{Tile::MIN_BLOCKS} * multiprocessors;
    const unsigned blocks = blocks_of_rest(problem, tiles(problem), Tile::THREADS, at_once);
    return launch_dependent(kernel, blocks, Tile::THREADS, stream, problem, Tile::SHARED_BYTES);
  }

 private:
  static bool is_major(Major major, const Problem& problem, int operand, int64_t size,
                       int64_t mn_stride, int64_t k_stride) {
    constexpr int VECTOR = 16 / sizeof(typename Problem::Factor);
    if (ANY_SIMT_MN && major == Major::MN) {
      return mn_stride == 1 && size % VECTOR == 0 && problem.is_aligned(operand, k_stride, VECTOR);
    }
    if (ANY_SIMT_K && major == Major::K) return k_stride == 1 || problem.k <= 1;
    return true;
  }
};
