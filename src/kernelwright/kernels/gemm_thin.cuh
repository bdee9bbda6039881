#pragma once
// Matrix product with few rows or few columns (matrix-vector, a handful of tokens, dot products).
// Memory sets its speed: the wide factor is read once, at the bandwidth of the device, and meets
// each of the thin factor's rows in registers. IEEE arithmetic on the CUDA cores; sums in a fixed
// order, without atomic additions of numbers: the same bits in every run.
//
// Below, "rows" are those of the thin factor and "columns" those of the wide one: where it is N
// that is small, the product is computed as its transpose, by exchanged strides.
//
// A block computes ROWS x (column_lanes COLUMNS) results over a slice of K. Its threads lie
// column_lanes x k_lanes (powers of two, chosen for the sizes of the call): a thread steps through
// K, in each step loads COLUMNS x STEP elements of the wide factor, all before the first use, and
// multiplies them with the rows, which wait in shared memory; the next rows are copied meanwhile.
// In the end the k_lanes are summed in pairs. Where the tiles alone are too few to keep the memory
// busy, K is cut in slices: they leave their sums in the workspace, and the last block of a tile to
// finish adds them in order.
//
// A config has
//   ROWS             1, 2, 4, 8 or 16; the launcher takes another variant for more
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

#include "async_copy.cuh"
#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_problem.cuh"
#include "gemm_tile.cuh"

// One factor, as the kernel walks over it.
struct ThinFactor {
  int operand;
  int64_t size;  // of its own dimension
  int64_t stride;
  int64_t k_stride;
  bool has_vectors;  // along its contiguous dimension
};

// How one call is cut into blocks.
struct ThinPlan {
  bool is_transposed;
  bool is_along_k;  // neighbouring threads read neighbours along K of the wide factor
  ThinFactor thin;
  ThinFactor wide;
  int column_lanes;
  int k_lanes;
  int64_t tiles;  // in a batch
  int64_t slices;
  int64_t slice_k;
};

template <class Problem>
struct ThinParameters {
  Problem problem;
  ThinPlan plan;
  unsigned* finished;  // for each tile, slices that left their sums
  void* slice_sums;
};

template <class Config, class Problem>
struct ThinTile {
  using T = typename Problem::Factor;
  using S = compute_t<T>;
  static constexpr int ROWS = Config::ROWS, COLUMNS = Config::COLUMNS, STEP = Config::STEP;
  static constexpr int THREADS = Config::THREADS;
  static constexpr int VECTOR = 16 / sizeof(T);

  // Of the thin factor two chunks of CHUNK_K along K are in shared memory, as numbers to compute
  // with. A thread reads 8 neighbours of a 16-bit factor, so a gap after every 32 numbers spreads a
  // warp over the banks.
  static constexpr int CHUNK_BYTES = 16384;
  static constexpr int CHUNK_K = CHUNK_BYTES / ROWS / static_cast<int>(sizeof(S));
  static constexpr int GAP = sizeof(T) == 2 ? 4 : 0;
  static constexpr int PITCH = CHUNK_K + CHUNK_K / 32 * GAP + 16 / static_cast<int>(sizeof(S));
  static constexpr int CHUNKS = 2 * ROWS * PITCH;
  // The same memory then serves to sum the k_lanes, and to hand the sums to the epilogue.
  static constexpr int SUMS = THREADS / 2 * ROWS * COLUMNS;
  static constexpr int SHARED_BYTES = (CHUNKS > SUMS ? CHUNKS : SUMS) * static_cast<int>(sizeof(S));

  static constexpr int MAX_K_LANES = THREADS < CHUNK_K / STEP ? THREADS : CHUNK_K / STEP;
  static constexpr int MAX_COLUMN_LANES = THREADS / 2;

  static_assert(ROWS <= 16 && (ROWS & (ROWS - 1)) == 0, "ROWS is 1, 2, 4, 8 or 16");
  static_assert((COLUMNS & (COLUMNS - 1)) == 0 && (STEP & (STEP - 1)) == 0,
                "COLUMNS and STEP are powers of two");
  static_assert(COLUMNS % Problem::COLUMN_VECTOR == 0, "a thread's columns are whole vectors");
  static_assert(THREADS >= 64 && THREADS <= 1024 && (THREADS & (THREADS - 1)) == 0,
                "threads divide into lanes by powers of two");
  static_assert(STEP * static_cast<int>(sizeof(S)) >= 16 && STEP <= 32 && MAX_K_LANES >= 2,
                "the thin factor is read from shared memory 16 bytes at a time");

  // Place in shared memory of element k of a chunk.
  __device__ __forceinline__ static int place(int k) { return k + k / 32 * GAP; }
};

// Reads WIDTH elements that no other thread will want.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_once(const T* address) {
  Vector<T, WIDTH> value;
  if constexpr (sizeof(value) == 16) {
    unsigned words[4];
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(address));
    memcpy(&value, words, sizeof(value));
  } else if constexpr (sizeof(value) == 8) {
    unsigned words[2];
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(address));
    memcpy(&value, words, sizeof(value));
  } else {
    value = load_vector<WIDTH>(address);
  }
  return value;
}

// The thin factor's way into shared memory: [ROWS][PITCH], contiguous along K.
template <class Tile>
class ThinChunks {
 public:
  using T = typename Tile::T;
  using S = typename Tile::S;

  // `base`: element (0, 0) of this batch.
  __device__ __forceinline__ ThinChunks(const ThinFactor& factor, const T* base, S* shared)
      : factor_(factor), base_(base), shared_(shared) {}

  // Starts copying elements [k, k + CHUNK_K) of every row, zeros from `end` on and beyond the last
  // row. Nothing reads past a whole number of `step`s from k.
  __device__ __forceinline__ void copy(int buffer, int64_t k, int64_t end, int step) const {
    const int64_t left = end - k;
    const int valid = left < Tile::CHUNK_K ? static_cast<int>(left) : Tile::CHUNK_K;
    const int count = (valid + step - 1) / step * step;
    S* const to = shared_ + buffer * (Tile::ROWS * Tile::PITCH);
    const T* const from = base_ + k * factor_.k_stride;
    if (factor_.has_vectors) {
      copy_along_k<Tile::VECTOR>(to, from, valid, count);
    } else if (factor_.k_stride <= factor_.stride || Tile::ROWS == 1) {
      copy_along_k<1>(to, from, valid, count);
    } else {
      copy_along_rows(to, from, valid, count);
    }
    commit_copies();
  }

 private:
  template <int ACCESS>
  __device__ __forceinline__ void copy_along_k(S* to, const T* from, int valid, int count) const {
    constexpr int GROUPS = Tile::ROWS < 4 ? Tile::ROWS : 4;
    constexpr int LANES = Tile::THREADS / GROUPS;
    for (int row = threadIdx.x / LANES; row < Tile::ROWS; row += GROUPS) {
      for (int k = threadIdx.x % LANES * ACCESS; k < count; k += LANES * ACCESS) {
        move<ACCESS>(to, from, row, k, valid);
      }
    }
  }

  __device__ __forceinline__ void copy_along_rows(S* to, const T* from, int valid,
                                                  int count) const {
    const int row = threadIdx.x % Tile::ROWS;
    for (int k = threadIdx.x / Tile::ROWS; k < count; k += Tile::THREADS / Tile::ROWS) {
      move<1>(to, from, row, k, valid);
    }
  }

  template <int ACCESS>
  __device__ __forceinline__ void move(S* to, const T* from, int row, int k, int valid) const {
    const bool exists = k < valid && row < factor_.size;
    const T* const source = exists ? from + row * factor_.stride + k * factor_.k_stride : base_;
    S* const target = to + row * Tile::PITCH + Tile::place(k);
    if constexpr (sizeof(T) >= 4) {
      copy_async<ACCESS * sizeof(T)>(target, source, exists);
    } else {
      Vector<S, ACCESS> values = {};
      if (exists) {
        const Vector<T, ACCESS> loaded = load_vector<ACCESS>(source);
#pragma unroll
        for (int i = 0; i < ACCESS; ++i) values.element[i] = widen(loaded.element[i]);
      }
      store_vector(target, values);
    }
  }

  const ThinFactor& factor_;
  const T* base_;
  S* shared_;
};

// A thread's part of the tile: which elements of the wide factor it reads, and its sums.
template <class Tile, Major MAJOR, int ACCESS>
class ThinThread {
 public:
  using T = typename Tile::T;
  using S = typename Tile::S;
  static constexpr int ROWS = Tile::ROWS, COLUMNS = Tile::COLUMNS, STEP = Tile::STEP;
  // A thread has neighbours in runs; between them are the runs of the other lanes.
  static constexpr int COLUMN_RUN = MAJOR == Major::MN ? ACCESS : 1;
  static constexpr int K_RUN = MAJOR == Major::MN ? STEP : ACCESS;
  static_assert(COLUMNS % COLUMN_RUN == 0 && STEP % K_RUN == 0, "whole accesses");

  // `base`: element (0, k) of this batch, k where the slice begins. `first`: column of the tile.
  __device__ __forceinline__ ThinThread(const ThinPlan& plan, const T* base, int64_t first)
      : plan_(plan),
        column_lane_(MAJOR == Major::MN ? threadIdx.x % plan.column_lanes
                                        : threadIdx.x / plan.k_lanes),
        k_lane_(MAJOR == Major::MN ? threadIdx.x / plan.column_lanes : threadIdx.x % plan.k_lanes) {
    const int64_t left = plan.wide.size - first;
    columns_left_ = left < (1 << 30) ? static_cast<int>(left) : 1 << 30;
    next_ = base + (first + column(0)) * plan.wide.stride + k(0) * plan.wide.k_stride;
  }

  // Places in the tile and in a step of the thread's column c and element s along K.
  __device__ __forceinline__ int column(int c) const {
    return (c / COLUMN_RUN * plan_.column_lanes + column_lane_) * COLUMN_RUN + c % COLUMN_RUN;
  }
  __device__ __forceinline__ int k(int s) const {
    return (s / K_RUN * plan_.k_lanes + k_lane_) * K_RUN + s % K_RUN;
  }

  // Loads the next step, of which `left` elements along K exist.
  __device__ __forceinline__ void load(int64_t left) {
    const int step = STEP * plan_.k_lanes;
    const int valid_k = left < step ? static_cast<int>(left) : step;
    const int64_t column_ahead = plan_.column_lanes * COLUMN_RUN * plan_.wide.stride;
    const int64_t k_ahead = (MAJOR == Major::MN ? 1 : plan_.k_lanes * K_RUN) * plan_.wide.k_stride;
    const T* source = next_;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += COLUMN_RUN) {
      const bool column_exists = column(c) < columns_left_;
      const T* address = source;
#pragma unroll
      for (int s = 0; s < STEP; s += K_ACCESS) {
        Vector<T, ACCESS>& target = loaded_[c / COLUMN_RUN][s / K_ACCESS];
        target = {};
        if (column_exists && k(s) < valid_k) target = load_once<ACCESS>(address);
        address += k_ahead;
      }
      source += column_ahead;
    }
    next_ += step * plan_.wide.k_stride;
  }

  // Adds the products with the rows in shared memory, whose step begins at `begin`.
  __device__ __forceinline__ void multiply(const S* rows, int begin) {
    S wide[COLUMNS][STEP];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
#pragma unroll
      for (int s = 0; s < STEP; ++s) {
        wide[c][s] = widen(loaded_[c / COLUMN_RUN][s / K_ACCESS]
                               .element[MAJOR == Major::MN ? c % COLUMN_RUN : s % K_ACCESS]);
      }
    }
    constexpr int READ = K_RUN * sizeof(S) < 16 ? K_RUN : 16 / sizeof(S);
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      Vector<S, READ> thin[STEP / READ];
#pragma unroll
      for (int s = 0; s < STEP; s += READ) {
        thin[s / READ] = load_vector<READ>(rows + row * Tile::PITCH + Tile::place(begin + k(s)));
      }
      // The products of a step are summed apart: a sum of K / STEP terms loses less than one of K.
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        S sum = wide[c][0] * thin[0].element[0];
#pragma unroll
        for (int s = 1; s < STEP; ++s) sum += wide[c][s] * thin[s / READ].element[s % READ];
        sums_[row][c] += sum;
      }
    }
  }

  // Sums the k_lanes in pairs, and leaves the tile in shared memory: [ROWS][columns of the tile].
  __device__ __forceinline__ void sum_lanes(S* shared) {
    for (int half = plan_.k_lanes / 2; half > 0; half /= 2) {
      const int other = k_lane_ % half;
      const int slot = MAJOR == Major::MN ? other * plan_.column_lanes + column_lane_
                                          : column_lane_ * half + other;
      const int slots = half * plan_.column_lanes;
      __syncthreads();  // what was in shared memory has been read
      if (k_lane_ >= half && k_lane_ < 2 * half) {
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; ++i) {
          shared[i * slots + slot] = sums_[i / COLUMNS][i % COLUMNS];
        }
      }
      __syncthreads();
      if (k_lane_ < half) {
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; ++i) {
          sums_[i / COLUMNS][i % COLUMNS] += shared[i * slots + slot];
        }
      }
    }
    __syncthreads();
    if (k_lane_ == 0) {
#pragma unroll
      for (int i = 0; i < ROWS * COLUMNS; ++i) {
        shared[i / COLUMNS * (plan_.column_lanes * COLUMNS) + column(i % COLUMNS)] =
            sums_[i / COLUMNS][i % COLUMNS];
      }
    }
    __syncthreads();
  }

 private:
  static constexpr int K_ACCESS = MAJOR == Major::MN ? 1 : ACCESS;

  const ThinPlan& plan_;
  int column_lane_;
  int k_lane_;
  int columns_left_;
  const T* next_;  // the thread's first element of the next step
  Vector<T, ACCESS> loaded_[COLUMNS / COLUMN_RUN][STEP / K_ACCESS];
  S sums_[ROWS][COLUMNS] = {};
};

// Index along each batch dimension.
struct BatchIndex {
  int64_t index[MAX_BATCH_RANK];

  template <class Problem>
  __device__ __forceinline__ BatchIndex(const Problem& problem, int64_t batch) {
#pragma unroll
    for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
      index[d] = 0;
      if (d < problem.batch_rank) {
        index[d] = batch % problem.batch_sizes[d];
        batch /= problem.batch_sizes[d];
      }
    }
  }
};

// Sums this block's slice of K into shared memory.
template <class Tile, Major MAJOR, int ACCESS, class Problem>
__device__ __forceinline__ void sum_slice(const ThinParameters<Problem>& parameters, int64_t batch,
                                          int64_t first, int64_t slice, typename Tile::S* shared) {
  using T = typename Tile::T;
  const Problem& problem = parameters.problem;
  const ThinPlan& plan = parameters.plan;
  const BatchIndex at(problem, batch);
  const T* const thin =
      batch_base<const T>(problem.operands[plan.thin.operand], at.index, problem.batch_rank);
  const T* const wide =
      batch_base<const T>(problem.operands[plan.wide.operand], at.index, problem.batch_rank);
  const int64_t begin = slice * plan.slice_k;
  const int64_t end = min(begin + plan.slice_k, problem.k);
  const int step = Tile::STEP * plan.k_lanes;

  const ThinChunks<Tile> chunks(plan.thin, thin, shared);
  ThinThread<Tile, MAJOR, ACCESS> thread(plan, wide + begin * plan.wide.k_stride, first);
  int buffer = 0;
  int in_chunk = 0;
  for (int64_t k = begin; k < end; k += step) {
    thread.load(end - k);
    if (in_chunk == 0) {
      if (k == begin) chunks.copy(buffer, k, end, step);
      wait_copies<0>();
      // This chunk's copies of every thread are visible, and the other chunk has been read.
      __syncthreads();
      if (k + Tile::CHUNK_K < end) chunks.copy(buffer ^ 1, k + Tile::CHUNK_K, end, step);
    }
    thread.multiply(shared + buffer * (Tile::ROWS * Tile::PITCH), in_chunk);
    in_chunk += step;
    if (in_chunk == Tile::CHUNK_K) {
      in_chunk = 0;
      buffer ^= 1;
    }
  }
  thread.sum_lanes(shared);
}

// Leaves the slice's sums in the workspace. True in the last block of the tile to come here, which
// then has the sums of all slices in shared memory.
template <class Tile, class Problem>
__device__ __forceinline__ bool sum_slices(const ThinParameters<Problem>& parameters, int64_t tile,
                                           int64_t slice, typename Tile::S* shared) {
  using S = typename Tile::S;
  const int slices = static_cast<int>(parameters.plan.slices);
  const int size = Tile::ROWS * Tile::COLUMNS * parameters.plan.column_lanes;
  S* const all = static_cast<S*>(parameters.slice_sums) + tile * slices * size;
  for (int i = threadIdx.x; i < size; i += Tile::THREADS) {
    all[slice * size + i] = shared[i];
  }
  __threadfence();
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // the counters are zero
    is_last = atomicAdd(parameters.finished + tile, 1u) + 1 == slices;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();

  // Where there are fewer results than threads, a group of threads shares the slices of one.
  const int lanes = size < Tile::THREADS ? size : Tile::THREADS;
  const int groups = Tile::THREADS / lanes;
  const int group = threadIdx.x / lanes;
  for (int i = threadIdx.x % lanes; i < size; i += lanes) {
    S sum = 0;
#pragma unroll 8
    for (int s = group; s < slices; s += groups) {
      sum += __ldcg(all + static_cast<int64_t>(s) * size + i);
    }
    shared[group * lanes + i] = sum;
  }
  for (int half = groups / 2; half > 0; half /= 2) {
    __syncthreads();
    if (group < half) shared[threadIdx.x] += shared[threadIdx.x + half * lanes];
  }
  __syncthreads();
  return true;
}

// Applies the epilogue to the sums in shared memory and stores the results.
template <class Tile, class Problem>
__device__ __forceinline__ void store_tile(const ThinParameters<Problem>& parameters, int64_t batch,
                                           int64_t first, const typename Tile::S* shared) {
  constexpr int WIDTH = Problem::COLUMN_VECTOR;
  constexpr int ROW_RUNS = (Tile::ROWS + WIDTH - 1) / WIDTH;
  const bool is_transposed = parameters.plan.is_transposed;
  const int columns = Tile::COLUMNS * parameters.plan.column_lanes;
  const int column_runs = columns / WIDTH;
  const BatchIndex at(parameters.problem, batch);
  const GemmEpilogue epilogue(parameters.problem, at.index);
  const int runs = is_transposed ? columns * ROW_RUNS : Tile::ROWS * column_runs;
  for (int run = threadIdx.x; run < runs; run += Tile::THREADS) {
    const int row = is_transposed ? run % ROW_RUNS * WIDTH : run / column_runs;
    const int column = is_transposed ? run / ROW_RUNS : run % column_runs * WIDTH;
    Vector<typename Tile::S, WIDTH> sums = {};
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const int r = is_transposed ? row + i : row;
      const int c = is_transposed ? column : column + i;
      if (r < Tile::ROWS) sums.element[i] = shared[r * columns + c];
    }
    if (is_transposed) {
      epilogue.apply(sums, first + column, row);
    } else {
      epilogue.apply(sums, row, first + column);
    }
  }
}

// The body of a kernel of THREADS threads and SHARED_BYTES of dynamic shared memory.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_thin(const ThinParameters<Problem>& parameters) {
  using Tile = ThinTile<Config, Problem>;
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const shared = reinterpret_cast<typename Tile::S*>(memory);
  const ThinPlan& plan = parameters.plan;
  // Neighbouring blocks read neighbouring columns: slices come last.
  const int64_t tiles = parameters.problem.batches * plan.tiles;
  const int64_t block = parameters.problem.first_tile + blockIdx.x;
  const int64_t slice = plan.slices > 1 ? block / tiles : 0;
  const int64_t tile = block - slice * tiles;
  const int64_t batch = parameters.problem.batches > 1 ? tile / plan.tiles : 0;
  const int64_t first = (tile - batch * plan.tiles) * (Tile::COLUMNS * plan.column_lanes);

  if constexpr (Config::WIDE != Major::MN) {
    constexpr int ACCESS = Tile::VECTOR < Tile::STEP ? Tile::VECTOR : Tile::STEP;
    if (plan.is_along_k && plan.wide.has_vectors) {
      sum_slice<Tile, Major::K, ACCESS>(parameters, batch, first, slice, shared);
    } else if (plan.is_along_k) {
      sum_slice<Tile, Major::K, 1>(parameters, batch, first, slice, shared);
    }
  }
  if constexpr (Config::WIDE != Major::K) {
    constexpr int ACCESS = Tile::VECTOR < Tile::COLUMNS ? Tile::VECTOR : Tile::COLUMNS;
    if (!plan.is_along_k && plan.wide.has_vectors) {
      sum_slice<Tile, Major::MN, ACCESS>(parameters, batch, first, slice, shared);
    } else if (!plan.is_along_k) {
      sum_slice<Tile, Major::MN, 1>(parameters, batch, first, slice, shared);
    }
  }
  if (plan.slices == 1 || sum_slices<Tile>(parameters, tile, slice, shared)) {
    store_tile<Tile>(parameters, batch, first, shared);
  }
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
    return found.thin.size <= Tile::ROWS &&
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
      status =
          launch_dependent(kernel, static_cast<unsigned>(left < MAX_BLOCKS ? left : MAX_BLOCKS),
                           THREADS, Tile::SHARED_BYTES, 1, stream, parameters, plan.slices > 1);
    }
    return status;
  }

  static ThinPlan plan(const Problem& problem) {
    ThinPlan found = {};
    found.is_transposed = problem.n < problem.m;
    const MatrixOperand& lhs = problem.lhs();
    const MatrixOperand& rhs = problem.rhs();
    const ThinFactor rows = {Problem::LHS, problem.m, lhs.row_stride, lhs.column_stride, false};
    const ThinFactor columns = {Problem::RHS, problem.n, rhs.column_stride, rhs.row_stride, false};
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

  // As many tiles as run at one time, or a few less: all blocks then share the memory from the
  // first to the last moment.
  static void set_lanes(ThinPlan& plan, const Problem& problem) {
    constexpr int LEAST_LANES = THREADS / Tile::MAX_K_LANES;
    // Enough columns to meet each row four times, so that the rows' way from the L2 cache is free;
    // along the columns, runs of 256 bytes.
    constexpr int WANTED_LANES = 4 * Tile::ROWS / Tile::COLUMNS;
    int least = plan.is_along_k ? WANTED_LANES : 16;
    if (least < LEAST_LANES) least = LEAST_LANES;
    const auto tiles = [&](int lanes) {
      return problem.batches * divide_up(plan.wide.size, Tile::COLUMNS * lanes);
    };
    int lanes = Tile::MAX_COLUMN_LANES;
    while (lanes > LEAST_LANES && Tile::COLUMNS * (lanes / 2) >= plan.wide.size) lanes /= 2;
    // Along K, too, runs of memory, unless K is short.
    while (plan.is_along_k && lanes > THREADS / 32 && lanes > least &&
           problem.k >= 2 * Tile::STEP * (THREADS / lanes)) {
      lanes /= 2;
    }
    while (lanes > least && tiles(lanes / 2) <= SLOTS &&
           problem.k >= 2 * Tile::STEP * (THREADS / lanes)) {
      lanes /= 2;
    }
    plan.column_lanes = lanes;
    plan.k_lanes = THREADS / lanes;
    plan.tiles = divide_up(plan.wide.size, Tile::COLUMNS * lanes);
  }

  // Where there are fewer tiles, so many slices that all of them run at one time, if each has a few
  // steps; and, for the accuracy, no more than so many steps one after another.
  static void set_slices(ThinPlan& plan, const Problem& problem) {
    constexpr int64_t LEAST_STEPS = 4, MOST_STEPS = 2048;
    const int64_t step = Tile::STEP * plan.k_lanes;
    const int64_t steps = divide_up(problem.k, step);
    int64_t slices = SLOTS / (problem.batches * plan.tiles);
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
