#pragma once
// Matrix product on the tensor cores of compute capability 9.0 (wgmma).
//
// fp32 factors are pairs of fp16 numbers (gemm_guard.cuh) and each product of theirs is three:
//   lhs * rhs = high * high' + (low * high' + high * low') / 2^11      (low * low' is below 2^-22)
// A tensor core truncates where it adds, so a long chain of sums drifts toward zero. The products
// of the high parts are therefore summed over only 32 of K and then added to a sum in registers
// that rounds to nearest; the rest is 2^-11 smaller. 16-bit factors are one product and one chain,
// as in the libraries, and so are fp32 factors of convolutions that the reference rounds to TF32.
//
// Blocks are persistent and take units of work (a tile, or a slice of K of one) in turn. One thread
// of the first warpgroup brings the factors' boxes into a ring of stages in shared memory, two
// warpgroups multiply 64 rows of the tile each; barriers hand stages over. The blocks of a
// cluster lie below each other and share the boxes of rhs: each fetches a part for all. At 128 x
// 128 x 64 three products take 1536 cycles for 64 KB of shared memory.
//
// A config has
//   Instruction   of wgmma_*.cuh: BLOCK_N is its N
//   FEED          how the factors come
//   STAGES, CLUSTER
//   SLICES        K is cut into so many parts at most, which the last kernel adds in order
//   RESIDENT      blocks on a multiprocessor at one time: each waits while others multiply or store
//   TAPS, PIXELS  of a stage, where taps share their pixels
//   TRANSPOSED    the factors change sides: rhs^T lhs^T
//   LHS, RHS      Major: MN or K, how the factors lie (after changing sides)
//   MIN_PRODUCTS  the launcher takes another variant below so many multiplications
//   LEAST_AHEAD   with AHEAD: fewer elements are not worth a launch of their own

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_guard.cuh"
#include "gemm_plain.cuh"
#include "gemm_sm90_band.cuh"
#include "gemm_sm90_direct.cuh"
#include "gemm_sm90_inside.cuh"
#include "gemm_sm90_producer.cuh"
#include "gemm_sm90_products.cuh"
#include "gemm_sm90_raw.cuh"
#include "gemm_sm90_store.cuh"
#include "gemm_sm90_turns.cuh"
#include "gemm_split.cuh"

// What the threads of a block tell each other.
struct Sm90Notes {
  int exponents[SCALES];
  GuardWord guard;
};

// Where warp number `warp` of those that multiply has room in the stage that it read last: in
// halves that came from other blocks, as copies to them may still read those of this one.
template <class Tile>
__device__ __forceinline__ unsigned char* room_in_stage(const Sm90Shared<Tile>& shared, int last,
                                                        int warp) {
  constexpr int HALF = Tile::LHS_PLANE / 2;
  const int rank = Sm90Place<Tile>::rank();
  const int left = Tile::CLUSTER_COLUMNS == 2 ? 1 - rank % 2 : 0;
  const int right = Tile::CLUSTER_ROWS == 2 ? 1 - rank / Tile::CLUSTER_COLUMNS : 0;
  unsigned char* const half =
      warp < 4 ? shared.lhs(last) + left * HALF : shared.rhs(last, 0) + right * HALF;
  return half + warp % 4 / 2 * Tile::LHS_PLANE + warp % 2 * (HALF / 2);
}

// All warps that multiply.
template <class Tile>
__device__ __forceinline__ void sync_consumers() {
  sync_warps(1, Tile::CONSUMERS * Tile::WARPGROUP);
}

// A warpgroup that multiplies.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void consume(const Sm90Parameters<Problem>& p,
                                        const Sm90Shared<Tile>& shared, Sm90Notes& notes,
                                        int warpgroup) {
  using Place = Sm90Place<Tile>;
  Ring<Tile::STAGES> ring;
  const bool takes_turns = ANY_FEW_STEPS && !Tile::BUFFERED && !Tile::SPLITS_INSIDE &&
                           p.steps_per_slice <= Tile::FEW_STEPS;
  if (ANY_FEW_STEPS && takes_turns && warpgroup == 1) sync_consumers<Tile>();
  for (int unit = Place::cluster(); unit < p.units.count; unit += Place::clusters()) {
    const Sm90Work work = locate_work<Tile>(p, p.units, unit);
    float sums[Tile::REGISTERS];
    int last;  // the stage that was read last, which is not released
    if constexpr (Tile::FEED == Feed::DIRECT) {
      const int own_warp = warpgroup * 4 + threadIdx.x % Tile::WARPGROUP / 32;
      if constexpr (Config::Masks::BY_PLACE != 0 && Config::SLICES == 1) {
        ask_for_direct<1, Tile::BLOCK_N>(p, work, work.row + own_warp * RowBuffer::ROWS);
      }
      last = multiply_plain<Config>(shared, warpgroup, ring, work.steps, sums);
    } else if constexpr (Tile::FEED == Feed::BAND) {
      last = multiply_band<Config>(p.problem.patches, shared, warpgroup, ring, work.steps, sums);
    } else if constexpr (Tile::FEED == Feed::CONVERT) {
      const RawLhs<Config, Tile> lhs(shared, warpgroup, power_of_two(notes.exponents[0]));
      last = multiply_raw(shared, warpgroup, lhs, ring, work.steps, sums, work.column == 0,
                          notes.guard);
    } else {
      last = multiply_pairs<Config>(shared, warpgroup, ring, work.steps, sums);
    }
    // Found here: before, their registers would be missing for sums.
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));
    const int warp = warpgroup * 4 + thread % Tile::WARPGROUP / 32;
    int row = thread % 32 / 4;
    if constexpr (Tile::FEED == Feed::CONVERT) row = permuted_row<Config::LHS>(row);
    const Unscale unscale =
        Unscale::of(Tile::PLANES == 1 ? 0
                                      : notes.exponents[0] +
                                            notes.exponents[1 + p.problem.product_of(work.batch)]);
    if constexpr (Tile::SPLITS_INSIDE) {
      sync_consumers<Tile>();  // nobody reads the stage any more

    } else {
      shared.release(last);
    }
    if (ANY_FEW_STEPS && takes_turns && warpgroup == 0 && unit == Place::cluster()) {
      sync_consumers<Tile>();
    }
    if constexpr (Tile::BUFFERED) {
      store_buffered<Config, Tile>(p, work, unscale, sums, warp, row, shared.buffers);
    } else {
      const int first_row = work.row + warp * RowBuffer::ROWS;
      unsigned char* room = shared.buffers + warp * Tile::BUFFER_BYTES;
      if constexpr (Tile::SPLITS_INSIDE) room = room_in_stage(shared, last, warp);
      auto& buffer = *reinterpret_cast<RowBuffer*>(room);
      if constexpr (Config::SLICES > 1) {
        store_partials(p, work, first_row, row, sums, buffer);
      } else if constexpr (Tile::FEED == Feed::DIRECT) {
        const auto& parts = reinterpret_cast<const float (&)[1][Tile::REGISTERS]>(sums);
        store_direct<Config>(p, work, first_row, row, parts, buffer);
      } else if constexpr (Tile::FEED == Feed::BAND) {
        store_band<Config>(p, work, first_row, row, sums, buffer);
      } else {
#pragma unroll
        for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = unscale(sums[i]);
        store_results(p, work, first_row, row, sums, buffer);
      }
      if constexpr (Tile::SPLITS_INSIDE) {
        fence_shared_for_async();
        __syncwarp();
        shared.release(last);
      }
    }
  }
  if (Tile::BUFFERED && threadIdx.x % 32 == 0) wait_bulk_stores_read<0>();
}

// This block's units on the CUDA cores, those of launches before among them: by as many threads as
// the registers suffice for that every thread has at the start.
template <class Tile, class Problem>
__device__ __forceinline__ void multiply_on_cuda_cores(const Sm90Parameters<Problem>& p,
                                                       const Sm90Shared<Tile>& shared) {
  using Place = Sm90Place<Tile>;
  using Part = PlainTile<64>;
  auto& steps = *reinterpret_cast<typename Part::Shared*>(shared.stages);
  if (threadIdx.x >= Part::THREADS) return;
  for (int unit = Place::cluster(); unit < p.all.count; unit += Place::clusters()) {
    const Sm90Work work = locate_work<Tile>(p, p.all, unit);
    for (int row = work.row; row < work.row + Tile::BLOCK_M; row += Part::ROWS) {
      for (int column = work.column; column < work.column + Tile::BLOCK_N; column += Part::COLUMNS)
        multiply_plain_tile<Part>(p.problem, work.batch, row, column, steps);
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
  const int warpgroup = threadIdx.x / Tile::WARPGROUP;
  if (threadIdx.x == 0) {
    prefetch_map(&p.lhs_map);
    prefetch_map(&p.rhs_map);
    shared.init();
    notes.guard.clear();
  }
  wait_for_previous_kernel();
  if constexpr (Tile::SPLITS_INSIDE) {
    if (warpgroup < Tile::FEEDERS) {
      InsideSplitter<Config, Tile, Problem>(p, shared, raw_cursors()).start();
      sample_exponents(p.factors[0], p.factors[1], notes.exponents,
                       [] { sync_warps(2, SPLIT_THREADS); });
      if (blockIdx.x == 0 && threadIdx.x < SCALES) {
        p.header->exponents[threadIdx.x] = notes.exponents[threadIdx.x];
      }
    }
  } else if constexpr (Tile::PLANES == 2) {
    if (threadIdx.x < SCALES) notes.exponents[threadIdx.x] = p.header->exponents[threadIdx.x];
    if constexpr (Tile::FALLS_BACK) {
      if (p.falls_back && !pairs_were_exact(p.problem.rest)) {
        multiply_on_cuda_cores(p, shared);
        return;
      }
    }
  }
  if constexpr (Tile::CLUSTER > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (warpgroup < Tile::FEEDERS) {
    give_registers_back<Tile::PRODUCER_REGISTERS>();
    if constexpr (Tile::SPLITS_INSIDE) {
      InsideSplitter<Config, Tile, Problem>(p, shared, raw_cursors())
          .run(notes.exponents, notes.guard);
    } else if (threadIdx.x == 0) {
      produce<Config>(p, shared);
    }
    if constexpr (Tile::SPLITS_AHEAD) {
      if (p.splits_ahead && threadIdx.x >= 32) {
        const int worker = blockIdx.x * Tile::SPLITTERS + threadIdx.x / 32 - 1;
        split_ahead(p.ahead, power_of_two(notes.exponents[p.ahead_side]), worker,
                    gridDim.x * Tile::SPLITTERS, notes.guard);
      }
    }
  } else {
    take_registers<Tile::CONSUMER_REGISTERS>();
    if constexpr (Tile::TAKES_TURNS) {
      consume_in_turns<Config>(p, shared, warpgroup - Tile::FEEDERS);
    } else {
      consume<Config>(p, shared, notes, warpgroup - Tile::FEEDERS);
    }
  }
  if (Tile::FEED == Feed::CONVERT || Tile::SPLITS_INSIDE ||
      (Tile::SPLITS_AHEAD && p.splits_ahead)) {
    __syncthreads();
    if (threadIdx.x == 0) p.header->guard[p.guard_word + blockIdx.x] = notes.guard.word();
  }
  // Nobody leaves while the others may still write to its shared memory.
  if constexpr (Tile::CLUSTER > 1) sync_cluster();
#endif
}
