#pragma once
// Matrix product on the CUDA cores for what other kernels leave: any sizes, strides and alignment,
// fp32-accurate. It is short, and no sizes are tuned: gemm_simt.cuh is for products that it is the
// best kernel of.

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_paired.cuh"
#include "gemm_patches.cuh"
#include "gemm_problem.cuh"
#include "mbarrier.cuh"
#include "vector.cuh"

// HEIGHT x 64 of the result, stepping through K by 16: a thread has 4 x 4 sums.
template <int HEIGHT>
struct PlainTile {
  static constexpr int ROWS = HEIGHT, COLUMNS = 64, STEP = 16, OWN = 4;
  static constexpr int THREADS = ROWS / OWN * (COLUMNS / OWN);
  // One running sum of fp32 loses accuracy as sqrt(K): after so many steps it joins a second one.
  static constexpr int LONGEST_SUM = 512 / STEP;

  struct alignas(16) Shared {
    float lhs[STEP][ROWS + OWN], rhs[STEP][COLUMNS + OWN];
  };

  template <class Problem>
  __host__ __device__ static int64_t rows(const Problem& problem) {
    return (problem.m + ROWS - 1) / ROWS;
  }
  template <class Problem>
  __host__ __device__ static int64_t columns(const Problem& problem) {
    return (problem.n + COLUMNS - 1) / COLUMNS;
  }
};

// A factor's way into shared memory: the numbers of a step wait in registers while the step before
// is multiplied. SIZE of its own dimension; zeros for what does not exist.
template <class T, class Tile, int SIZE>
struct PlainCopy {
  static constexpr int STEP = Tile::STEP, THREADS = Tile::THREADS, COUNT = SIZE * STEP / THREADS;

  const T* next;  // first element of the next step
  int64_t stride, k_stride;
  int64_t size, k_size;  // that exist
  [[maybe_unused]] bool in_pairs = false;
  float values[COUNT];

  // Places of a thread's number i; neighbouring threads follow the smaller stride.
  __device__ __forceinline__ int own(int i) const {
    return k_stride <= stride ? threadIdx.x / STEP + i * (THREADS / STEP) : threadIdx.x % SIZE;
  }
  __device__ __forceinline__ int k(int i) const {
    return k_stride <= stride ? threadIdx.x % STEP : threadIdx.x / SIZE + i * (THREADS / SIZE);
  }

  __device__ __forceinline__ void load_step() {
    const T* const source = next + own(0) * stride + k(0) * k_stride;
    const int64_t further = (own(1) - own(0)) * stride + (k(1) - k(0)) * k_stride;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const bool exists = own(i) < size && k(i) < k_size;
      if constexpr (ANY_SHORT) {
        values[i] = exists ? widen(source[i * further]) : 0.0f;
      } else if (ANY_PAIRED && in_pairs) {
        values[i] = exists ? load_pair(source + i * further) : 0.0f;
      } else {
        values[i] = exists ? source[i * further] : 0.0f;
      }
    }
    next += STEP * k_stride;
    k_size -= STEP;
  }
  __device__ __forceinline__ void store_step(float (&shared)[STEP][SIZE + Tile::OWN]) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) shared[k(i)][own(i)] = values[i];
  }
};

// The copy of lhs from a row on, of the batch that begins at `data`.
template <class T, class Tile, class Problem>
__device__ __forceinline__ auto plain_rows(const Problem& problem, const T* data, int64_t row) {
  const MatrixOperand& lhs = problem.lhs();
  if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
    const int64_t before = data - static_cast<const T*>(lhs.data) + row * lhs.row_stride;
    return PatchCopy<T, Tile, Tile::ROWS>{problem.patches, before, problem.m - row, 0, problem.k};
  } else if constexpr (ANY_PAIRED) {
    return PlainCopy<T, Tile, Tile::ROWS>{
        data + row * lhs.row_stride, lhs.row_stride, lhs.column_stride, problem.m - row, problem.k,
        problem.lhs_in_pairs};
  } else {
    return PlainCopy<T, Tile, Tile::ROWS>{data + row * lhs.row_stride, lhs.row_stride,
                                          lhs.column_stride, problem.m - row, problem.k};
  }
}

// The tile from (row, column) on of batch number `batch`, if there is one; by the first THREADS
// threads of the block.
template <class Tile, class Problem>
__device__ __forceinline__ void multiply_plain_tile(const Problem& problem, int64_t batch,
                                                    int64_t row, int64_t column,
                                                    typename Tile::Shared& shared) {
  using T = typename Problem::Factor;
  constexpr int OWN = Tile::OWN, ACROSS = Tile::COLUMNS / OWN;
  if (ANY_EDGES && (row >= problem.m || column >= problem.n)) return;
  const MatrixOperand& right = problem.rhs();
  const T* left_data = static_cast<const T*>(problem.lhs().data);
  const T* right_data = static_cast<const T*>(right.data);
  GemmEpilogue epilogue(problem);
  if constexpr (ANY_BATCHES) {
    int64_t index[MAX_BATCH_RANK];
    split_batch(problem, batch, index);
    left_data = batch_base<const T>(problem, Problem::LHS, index);
    right_data = batch_base<const T>(problem, Problem::RHS, index);
    epilogue.select(index);
  }
  auto lhs = plain_rows<T, Tile>(problem, left_data, row);
  PlainCopy<T, Tile, Tile::COLUMNS> rhs = {right_data + column * right.column_stride,
                                           right.column_stride, right.row_stride,
                                           problem.n - column, problem.k};
  const int own_row = threadIdx.x / ACROSS * OWN, own_column = threadIdx.x % ACROSS * OWN;
  float sums[OWN][OWN] = {};
  Vector<float, OWN> results[OWN] = {};
  lhs.load_step();
  rhs.load_step();
  const int64_t steps = (problem.k + Tile::STEP - 1) / Tile::STEP;
  for (int64_t step = 1; step <= steps; ++step) {
    sync_warps(1, Tile::THREADS);  // the step before has been read
    lhs.store_step(shared.lhs);
    rhs.store_step(shared.rhs);
    sync_warps(1, Tile::THREADS);
    lhs.load_step();
    rhs.load_step();
#pragma unroll 4
    for (int k = 0; k < Tile::STEP; ++k) {
      const auto a = load_vector<OWN>(&shared.lhs[k][own_row]);
      const auto b = load_vector<OWN>(&shared.rhs[k][own_column]);
#pragma unroll
      for (int i = 0; i < OWN * OWN; ++i) {
        sums[i / OWN][i % OWN] += a.element[i / OWN] * b.element[i % OWN];
      }
    }
    if (step % Tile::LONGEST_SUM == 0 || step == steps) {
#pragma unroll
      for (int i = 0; i < OWN * OWN; ++i) {
        results[i / OWN].element[i % OWN] += sums[i / OWN][i % OWN];
        sums[i / OWN][i % OWN] = 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < OWN; ++i) {
    if constexpr (ANY_EDGES) {
      epilogue.apply(results[i], row + own_row + i, column + own_column);
    } else {
      epilogue.store_at(results[i], epilogue.place(row + own_row, column + own_column), i, 0);
    }
  }
}

// A __global__ function that runs gemm_plain.
template <class Problem>
struct PlainVariant {
  using Tile = PlainTile<32>;
  static constexpr int THREADS = Tile::THREADS;
  static constexpr int MIN_BLOCKS = 3;  // of a multiprocessor

  void (*kernel)(Problem);

  static bool admits(const Problem&) { return true; }
  static int64_t workspace_bytes(const Problem&) { return 0; }
  cudaError_t launch(const Problem& problem, cudaStream_t stream, void* /*workspace*/) const {
    constexpr int64_t MAX_BLOCKS = (int64_t{1} << 31) - 1;
    const int64_t all = tiles(problem);
    const auto blocks = static_cast<unsigned>(all < MAX_BLOCKS ? all : MAX_BLOCKS);
    return launch_dependent(kernel, blocks, THREADS, stream, problem);
  }

  // The kernel (of finish_plain) after another one has left it `problem.rest`.
  cudaError_t launch_rest(const Problem& problem, cudaStream_t stream, int multiprocessors) const {
    const int64_t at_once = int64_t{MIN_BLOCKS} * multiprocessors;
    const unsigned blocks = blocks_of_rest(problem, tiles(problem), THREADS, at_once);
    return launch_dependent(kernel, blocks, THREADS, stream, problem);
  }

 private:
  static int64_t tiles(const Problem& problem) {
    return Tile::rows(problem) * Tile::columns(problem) * problem.batches;
  }
};

// Its body: blocks take tiles in turn, down the columns of the result.
template <class Problem>
__device__ __forceinline__ void gemm_plain(const Problem& problem) {
  wait_for_previous_kernel();
  using Tile = typename PlainVariant<Problem>::Tile;
  __shared__ typename Tile::Shared shared;
  const int64_t rows = Tile::rows(problem), in_batch = rows * Tile::columns(problem);
  for (int64_t tile = blockIdx.x; tile < in_batch * problem.batches; tile += gridDim.x) {
    const int64_t place = tile % in_batch;
    multiply_plain_tile<Tile>(problem, tile / in_batch, place % rows * Tile::ROWS,
                              place / rows * Tile::COLUMNS, shared);
  }
}
