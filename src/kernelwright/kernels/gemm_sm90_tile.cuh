#pragma once
// The shape of a tensor-core product: tile, stages, units of work, and what is in shared memory.

#include "divide.cuh"
#include "gemm_factor.cuh"
#include "gemm_problem.cuh"
#include "gemm_rest.cuh"
#include "gemm_tile.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// Where the fp16 planes of the factors come from.
enum class Feed {
  SPLIT,    // a kernel before splits both
  CONVERT,  // a kernel before splits rhs; lhs lies in boxes, and is split on the way into registers
  DIRECT,   // the factors have 16 bits, lie in boxes and are multiplied as they are
};

constexpr int ROW_BUFFER_BYTES = 16 * 40 * 4;  // see RowBuffer

template <class Config, class Problem>
struct Sm90Tile {
  using Instruction = typename Config::Instruction;
  using Element = typename Instruction::Element;
  static constexpr Feed FEED = Config::FEED;
  static constexpr int STAGES = Config::STAGES, CLUSTER = Config::CLUSTER;
  static constexpr int BLOCK_M = 128, BLOCK_N = Instruction::N, BLOCK_K = 64;
  static constexpr int CONSUMERS = 2;  // warpgroups
  static constexpr int WARPGROUP = 128;
  static constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;
  static constexpr int STEP_K = 16;  // of one instruction
  static constexpr int REGISTERS = Instruction::REGISTERS;
  static constexpr int PLANES = FEED == Feed::DIRECT ? 1 : 2;
  static constexpr int ROW_BYTES = BLOCK_K * 2;
  // Of two planes, or of the fp32 numbers.
  static constexpr int LHS_BYTES = PLANES * BLOCK_M * ROW_BYTES;
  static constexpr int LHS_PLANE = BLOCK_M * ROW_BYTES, RHS_PLANE = BLOCK_N * ROW_BYTES;
  static constexpr int STAGE_BYTES = LHS_BYTES + PLANES * RHS_PLANE;
  static constexpr int ALIGNMENT = 1024;                                 // of what is swizzled
  static constexpr int BUFFER_BYTES = CONSUMERS * 4 * ROW_BUFFER_BYTES;  // one for each warp
  static constexpr int SHARED_BYTES = ALIGNMENT + STAGES * (STAGE_BYTES + 2 * 8) + BUFFER_BYTES;
  // The registers of 384 threads at 168: whoever multiplies needs up to three sums.
  static constexpr int PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240;
  // The sum of the low parts may drift by 2^-23 with each instruction: after so many steps of
  // BLOCK_K that is still under one rounding of fp32.
  static constexpr int FOLD_STEPS = 128;
  // With so few steps in a unit the two warpgroups take turns: one stores while the other
  // multiplies. The stages must hold a whole unit, which one warpgroup is done with before the
  // other begins.
  static constexpr int FEW_STEPS = STAGES < 4 ? STAGES : 4;

  // A kernel before has split both factors, so what its guard says is known from the start: where
  // the pairs do not carry them, this kernel multiplies on the CUDA cores.
  static constexpr bool FALLS_BACK = FEED == Feed::SPLIT && Config::SLICES == 1;

  static_assert(CLUSTER == 1 || CLUSTER == 2, "blocks of a cluster fetch a half of rhs each");
  static_assert(SHARED_BYTES <= 227 * 1024, "a block has at most 227 KB of shared memory");
  static_assert(PLANES == 1 || BLOCK_N <= 128, "three sums of 64 x 256 do not fit registers");
};

// Divisors: how units are numbered.
struct Sm90Units {
  int count;
  int cluster_rows;  // tiles of a cluster, one below the other
  Divisor tiles_of_slice, tiles_of_batch, tiles_of_group, rows_of_group, rows_of_last_group;
};

template <class Problem>
struct Sm90Parameters {
  CUtensorMap lhs_map, rhs_map;
  Problem problem;
  int lhs_batch_steps[MAX_BATCH_RANK], rhs_batch_steps[MAX_BATCH_RANK];
  Sm90Units units;
  int steps_per_slice, steps;
  float* partials;  // [slice][batch][m][partial_pitch]
  int64_t partial_pitch;
  GemmHeader* header;
  int guard_word;  // CONVERT: the first of this kernel's
};

// Unit of work: a tile of this block, and the steps of K to sum over.
struct Sm90Work {
  int slice, batch;  // linear
  int row, column;
  int first_step, steps;
};

// Which units a block works on: those of its cluster, from its number on.
template <class Tile>
struct Sm90Place {
  __device__ __forceinline__ static int rank() { return Tile::CLUSTER > 1 ? cluster_rank() : 0; }
  __device__ __forceinline__ static int cluster() { return blockIdx.x / Tile::CLUSTER; }
  __device__ __forceinline__ static int clusters() { return gridDim.x / Tile::CLUSTER; }
};

constexpr int GROUP_ROWS = 8;  // of clusters: blocks that run at one time share boxes in the L2

template <class Tile>
Sm90Units number_units(int64_t m, int64_t n, int64_t batches, int slices) {
  constexpr int64_t ROWS = Tile::BLOCK_M * Tile::CLUSTER;
  const auto rows = static_cast<uint32_t>((m + ROWS - 1) / ROWS);
  const auto columns = static_cast<uint32_t>((n + Tile::BLOCK_N - 1) / Tile::BLOCK_N);
  const auto of_slice = static_cast<uint32_t>(rows * columns * batches);
  const uint32_t last = rows % GROUP_ROWS;
  return {static_cast<int>(of_slice * slices),
          static_cast<int>(rows),
          Divisor(of_slice),
          Divisor(rows * columns),
          Divisor(GROUP_ROWS * columns),
          Divisor(GROUP_ROWS),
          Divisor(last == 0 ? GROUP_ROWS : last)};
}

template <class Tile, class Problem>
__device__ __forceinline__ Sm90Work locate_work(const Sm90Parameters<Problem>& p, int unit) {
  const Sm90Units& units = p.units;
  Sm90Work work;
  uint32_t left = unit;
  work.slice = units.tiles_of_slice.quotient(left);
  left -= work.slice * units.tiles_of_slice.value();
  work.batch = units.tiles_of_batch.quotient(left);
  left -= work.batch * units.tiles_of_batch.value();
  const int group = units.tiles_of_group.quotient(left);
  left -= group * units.tiles_of_group.value();
  const bool is_last = (group + 1) * GROUP_ROWS > units.cluster_rows;
  const Divisor& rows = is_last ? units.rows_of_last_group : units.rows_of_group;
  const int column = rows.quotient(left);
  const int cluster_row = group * GROUP_ROWS + left - column * rows.value();
  work.row = (cluster_row * Tile::CLUSTER + Sm90Place<Tile>::rank()) * Tile::BLOCK_M;
  work.column = column * Tile::BLOCK_N;
  work.first_step = work.slice * p.steps_per_slice;
  work.steps = max(0, min(p.steps_per_slice, p.steps - work.first_step));
  // The blocks of a cluster share steps, and so skip them together; never those that look at lhs
  // for the guard.
  constexpr int ROWS = Tile::CLUSTER * Tile::BLOCK_M;
  const bool looks = Tile::FEED == Feed::CONVERT && work.column == 0;
  if (!looks && p.problem.is_zero(cluster_row * ROWS, ROWS, work.column, Tile::BLOCK_N)) {
    work.steps = 0;
  }
  return work;
}

// The number of the first plane of a batch: `steps` of its index in each batch dimension.
template <class Problem>
__device__ __forceinline__ int plane_batch(const Problem& problem, int batch,
                                           const int (&steps)[MAX_BATCH_RANK]) {
  if (problem.batch_rank == 0) return 0;
  int plane = 0;
#pragma unroll
  for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
    if (d < problem.batch_rank) {
      const int size = static_cast<int>(problem.batch_sizes[d]);
      plane += batch % size * steps[d];
      batch /= size;
    }
  }
  return plane;
}

// A place in a ring of COUNT buffers, and how often it went round, modulo 2.
template <int COUNT>
struct Ring {
  int stage = 0;
  int phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == COUNT) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <class Tile>
struct Sm90Shared {
  unsigned char* stages;
  unsigned char* buffers;
  Barrier* full;   // the stage holds its boxes
  Barrier* empty;  // nobody reads the stage, in any block of the cluster

  __device__ __forceinline__ explicit Sm90Shared(unsigned char* shared) {
    const uint32_t address = shared_address(shared);
    stages = shared + (Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT;
    buffers = stages + Tile::STAGES * Tile::STAGE_BYTES;
    full = reinterpret_cast<Barrier*>(buffers + Tile::BUFFER_BYTES);
    empty = full + Tile::STAGES;
  }

  __device__ __forceinline__ void init() const {
    constexpr int CONSUMER_WARPS = Tile::CONSUMERS * 4;
    for (int s = 0; s < Tile::STAGES; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, CONSUMER_WARPS * Tile::CLUSTER);
    }
    fence_barrier_init();
  }

  __device__ __forceinline__ unsigned char* lhs(int stage) const {
    return stages + stage * Tile::STAGE_BYTES;
  }
  __device__ __forceinline__ unsigned char* rhs(int stage, int plane) const {
    return lhs(stage) + Tile::LHS_BYTES + plane * Tile::RHS_PLANE;
  }

  // A consumer's warp reads the stage no more.
  __device__ __forceinline__ void release(int stage) const {
    const int lane = threadIdx.x % 32;
    if constexpr (Tile::CLUSTER == 1) {
      if (lane == 0) arrive(empty + stage);
    } else {
      if (lane < Tile::CLUSTER) arrive_at_rank(empty + stage, lane);
    }
  }
};
