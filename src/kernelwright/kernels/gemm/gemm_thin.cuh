#pragma once
// Matrix product with few rows or few columns (matrix-vector, a handful of tokens, dot products).
// Memory sets its speed: the wide factor is read once, at the bandwidth of the device, and meets
// each of the thin factor's rows in registers. IEEE arithmetic on the CUDA cores; sums in a fixed
// order, without atomic additions of numbers: the same bits in every run.
//
// Below, "rows" are those of the thin factor and "columns" those of the wide one: where it is N
// that is small, the product is computed as its transpose, by exchanged strides.
//
// A block computes ROWS x (column_lanes COLUMNS) results over a slice of K; where the thin factor
// has more rows, the blocks of its tiles share what they read of the wide one through the L2 cache.
// Its threads lie column_lanes x k_lanes (powers of two, chosen for the sizes of the call): a
// thread steps through K, in each step loads COLUMNS x STEP elements of the wide factor, all before
// the first use, and multiplies them with the rows, which wait in shared memory; the next rows are
// copied meanwhile. In the end the k_lanes of a warp are summed in pairs, then the warps in order.
// Where the tiles alone leave multiprocessors idle, K is cut in slices: they leave their sums in
// the workspace, and the last block of a tile to finish adds them in order.
//
// A config has
//   ROWS             of a tile: 1, 2, 4, 8 or 16
//   ROW_TILES        most tiles of rows; the launcher takes another variant for more
//   COLUMNS          of a thread; at least 16 bytes of sums
//   STEP             elements along K that a thread loads at once for each of its columns
//   THREADS          of a block
//   RESIDENT         blocks on a multiprocessor at one time: caps the registers of a thread.
//                    RESIDENT THREADS COLUMNS STEP sizeof(factor) bytes are in flight on each
//                    multiprocessor: 48 KB or more reach the bandwidth of an H200
//   MULTIPROCESSORS  of the device
//   WIDE             Major: the dimension along which neighbouring threads read the wide factor, MN
//                    (its own) or K, or NONE: whichever is contiguous in the call (both are
//                    compiled)

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_problem.cuh"
#include "gemm_thin_tile.cuh"

// What a block computes.
struct ThinPosition {
  int64_t tile;  // counted over all batches
  int64_t batch;
  int64_t first_row;
  int64_t first;  // column
  int64_t slice;
};

// The first element of a factor in this batch.
template <class T, class Problem>
__device__ __forceinline__ const T* factor_base(const Problem& problem, const ThinFactor& factor,
                                                const int64_t (&index)[MAX_BATCH_RANK]) {
  int64_t offset = 0;
  if constexpr (ANY_BATCHES) {
#pragma unroll
    for (int d = 0; d < MAX_BATCH_RANK; ++d) {
      if (d < problem.batch_rank) {
        offset += index[d] * problem.operands[factor.operand].batch_strides[d];
      }
    }
  }
  return static_cast<const T*>(factor.data) + offset;
}

// Sums this block's slice of K into shared memory; returns the number of groups there.
template <class Tile, Major MAJOR, int ACCESS, class Problem>
__device__ __forceinline__ int sum_slice(const ThinParameters<Problem>& parameters,
                                         const ThinPosition& position, typename Tile::S* shared) {
  using T = typename Tile::T;
  const Problem& problem = parameters.problem;
  const ThinPlan& plan = parameters.plan;
  int64_t at[MAX_BATCH_RANK];
  split_batch(problem, position.batch, at);
  const T* const thin =
      factor_base<T>(problem, plan.thin, at) + position.first_row * plan.thin.stride;
  const T* const wide = factor_base<T>(problem, plan.wide, at);
  const int64_t begin = position.slice * plan.slice_k;
  const int size = static_cast<int>(min(plan.slice_k, problem.k - begin));
  const int step = Tile::STEP * plan.k_lanes;

  const int rows =
      static_cast<int>(min(plan.thin.size - position.first_row, static_cast<int64_t>(Tile::ROWS)));
  const ThinChunks<Tile> chunks(plan.thin, thin + begin * plan.thin.k_stride, rows, shared);
  ThinThread<Tile, MAJOR, ACCESS> thread(plan, wide + begin * plan.wide.k_stride, position.first);
  constexpr int PROMOTE_STEPS = 8;
  int steps = 0;
  for (int k = 0; k < size; k += step) {
    if (++steps == PROMOTE_STEPS) {
      thread.promote();
      steps = 0;
    }
    thread.load(size - k);
    if ((k & (Tile::CHUNK_K - 1)) == 0) {
      if (k == 0) chunks.copy(k, size, step);
      wait_copies<0>();
      // This chunk's copies of every thread are visible, and the other chunk has been read.
      __syncthreads();
      if (k + Tile::CHUNK_K < size) chunks.copy(k + Tile::CHUNK_K, size, step);
    }
    thread.multiply(chunks.chunk(k), k & (Tile::CHUNK_K - 1));
  }
  return thread.leave_sums(shared);
}

// Adds what `groups` of threads left, `size` apart, in order.
template <class S>
__device__ __forceinline__ S sum_groups(const S* shared, int groups, int size) {
  S sum = shared[0];
  for (int group = 1; group < groups; ++group) sum += shared[group * size];
  return sum;
}

// Leaves the slice's sums in the workspace. True in the last block of the tile to come here, which
// then has the sums of all slices in shared memory.
template <class Tile, class Problem>
__device__ __forceinline__ bool sum_slices(const ThinParameters<Problem>& parameters,
                                           const ThinPosition& position, int groups,
                                           typename Tile::S* shared) {
  using S = typename Tile::S;
  const int slices = static_cast<int>(parameters.plan.slices);
  const int size = Tile::ROWS * Tile::COLUMNS * parameters.plan.column_lanes;
  S* const all = static_cast<S*>(parameters.slice_sums) + position.tile * slices * size;
  for (int i = threadIdx.x; i < size; i += Tile::THREADS) {
    all[position.slice * size + i] = sum_groups(shared + i, groups, size);
  }
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // the counters are zero
    is_last = atomicAdd(parameters.finished + position.tile, 1u) + 1 == slices;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();

  // Where there are fewer results than threads, several threads share the slices of one.
  const int lanes = size < Tile::THREADS ? size : Tile::THREADS;
  const int shares = Tile::THREADS / lanes;
  const int share = threadIdx.x / lanes;
  for (int i = threadIdx.x % lanes; i < size; i += lanes) {
    S sum = 0;
#pragma unroll 16
    for (int s = share; s < slices; s += shares) {
      sum += __ldcg(all + static_cast<int64_t>(s) * size + i);
    }
    shared[share * lanes + i] = sum;
  }
  for (int half = shares / 2; half > 0; half /= 2) {
    __syncthreads();
    if (share < half) shared[threadIdx.x] += shared[threadIdx.x + half * lanes];
  }
  __syncthreads();
  return true;
}

// Applies the epilogue to the sums in shared memory and stores the results.
template <class Tile, class Problem>
__device__ __forceinline__ void store_tile(const ThinParameters<Problem>& parameters,
                                           const ThinPosition& position, int groups,
                                           const typename Tile::S* shared) {
  constexpr int WIDTH = Problem::COLUMN_VECTOR;
  constexpr int ROW_RUNS = (Tile::ROWS + WIDTH - 1) / WIDTH;
  const bool is_transposed = parameters.plan.is_transposed;
  const int columns = Tile::COLUMNS * parameters.plan.column_lanes;
  const int column_runs = columns / WIDTH;
  GemmEpilogue epilogue(parameters.problem);
  if constexpr (ANY_BATCHES) epilogue.select(position.batch);
  const int runs = is_transposed ? columns * ROW_RUNS : Tile::ROWS * column_runs;
  for (int run = threadIdx.x; run < runs; run += Tile::THREADS) {
    const int row = is_transposed ? run % ROW_RUNS * WIDTH : run / column_runs;
    const int column = is_transposed ? run / ROW_RUNS : run % column_runs * WIDTH;
    Vector<typename Tile::S, WIDTH> sums = {};
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const int r = is_transposed ? row + i : row;
      const int c = is_transposed ? column : column + i;
      if (r < Tile::ROWS) {
        sums.element[i] = sum_groups(shared + r * columns + c, groups, Tile::ROWS * columns);
      }
    }
    if (is_transposed) {
      epilogue.apply(sums, position.first + column, position.first_row + row);
    } else {
      epilogue.apply(sums, position.first_row + row, position.first + column);
    }
  }
}

// The body of a kernel of THREADS threads and SHARED_BYTES of dynamic shared memory.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_thin(const ThinParameters<Problem>& parameters) {
  using Tile = ThinTile<Config, Problem>;
  extern __shared__ __align__(16) unsigned char thin_shared[];
  auto* const shared = reinterpret_cast<typename Tile::S*>(thin_shared);
  const ThinPlan& plan = parameters.plan;
  // Before slices comes the kernel that clears their counters, and nothing else is waited for.
  if (plan.slices == 1) wait_for_previous_kernel();
  // Neighbouring blocks read the same columns for other rows, or neighbouring ones: slices come
  // last.
  const int64_t tiles = parameters.problem.batches * plan.tiles;
  const int64_t block = parameters.problem.first_tile + blockIdx.x;
  const int64_t slice = plan.slices > 1 ? block / tiles : 0;
  const int64_t tile = block - slice * tiles;
  const int64_t batch = parameters.problem.batches > 1 ? tile / plan.tiles : 0;
  const int64_t of_batch = tile - batch * plan.tiles;
  const int64_t column_tile = Config::ROW_TILES > 1 ? of_batch / plan.row_tiles : of_batch;
  const int64_t row_tile = of_batch - column_tile * (Config::ROW_TILES > 1 ? plan.row_tiles : 1);
  const ThinPosition at = {tile, batch, row_tile * Tile::ROWS,
                           column_tile * (Tile::COLUMNS * plan.column_lanes), slice};
  // Registers are for the sums: what follows them finds the position here.
  __shared__ ThinPosition position;
  if (threadIdx.x == 0) position = at;

  int groups = 0;
  if constexpr (Config::WIDE != Major::MN) {
    constexpr int ACCESS = Tile::VECTOR < Tile::STEP ? Tile::VECTOR : Tile::STEP;
    if (plan.is_along_k && plan.wide.has_vectors) {
      groups = sum_slice<Tile, Major::K, ACCESS>(parameters, at, shared);
    } else if (plan.is_along_k) {
      groups = sum_slice<Tile, Major::K, 1>(parameters, at, shared);
    }
  }
  if constexpr (Config::WIDE != Major::K) {
    constexpr int ACCESS = Tile::VECTOR < Tile::COLUMNS ? Tile::VECTOR : Tile::COLUMNS;
    if (!plan.is_along_k && plan.wide.has_vectors) {
      groups = sum_slice<Tile, Major::MN, ACCESS>(parameters, at, shared);
    } else if (!plan.is_along_k) {
      groups = sum_slice<Tile, Major::MN, 1>(parameters, at, shared);
    }
  }
  if (plan.slices > 1) {
    if (!sum_slices<Tile>(parameters, position, groups, shared)) return;
    groups = 1;
  }
  store_tile<Tile>(parameters, position, groups, shared);
}

// Zeroes the counters of the kernel after it, which starts meanwhile.
__global__ void clear_counters_kernel(unsigned* counters, int64_t count) {
  let_next_kernel_start();
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) counters[i] = 0;
}

// A __global__ function that runs gemm_thin<Config>, and what it was compiled for.
template <class Config, class Problem>
struct ThinVariant {
  using Tile = ThinTile<Config, Problem>;
  using Parameters = ThinParameters<Problem>;
  static constexpr int THREADS = Tile::THREADS, MIN_BLOCKS = Config::RESIDENT;
  void (*kernel)(Parameters);

  static bool admits(const Problem& problem) {
    const ThinPlan found = plan(problem);
    return found.thin.size <= Tile::ROWS * Config::ROW_TILES &&
           (Config::WIDE == Major::NONE || (Config::WIDE == Major::K) == found.is_along_k);
  }

  static int64_t workspace_bytes(const Problem& problem) {
    return workspace_bytes(problem, plan(problem));
  }

  cudaError_t launch(const Problem& problem, cudaStream_t stream, void* workspace) const {
    return launch(problem, plan(problem), stream, workspace);
  }

  static int64_t workspace_bytes(const Problem& problem, const ThinPlan& plan) {
    if (plan.slices == 1) return 0;
    const int64_t tile_bytes =
        Tile::ROWS * Tile::COLUMNS * plan.column_lanes * static_cast<int64_t>(sizeof(Sum));
    return counter_bytes(problem, plan) + problem.batches * plan.tiles * plan.slices * tile_bytes;
  }

  cudaError_t launch(const Problem& problem, const ThinPlan& plan, cudaStream_t stream,
                     void* workspace) const {
    constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;
    const int64_t tiles = problem.batches * plan.tiles;
    Parameters parameters = {problem, plan, static_cast<unsigned*>(workspace), nullptr};
    if (plan.slices > 1) {
      parameters.slice_sums = static_cast<char*>(workspace) + counter_bytes(problem, plan);
      clear_counters_kernel<<<1, 256, 0, stream>>>(parameters.finished, tiles);
    }
    cudaError_t status = cudaSuccess;
    int64_t& begin = parameters.problem.first_tile;
    for (begin = 0; begin < tiles * plan.slices && status == cudaSuccess; begin += MAX_BLOCKS) {
      const int64_t left = tiles * plan.slices - begin;
      const auto blocks = static_cast<unsigned>(left < MAX_BLOCKS ? left : MAX_BLOCKS);
      status = launch_dependent(kernel, blocks, THREADS, stream, parameters, Tile::SHARED_BYTES);
    }
    return status;
  }

  static ThinPlan plan(const Problem& problem) {
    ThinPlan found = {};
    found.is_transposed = problem.n < problem.m;
    const MatrixOperand& lhs = problem.lhs();
    const MatrixOperand& rhs = problem.rhs();
    const ThinFactor rows = {lhs.data,       Problem::LHS,      problem.m,
                             lhs.row_stride, lhs.column_stride, false};
    const ThinFactor columns = {rhs.data,          Problem::RHS,   problem.n,
                                rhs.column_stride, rhs.row_stride, false};
    found.thin = found.is_transposed ? columns : rows;
    found.wide = found.is_transposed ? rows : columns;
    const ThinFactor& wide = found.wide;
    found.is_along_k =
        wide.stride != 1 && (wide.size == 1 || wide.k_stride == 1 || wide.k_stride < wide.stride);
    found.thin.has_vectors = has_vectors_along_k(problem, found.thin);
    found.wide.has_vectors = found.is_along_k
                                 ? has_vectors_along_k(problem, wide)
                                 : wide.stride == 1 && wide.size % VECTOR == 0 &&
                                       problem.is_aligned(wide.operand, wide.k_stride, VECTOR);
    set_lanes(found, problem);
    set_slices(found, problem);
    return found;
  }

  // Blocks that run at one time.
  static constexpr int64_t SLOTS = Config::RESIDENT * Config::MULTIPROCESSORS;
  static constexpr int64_t LEAST_STEPS = 4;                     // of a slice
  static constexpr int64_t CACHED_ELEMENTS = int64_t{1} << 20;  // that all blocks read of the rows

  // As many tiles as run at one time, or a few less: all blocks then share the memory from the
  // first to the last moment. Blocks of more columns and fewer lanes along K where there are more
  // tiles, as long as the lanes read runs of memory, or K is short.
  static void set_lanes(ThinPlan& plan, const Problem& problem) {
    constexpr int LEAST_LANES = THREADS / Tile::MAX_K_LANES, RUN_LANES = THREADS / 32;
    const int64_t row_tiles = divide_up(plan.thin.size, Tile::ROWS);
    const auto tiles = [&](int lanes) {
      return problem.batches * row_tiles * divide_up(plan.wide.size, Tile::COLUMNS * lanes);
    };
    const auto steps = [&](int lanes) { return problem.k / (Tile::STEP * (THREADS / lanes)); };
    int lanes = Tile::MAX_COLUMN_LANES;
    while (lanes > LEAST_LANES && Tile::COLUMNS * (lanes / 2) >= plan.wide.size) lanes /= 2;
    if (plan.is_along_k) {
      while (lanes > RUN_LANES && lanes > LEAST_LANES && steps(lanes / 2) >= 8) lanes /= 2;
    }
    // Enough columns to meet each row four times: the rows then come from the L2 cache for nothing;
    // along the columns, runs of 128 bytes; half as many where there are no steps to cut.
    int least = plan.is_along_k ? 4 * Tile::ROWS / Tile::COLUMNS : 8;
    if (!plan.is_along_k && tiles(8) * (steps(8) / LEAST_STEPS + 1) * 2 <= SLOTS) least = 4;
    // So they do where all blocks together read little of them.
    const int64_t rows = Tile::ROWS * problem.k;
    while (plan.is_along_k && least > 1 && tiles(least / 2) * rows <= CACHED_ELEMENTS) least /= 2;
    if (least < LEAST_LANES) least = LEAST_LANES;
    while (lanes > least && tiles(lanes / 2) <= SLOTS && steps(lanes / 2) >= 1) lanes /= 2;
    plan.column_lanes = lanes;
    plan.k_lanes = THREADS / lanes;
    plan.row_tiles = row_tiles;
    plan.tiles = row_tiles * divide_up(plan.wide.size, Tile::COLUMNS * lanes);
  }

  // Where the tiles leave multiprocessors idle, so many slices that all of them run at one time, if
  // each has a few steps: another slice costs two microseconds, more than it gains where each
  // multiprocessor has a tile. And, for the accuracy, no more than so many steps one after another.
  static void set_slices(ThinPlan& plan, const Problem& problem) {
    constexpr int64_t MOST_STEPS = 2048;
    const int64_t step = Tile::STEP * plan.k_lanes;
    const int64_t steps = divide_up(problem.k, step);
    const int64_t tiles = problem.batches * plan.tiles;
    int64_t slices = 4 * tiles < 3 * Config::MULTIPROCESSORS ? SLOTS / tiles : 1;
    // One block adds them all.
    if (slices > Config::MULTIPROCESSORS) slices = Config::MULTIPROCESSORS;
    if (slices > steps / LEAST_STEPS) slices = steps / LEAST_STEPS;
    if (slices < divide_up(steps, MOST_STEPS)) slices = divide_up(steps, MOST_STEPS);
    if (slices < 1) slices = 1;
    plan.slice_k = divide_up(steps, slices) * step;
    plan.slices = problem.k > 0 ? divide_up(problem.k, plan.slice_k) : 1;
  }

 private:
  using Sum = typename Tile::S;
  static constexpr int VECTOR = Tile::VECTOR;

  static int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

  static int64_t counter_bytes(const Problem& problem, const ThinPlan& plan) {
    return divide_up(problem.batches * plan.tiles * static_cast<int64_t>(sizeof(unsigned)), 256) *
           256;
  }

  static bool has_vectors_along_k(const Problem& problem, const ThinFactor& factor) {
    return factor.k_stride == 1 && problem.k % VECTOR == 0 &&
           problem.is_aligned(factor.operand, factor.stride, VECTOR);
  }
};
