#pragma once
// Matrix product on the tensor cores of compute capability 9.0 (wgmma).
//
// fp32 factors are pairs of fp16 numbers (gemm_guard.cuh) and each product of theirs is three:
//   lhs * rhs = high * high' + (low * high' + high * low') / 2^11      (low * low' is below 2^-22)
// A tensor core truncates where it adds, so a long chain of sums drifts toward zero. The products
// of the high parts are therefore summed over only 32 of K and then added to a sum in registers
// that rounds to nearest; the rest is 2^-11 smaller. 16-bit factors are one product and one chain,
// as in the libraries.
//
// Blocks are persistent and take units of work (a tile, or a slice of K of one) in turn. One thread
// of the first warpgroup brings the factors' boxes into a ring of stages in shared memory, two
// warpgroups multiply 64 rows of the tile each; barriers hand stages over. The blocks of a cluster
// lie below each other and share the boxes of rhs: each fetches a part for all. At 128 x 128 x 64
// three products take 1536 cycles for 64 KB of shared memory.
//
// A config has
//   Instruction   of wgmma_*.cuh: BLOCK_N is its N
//   FEED          where the 16-bit planes come from
//   STAGES, CLUSTER
//   SLICES        K is cut into so many parts, which the last kernel adds in order
//   TRANSPOSED    the factors change sides: rhs^T lhs^T
//   LHS, RHS      Major: MN or K, how the factors lie (after changing sides)
//   MIN_PRODUCTS  the launcher takes another variant below so many multiplications

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_sm90_producer.cuh"
#include "gemm_sm90_products.cuh"
#include "gemm_sm90_raw.cuh"
#include "gemm_split.cuh"

// Of each 8 columns a thread of a warpgroup has two neighbours, in one row of its warp's 16 and in
// the row 8 below (PTX ISA, "wgmma.mma_async", matrix D). Its lane's number in a quad, q, says
// which.
template <class Config>
__device__ __forceinline__ int fragment_row() {
  const int g = threadIdx.x % 32 / 4;
  return threadIdx.x % 128 / 32 * 16 +
         (Config::FEED == Feed::CONVERT ? permuted_row<Config::LHS>(g) : g);
}

constexpr int RUN = 4;        // columns of a run
constexpr int RUN_STEP = 16;  // columns from one run of a thread to the next

// The lanes of a quad exchange what they have of 16 columns, `even` of the first 8 and `odd` of the
// others, so that each has a run of 4: a warp's store then fills twice as much of each cache line,
// of which it can touch one a cycle.
__device__ __forceinline__ Vector<float, RUN> exchange_in_quad(const float (&even)[2],
                                                               const float (&odd)[2]) {
  const int q = threadIdx.x % 4;
  Vector<float, RUN> run;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float keep = q < 2 ? even[i] : odd[i];
    const float from_other_half = __shfl_xor_sync(0xffffffffu, q < 2 ? odd[i] : even[i], 2);
    const bool swaps_own = q == 1 || q == 2;
    const float stay = swaps_own ? from_other_half : keep;
    const float from_neighbour =
        __shfl_xor_sync(0xffffffffu, swaps_own ? keep : from_other_half, 1);
    run.element[i] = q % 2 == 0 ? stay : from_neighbour;
    run.element[2 + i] = q % 2 == 0 ? from_neighbour : stay;
  }
  return run;
}

// Run i of the upper (BELOW = 0) or lower (1) row, from column 16 i + 4 q.
template <int BELOW, int COUNT>
__device__ __forceinline__ Vector<float, RUN> fragment_run(const float (&sums)[COUNT], int i) {
  const int first = 8 * i + 2 * BELOW;
  return exchange_in_quad({sums[first], sums[first + 1]}, {sums[first + 4], sums[first + 5]});
}
__device__ __forceinline__ int fragment_column() { return threadIdx.x % 4 * RUN; }

// This slice's sums, for the last kernel to add.
template <class Problem, int COUNT>
__device__ __forceinline__ void store_partials(const Sm90Parameters<Problem>& p,
                                               const Sm90Work& work, int row, int column,
                                               const float (&sums)[COUNT]) {
  const int64_t rows = p.problem.m;
  float* const part =
      p.partials + ((work.slice * p.problem.batches + work.batch) * rows + row) * p.partial_pitch +
      column;
#pragma unroll
  for (int i = 0; i < COUNT / 8; ++i) {
    const auto upper = fragment_run<0>(sums, i);
    const auto lower = fragment_run<1>(sums, i);
    if (column + i * RUN_STEP < p.partial_pitch) {
      if (row < rows) store_vector(part + i * RUN_STEP, upper);
      if (row + 8 < rows) store_vector(part + 8 * p.partial_pitch + i * RUN_STEP, lower);
    }
  }
}

template <class Problem, int COUNT>
__device__ __forceinline__ void store_results(const Sm90Parameters<Problem>& p,
                                              const Sm90Work& work, int row, int column,
                                              const float (&sums)[COUNT]) {
  constexpr int RUNS = COUNT / 8;
  int64_t index[MAX_BATCH_RANK];
  split_batch(p.problem, work.batch, index);
  const GemmEpilogue epilogue(p.problem, index);
  Vector<float, RUN> runs[RUNS];
#pragma unroll
  for (int i = 0; i < RUNS; ++i) runs[i] = fragment_run<0>(sums, i);
  epilogue.template apply_runs<RUN, RUN_STEP, RUNS>(row, column, [&](int i) { return runs[i]; });
#pragma unroll
  for (int i = 0; i < RUNS; ++i) runs[i] = fragment_run<1>(sums, i);
  epilogue.template apply_runs<RUN, RUN_STEP, RUNS>(row + 8, column,
                                                    [&](int i) { return runs[i]; });
}

// What the threads of a block tell each other.
struct Sm90Notes {
  int exponents[2];
  GuardWord guard;
};

// A warpgroup that multiplies.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void consume(const Sm90Parameters<Problem>& p,
                                        const Sm90Shared<Tile>& shared, Sm90Notes& notes,
                                        int warpgroup, int cluster, int clusters, int rank) {
  constexpr int TURNS = 1;  // barrier of the warps that multiply
  constexpr int CONSUMERS = Tile::CONSUMERS * Tile::WARPGROUP;
  const StageProducts<Config, Tile> products(shared, warpgroup);
  Ring<Tile::STAGES> ring;
  const int exponent = Tile::FEED == Feed::DIRECT ? 0 : notes.exponents[0] + notes.exponents[1];
  const bool takes_turns = p.steps_per_slice <= Tile::FEW_STEPS;
  if (takes_turns && warpgroup == 1) sync_warps(TURNS, CONSUMERS);
  for (int unit = cluster; unit < p.units.count; unit += clusters) {
    const Sm90Work work = locate_work<Tile>(p, unit, rank);
    float sums[Tile::REGISTERS];
    if constexpr (Tile::FEED == Feed::DIRECT) {
      multiply_plain(shared, products, ring, work.steps, sums);
    } else if constexpr (Tile::FEED == Feed::CONVERT) {
      const RawLhs<Config, Tile> lhs(shared, warpgroup, power_of_two(notes.exponents[0]));
      multiply_raw(shared, products, lhs, ring, work.steps, sums, work.column == 0, notes.guard);
    } else {
      multiply_pairs(shared, products, ring, work.steps, sums);
    }
    if (takes_turns && warpgroup == 0 && unit == cluster) sync_warps(TURNS, CONSUMERS);
    const int row = work.row + warpgroup * 64 + fragment_row<Config>();
    const int column = work.column + fragment_column();
    if constexpr (Config::SLICES > 1) {
      store_partials(p, work, row, column, sums);
    } else {
      if constexpr (Tile::FEED != Feed::DIRECT) {
        const Unscale unscale = Unscale::of(exponent);
#pragma unroll
        for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = unscale(sums[i]);
      }
      store_results(p, work, row, column, sums);
    }
  }
}

// The body of a kernel of THREADS threads and SHARED_BYTES of dynamic shared memory, in clusters of
// CLUSTER blocks.
template <class Config, class Problem>
__device__ __forceinline__ void gemm_sm90(const Sm90Parameters<Problem>& p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Tile = Sm90Tile<Config, Problem>;
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ Sm90Notes notes;
  const Sm90Shared<Tile> shared(dynamic_shared);
  const int rank = Tile::CLUSTER > 1 ? cluster_rank() : 0;
  const int cluster = blockIdx.x / Tile::CLUSTER;
  const int clusters = gridDim.x / Tile::CLUSTER;
  const int warpgroup = threadIdx.x / Tile::WARPGROUP;
  if (threadIdx.x == 0) {
    prefetch_map(&p.lhs_map);
    prefetch_map(&p.rhs_map);
    shared.init();
    notes.guard.clear();
  }
  if constexpr (Tile::FEED != Feed::DIRECT) {
    wait_for_previous_kernel();
    let_next_kernel_start();
    if (threadIdx.x < 2) notes.exponents[threadIdx.x] = p.header->exponents[threadIdx.x];
  }
  if constexpr (Tile::CLUSTER > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (warpgroup == 0) {
    give_registers_back<Tile::PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce<Config>(p, shared, cluster, clusters, rank);
  } else {
    take_registers<Tile::CONSUMER_REGISTERS>();
    consume<Config>(p, shared, notes, warpgroup - 1, cluster, clusters, rank);
  }
  if constexpr (Tile::FEED == Feed::CONVERT) {
    __syncthreads();
    if (threadIdx.x == 0) p.header->guard[p.guard_word + blockIdx.x] = notes.guard.word();
  }
  // Nobody leaves while the others may still write to its shared memory.
  if constexpr (Tile::CLUSTER > 1) sync_cluster();
#endif
}
