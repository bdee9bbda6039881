#pragma once
// Matrix product on the tensor cores of compute capability 9.0 (wgmma).
//
// fp32 factors are pairs of fp16 numbers (gemm_guard.cuh) and each product of theirs is three:
//   lhs * rhs = high * high' + (low * high' + high * low') / 2^11      (low * low' is below 2^-22)
// A tensor core truncates where it adds, so a long chain of sums drifts toward zero. The products
// of the high parts are therefore summed over only PROMOTE_K of K and then added to a sum in
// registers that rounds to nearest; the rest is 2^-11 smaller and has a sum of its own. 16-bit
// factors are one product and one chain, as in the libraries.
//
// Blocks are persistent and take units of work (a tile, or a slice of K of one) in turn. One
// warpgroup brings the factors' boxes into a ring of stages in shared memory, two multiply 64 rows
// of the tile each; barriers hand stages over. The blocks of a cluster lie below each other and
// share the boxes of rhs: each fetches a part for all. At 128 x 128 x 64 three products take 1536
// cycles for 64 KB of shared memory.
//
// A config has
//   Instruction   of wgmma_*.cuh: BLOCK_N is its N
//   FEED          where the 16-bit planes come from
//   STAGES, CLUSTER
//   SLICES        K is cut into so many parts, which the last kernel adds in order
//   LHS, RHS      Major: MN or K, how the factors lie
//   MIN_PRODUCTS  the launcher takes another variant below so many multiplications

#include "dependent_launch.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_factor.cuh"
#include "gemm_guard.cuh"
#include "gemm_problem.cuh"
#include "gemm_split.cuh"
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

enum class Feed {
  SPLIT,    // fp32 factors, split by a kernel before
  CONVERT,  // fp32 factors, split by the kernel itself: contiguous, rows at multiples of 16 bytes
  DIRECT,   // 16-bit factors as they are
};

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
  static constexpr int STEP_K = 16;     // of one instruction
  static constexpr int PROMOTE_K = 32;  // free: the additions hide under the other products
  static constexpr int REGISTERS = Instruction::REGISTERS;
  static constexpr int PLANES = FEED == Feed::DIRECT ? 1 : 2;
  static constexpr int ROW_BYTES = BLOCK_K * 2;
  static constexpr int LHS_PLANE = BLOCK_M * ROW_BYTES, RHS_PLANE = BLOCK_N * ROW_BYTES;
  static constexpr int STAGE_BYTES = PLANES * (LHS_PLANE + RHS_PLANE);
  // Raw fp32 boxes that wait for their conversion.
  static constexpr int RAW_K = 32;
  static constexpr int RAW_STAGES = FEED == Feed::CONVERT ? 3 : 0;
  static constexpr int RAW_BYTES = (BLOCK_M + BLOCK_N) * RAW_K * 4;
  static constexpr int ALIGNMENT = 1024;  // of what is swizzled
  static constexpr int BARRIERS = 2 * STAGES + RAW_STAGES;
  static constexpr int SHARED_BYTES =
      ALIGNMENT + STAGES * STAGE_BYTES + RAW_STAGES * RAW_BYTES + BARRIERS * 8;
  // A block has 64 K registers: whoever multiplies needs three sums.
  static constexpr int PRODUCER_REGISTERS = FEED == Feed::CONVERT ? 72 : 40;
  static constexpr int CONSUMER_REGISTERS = FEED == Feed::CONVERT ? 216 : 232;
  // The sum of the low parts may drift by 2^-23 with each instruction: after so many steps of
  // BLOCK_K that is still under one rounding of fp32.
  static constexpr int FOLD_STEPS = 128;

  static_assert(CLUSTER == 1 || (CLUSTER == 2 && FEED != Feed::CONVERT),
                "blocks of a cluster fetch planes for each other");
  static_assert(SHARED_BYTES <= 227 * 1024, "a block has at most 227 KB of shared memory");
  static_assert(PLANES == 1 || BLOCK_N <= 128, "three sums of 64 x 256 do not fit registers");
};

// Unit of work: a tile of this block, and the steps of K to sum over.
struct Sm90Work {
  int batch;  // linear
  int row, column;
  int first_step, steps;
  int slice;
};

template <class Problem>
struct Sm90Parameters {
  CUtensorMap lhs_map, rhs_map;
  Problem problem;
  int lhs_batch_steps[MAX_BATCH_RANK], rhs_batch_steps[MAX_BATCH_RANK];
  int cluster_rows, columns;  // tiles
  int units;
  int steps_per_slice, steps;
  float* partials;  // [slice][batch][m][n], n padded to partial_pitch
  int64_t partial_pitch;
  GemmHeader* header;
  Factor lhs, rhs;  // CONVERT samples them
};

// Groups of 8 rows of clusters: the blocks that run at one time share boxes in the L2 cache.
template <class Tile, class Problem>
__device__ __forceinline__ Sm90Work locate_work(const Sm90Parameters<Problem>& p, int unit,
                                                int rank) {
  constexpr int GROUP = 8;
  const int tiles = p.cluster_rows * p.columns;
  const int batches = static_cast<int>(p.problem.batches);
  Sm90Work work;
  work.slice = unit / (tiles * batches);
  unit -= work.slice * tiles * batches;
  work.batch = unit / tiles;
  unit -= work.batch * tiles;
  const int group = unit / (GROUP * p.columns);
  const int in_group = unit - group * GROUP * p.columns;
  const int rows = min(GROUP, p.cluster_rows - group * GROUP);
  const int column = in_group / rows;
  const int cluster_row = (group * GROUP + in_group - column * rows) * Tile::CLUSTER;
  work.row = (cluster_row + rank) * Tile::BLOCK_M;
  work.column = column * Tile::BLOCK_N;
  work.first_step = work.slice * p.steps_per_slice;
  work.steps = max(0, min(p.steps_per_slice, p.steps - work.first_step));
  return work;
}

__device__ __forceinline__ int plane_batch(const int64_t (&index)[MAX_BATCH_RANK],
                                           const int (&steps)[MAX_BATCH_RANK], int rank) {
  int batch = 0;
#pragma unroll
  for (int d = 0; d < MAX_BATCH_RANK; ++d) {
    if (d < rank) batch += static_cast<int>(index[d]) * steps[d];
  }
  return batch;
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
  unsigned char* raw;
  Barrier* full;   // the stage holds its boxes
  Barrier* empty;  // nobody reads the stage, in any block of the cluster
  Barrier* raw_full;

  __device__ __forceinline__ explicit Sm90Shared(unsigned char* shared) {
    const uint32_t address = shared_address(shared);
    stages = shared + ((Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT);
    raw = stages + Tile::STAGES * Tile::STAGE_BYTES;
    full = reinterpret_cast<Barrier*>(raw + Tile::RAW_STAGES * Tile::RAW_BYTES);
    empty = full + Tile::STAGES;
    raw_full = empty + Tile::STAGES;
  }

  __device__ __forceinline__ void init() const {
    constexpr int CONSUMER_WARPS = Tile::CONSUMERS * 4;
    for (int s = 0; s < Tile::STAGES; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, CONSUMER_WARPS * Tile::CLUSTER);
    }
    for (int s = 0; s < Tile::RAW_STAGES; ++s) init_barrier(raw_full + s, 1);
    fence_barrier_init();
  }

  // Planes of a stage: those of lhs, then those of rhs.
  __device__ __forceinline__ unsigned char* lhs(int stage, int plane) const {
    return stages + stage * Tile::STAGE_BYTES + plane * Tile::LHS_PLANE;
  }
  __device__ __forceinline__ unsigned char* rhs(int stage, int plane) const {
    return lhs(stage, Tile::PLANES) + plane * Tile::RHS_PLANE;
  }
};

// ---- Producer of planes ----

// COUNT elements along a factor's own dimension from `first`, BLOCK_K along K.
template <class Tile, Major MAJOR, int COUNT, int BLOCKS>
__device__ __forceinline__ void fetch_plane(unsigned char* target, const CUtensorMap* map, int k,
                                            int first, int plane, Barrier* barrier) {
  constexpr uint16_t EVERY_BLOCK = (1 << BLOCKS) - 1;
  constexpr int GROUP = MAJOR == Major::K ? COUNT : 64;  // rows of 128 bytes: 64 along MN
#pragma unroll
  for (int i = 0; i < COUNT; i += GROUP) {
    const int x = MAJOR == Major::K ? k : first + i;
    const int y = MAJOR == Major::K ? first : k;
    unsigned char* const box = target + i * Tile::ROW_BYTES;
    if constexpr (BLOCKS == 1) {
      copy_box(box, map, x, y, plane, barrier);
    } else {
      copy_box_to_cluster(box, map, x, y, plane, barrier, EVERY_BLOCK);
    }
  }
}

// One thread keeps the ring of stages full.
template <class Config, class Problem>
__device__ __forceinline__ void produce_planes(const Sm90Parameters<Problem>& p,
                                               const Sm90Shared<Sm90Tile<Config, Problem>>& shared,
                                               int cluster, int clusters, int rank) {
  using Tile = Sm90Tile<Config, Problem>;
  constexpr int CLUSTER = Tile::CLUSTER, PLANES = Tile::PLANES;
  Ring<Tile::STAGES> ring;
  for (int unit = cluster; unit < p.units; unit += clusters) {
    const Sm90Work work = locate_work<Tile>(p, unit, rank);
    int64_t index[MAX_BATCH_RANK];
    split_batch(p.problem, work.batch, index);
    const int lhs_plane = plane_batch(index, p.lhs_batch_steps, p.problem.batch_rank) * PLANES;
    const int rhs_plane = plane_batch(index, p.rhs_batch_steps, p.problem.batch_rank) * PLANES;
    for (int step = 0; step < work.steps; ++step) {
      const int k = (work.first_step + step) * Tile::BLOCK_K;
      Barrier* const full = shared.full + ring.stage;
      wait(shared.empty + ring.stage, ring.phase ^ 1);
      arrive_expecting(full, Tile::STAGE_BYTES);
#pragma unroll
      for (int plane = 0; plane < PLANES; ++plane) {
        fetch_plane<Tile, Config::LHS, Tile::BLOCK_M, 1>(shared.lhs(ring.stage, plane), &p.lhs_map,
                                                         k, work.row, lhs_plane + plane, full);
      }
      if constexpr (CLUSTER == 1) {
#pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
          fetch_plane<Tile, Config::RHS, Tile::BLOCK_N, 1>(
              shared.rhs(ring.stage, plane), &p.rhs_map, k, work.column, rhs_plane + plane, full);
        }
      } else if constexpr (PLANES == CLUSTER) {
        // Each block fetches one plane for both.
        fetch_plane<Tile, Config::RHS, Tile::BLOCK_N, CLUSTER>(
            shared.rhs(ring.stage, rank), &p.rhs_map, k, work.column, rhs_plane + rank, full);
      } else {
        // Each block fetches half of the columns for both.
        constexpr int PART = Tile::BLOCK_N / CLUSTER;
        fetch_plane<Tile, Config::RHS, PART, CLUSTER>(
            shared.rhs(ring.stage, 0) + rank * PART * Tile::ROW_BYTES, &p.rhs_map, k,
            work.column + rank * PART, rhs_plane, full);
      }
      ring.advance();
    }
  }
}

// ---- Producer that converts ----

// Raw boxes have rows of 32 fp32 numbers (128 bytes), planes rows of 64 fp16 numbers, both with
// their 16-byte chunks permuted by the row. A thread turns 8 numbers, two chunks, into one chunk of
// each plane; the lanes of a warp take 4 such runs of 8 rows so that neither side meets in a bank.
template <class Tile, int ROWS>
__device__ __forceinline__ void convert_box(const unsigned char* raw, unsigned char* high,
                                            unsigned char* low, int half, float scale,
                                            Guard<8>& guard) {
  const int thread = threadIdx.x % Tile::WARPGROUP;
  const int lane = thread % 32;
  const int run = lane % 4;
  // Lanes that work at one time are 4 runs of 2 rows which differ in bits 0 and 2.
  const int in_eight = lane / 8 ^ (lane / 4 % 2 ? 5 : 0);
#pragma unroll
  for (int r = 0; r < ROWS; r += 32) {
    const int row = r + thread / 32 * 8 + in_eight;
    const unsigned char* const source = raw + row * 128;
    const float4 a = *reinterpret_cast<const float4*>(source + ((2 * run ^ in_eight) << 4));
    const float4 b = *reinterpret_cast<const float4*>(source + (((2 * run + 1) ^ in_eight) << 4));
    const float scaled[8] = {a.x * scale, a.y * scale, a.z * scale, a.w * scale,
                             b.x * scale, b.y * scale, b.z * scale, b.w * scale};
    guard.see(scaled);
    const int place = row * 128 + ((4 * half + run ^ in_eight) << 4);
    const Halves pairs[4] = {split(scaled[0], scaled[1]), split(scaled[2], scaled[3]),
                             split(scaled[4], scaled[5]), split(scaled[6], scaled[7])};
    uint32_t bits[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bits[i] = *reinterpret_cast<const uint32_t*>(&pairs[i].high);
      bits[4 + i] = *reinterpret_cast<const uint32_t*>(&pairs[i].low);
    }
    *reinterpret_cast<uint4*>(high + place) = make_uint4(bits[0], bits[1], bits[2], bits[3]);
    *reinterpret_cast<uint4*>(low + place) = make_uint4(bits[4], bits[5], bits[6], bits[7]);
  }
  guard.end_block();
}

// The COUNT x RAW_K part of a factor in raw boxes to its place in a stage's planes.
template <class Tile, Major MAJOR, int COUNT>
__device__ __forceinline__ void convert_factor(const unsigned char* raw, unsigned char* high,
                                               unsigned char* low, int half, float scale,
                                               Guard<8>& guard) {
  if constexpr (MAJOR == Major::K) {
    convert_box<Tile, COUNT>(raw, high, low, half, scale, guard);
  } else {
    // Boxes of 32 along MN by RAW_K; two of them side by side make the rows of a plane.
    constexpr int BOX = Tile::RAW_K * 128;
#pragma unroll
    for (int i = 0; i < COUNT / 32; ++i) {
      const int place = i / 2 * 64 * 128 + half * Tile::RAW_K * 128;
      convert_box<Tile, Tile::RAW_K>(raw + i * BOX, high + place, low + place, i % 2, scale, guard);
    }
  }
}

template <class Tile, Major MAJOR, int COUNT>
__device__ __forceinline__ void fetch_raw(unsigned char* target, const CUtensorMap* map, int k,
                                          int first, int batch, Barrier* barrier) {
  if constexpr (MAJOR == Major::K) {
    copy_box(target, map, k, first, batch, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i += 32) {
      copy_box(target + i * Tile::RAW_K * 4, map, first + i, k, batch, barrier);
    }
  }
}

// The raw boxes of this block in the order in which they are wanted.
template <class Config, class Problem>
class RawSteps {
 public:
  using Tile = Sm90Tile<Config, Problem>;
  static constexpr int PER_STEP = Tile::BLOCK_K / Tile::RAW_K;

  __device__ __forceinline__ RawSteps(const Sm90Parameters<Problem>& p, int block, int blocks)
      : p_(p), unit_(block), blocks_(blocks) {
    enter();
  }

  __device__ __forceinline__ bool done() const { return unit_ >= p_.units; }

  __device__ __forceinline__ void fetch(unsigned char* raw, Barrier* barrier) {
    constexpr int LHS_BYTES = Tile::BLOCK_M * Tile::RAW_K * 4;
    const int k = work_.first_step * Tile::BLOCK_K + at_ * Tile::RAW_K;
    arrive_expecting(barrier, Tile::RAW_BYTES);
    fetch_raw<Tile, Config::LHS, Tile::BLOCK_M>(raw, &p_.lhs_map, k, work_.row, lhs_batch_,
                                                barrier);
    fetch_raw<Tile, Config::RHS, Tile::BLOCK_N>(raw + LHS_BYTES, &p_.rhs_map, k, work_.column,
                                                rhs_batch_, barrier);
    if (++at_ == work_.steps * PER_STEP) {
      unit_ += blocks_;
      enter();
    }
  }

 private:
  // Goes to the first unit from here on that has steps.
  __device__ __forceinline__ void enter() {
    at_ = 0;
    for (; unit_ < p_.units; unit_ += blocks_) {
      work_ = locate_work<Tile>(p_, unit_, 0);
      if (work_.steps > 0) break;
    }
    if (done()) return;
    int64_t index[MAX_BATCH_RANK];
    split_batch(p_.problem, work_.batch, index);
    lhs_batch_ = plane_batch(index, p_.lhs_batch_steps, p_.problem.batch_rank);
    rhs_batch_ = plane_batch(index, p_.rhs_batch_steps, p_.problem.batch_rank);
  }

  const Sm90Parameters<Problem>& p_;
  int unit_, blocks_, at_, lhs_batch_, rhs_batch_;
  Sm90Work work_;
};

// A warpgroup converts; its first thread also asks for the raw boxes, RAW_STAGES ahead.
template <class Config, class Problem>
__device__ __forceinline__ void convert_planes(const Sm90Parameters<Problem>& p,
                                               const Sm90Shared<Sm90Tile<Config, Problem>>& shared,
                                               const int (&exponents)[2]) {
  using Tile = Sm90Tile<Config, Problem>;
  constexpr int LHS_BYTES = Tile::BLOCK_M * Tile::RAW_K * 4;
  const auto sync = [] { sync_warps(1, Tile::WARPGROUP); };
  const bool leads = threadIdx.x % Tile::WARPGROUP == 0;
  const float lhs_scale = power_of_two(exponents[0]), rhs_scale = power_of_two(exponents[1]);
  RawSteps<Config, Problem> next(p, blockIdx.x, gridDim.x);
  Guard<8> guard;
  Ring<Tile::STAGES> ring;
  Ring<Tile::RAW_STAGES> raw_ring;
  if (leads) {
    for (int s = 0; s < Tile::RAW_STAGES && !next.done(); ++s) {
      next.fetch(shared.raw + s * Tile::RAW_BYTES, shared.raw_full + s);
    }
  }
  for (int unit = blockIdx.x; unit < p.units; unit += gridDim.x) {
    const int steps = locate_work<Tile>(p, unit, 0).steps;
    for (int step = 0; step < steps; ++step) {
      wait(shared.empty + ring.stage, ring.phase ^ 1);
#pragma unroll 1
      for (int half = 0; half < Tile::BLOCK_K / Tile::RAW_K; ++half) {
        unsigned char* const raw = shared.raw + raw_ring.stage * Tile::RAW_BYTES;
        wait(shared.raw_full + raw_ring.stage, raw_ring.phase);
        convert_factor<Tile, Config::LHS, Tile::BLOCK_M>(
            raw, shared.lhs(ring.stage, 0), shared.lhs(ring.stage, 1), half, lhs_scale, guard);
        convert_factor<Tile, Config::RHS, Tile::BLOCK_N>(raw + LHS_BYTES, shared.rhs(ring.stage, 0),
                                                         shared.rhs(ring.stage, 1), half, rhs_scale,
                                                         guard);
        fence_shared_for_async();
        sync();
        if (leads && !next.done()) next.fetch(raw, shared.raw_full + raw_ring.stage);
        raw_ring.advance();
      }
      if (leads) arrive(shared.full + ring.stage);
      ring.advance();
    }
  }
  if (blockIdx.x == 0 && leads) {
    p.header->exponents[0] = exponents[0];
    p.header->exponents[1] = exponents[1];
  }
  store_guard(guard.word(), &p.header->guard[blockIdx.x], leads, sync);
}

// ---- Consumers ----

// What a warpgroup needs to multiply the planes of a stage.
template <class Config, class Problem>
class StageProducts {
 public:
  using Tile = Sm90Tile<Config, Problem>;
  using Instruction = typename Tile::Instruction;
  using Sums = float[Tile::REGISTERS];

  __device__ __forceinline__ StageProducts(const Sm90Shared<Tile>& shared, int warpgroup)
      : lhs_(describe_matrix(shared.lhs(0, 0) + warpgroup * 64 * Tile::ROW_BYTES, GROUP_BYTES)),
        rhs_(describe_matrix(shared.rhs(0, 0), GROUP_BYTES)) {}

  // sums = lhs plane * rhs plane over STEP_K of K from STEP; added to sums unless `accumulate` is
  // 0.
  template <int LHS_PLANE, int RHS_PLANE, int STEP>
  __device__ __forceinline__ void multiply(Sums& sums, int stage, int accumulate) const {
    constexpr int LHS_STEP = Config::LHS == Major::K ? 2 : Tile::ROW_BYTES;
    constexpr int RHS_STEP = Config::RHS == Major::K ? 2 : Tile::ROW_BYTES;
    Instruction::template multiply<Config::LHS == Major::MN, Config::RHS == Major::MN>(
        sums,
        advance_matrix(lhs_, stage * Tile::STAGE_BYTES + LHS_PLANE * Tile::LHS_PLANE +
                                 STEP * Tile::STEP_K * LHS_STEP),
        advance_matrix(rhs_, stage * Tile::STAGE_BYTES + RHS_PLANE * Tile::RHS_PLANE +
                                 STEP * Tile::STEP_K * RHS_STEP),
        accumulate);
  }

 private:
  static constexpr int GROUP_BYTES = 64 * Tile::ROW_BYTES;  // 64 along M or N by BLOCK_K
  uint64_t lhs_, rhs_;
};

// This warp reads the stage no more.
template <class Tile>
__device__ __forceinline__ void release(const Sm90Shared<Tile>& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if constexpr (Tile::CLUSTER == 1) {
    if (lane == 0) arrive(shared.empty + stage);
  } else {
    if (lane < Tile::CLUSTER) arrive_at_rank(shared.empty + stage, lane);
  }
}

// One part of a step of K: PROMOTE_K of it, from instruction STEP on. On return the products of the
// high parts are in `sums`, and those of the low parts are under way.
template <int STEP, class Products, class Release, int COUNT>
__device__ __forceinline__ void multiply_part(const Products& products, int stage, int accumulate,
                                              float (&sums)[COUNT], float (&high)[COUNT],
                                              float (&low)[COUNT], const Release& release_before) {
  fence_products();
  products.template multiply<0, 0, STEP>(high, stage, 0);
  products.template multiply<0, 0, STEP + 1>(high, stage, 1);
  commit_products();
  wait_products<1>();  // for the low parts of the part before
  release_before();
  fence_products();
  products.template multiply<1, 0, STEP>(low, stage, accumulate);
  products.template multiply<0, 1, STEP>(low, stage, 1);
  products.template multiply<1, 0, STEP + 1>(low, stage, 1);
  products.template multiply<0, 1, STEP + 1>(low, stage, 1);
  commit_products();
  wait_products<1>();  // for the high parts
  pin(high);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] += high[i];
}

// sums = products of pairs over `steps` steps of K.
template <class Config, class Problem>
__device__ __forceinline__ void multiply_pairs(
    const StageProducts<Config, Problem>& products,
    const Sm90Shared<Sm90Tile<Config, Problem>>& shared,
    Ring<Sm90Tile<Config, Problem>::STAGES>& ring, int steps,
    float (&sums)[Sm90Tile<Config, Problem>::REGISTERS]) {
  using Tile = Sm90Tile<Config, Problem>;
  static_assert(Tile::PROMOTE_K == 2 * Tile::STEP_K && Tile::BLOCK_K == 4 * Tile::STEP_K,
                "a step of K is two parts of two instructions");
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  float high[Tile::REGISTERS], low[Tile::REGISTERS];
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  for (int done = 0; done < steps; done += Tile::FOLD_STEPS) {
    const int end = min(steps, done + Tile::FOLD_STEPS);
    int before = 0;
    for (int step = done; step < end; ++step) {
      const int stage = ring.stage;
      const int accumulate = step > done;
      wait(shared.full + stage, ring.phase);
      multiply_part<0>(products, stage, accumulate, sums, high, low, [&] {
        if (step > done) release(shared, before);
      });
      multiply_part<2>(products, stage, 1, sums, high, low, [] {});
      before = stage;
      ring.advance();
    }
    wait_products<0>();
    pin(low);
    release(shared, before);
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = fmaf(low[i], LOW, sums[i]);
  }
}

// sums = products of 16-bit numbers over `steps` steps of K: one chain.
template <class Config, class Problem>
__device__ __forceinline__ void multiply_plain(
    const StageProducts<Config, Problem>& products,
    const Sm90Shared<Sm90Tile<Config, Problem>>& shared,
    Ring<Sm90Tile<Config, Problem>::STAGES>& ring, int steps,
    float (&sums)[Sm90Tile<Config, Problem>::REGISTERS]) {
  using Tile = Sm90Tile<Config, Problem>;
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.full + stage, ring.phase);
    fence_products();
    products.template multiply<0, 0, 0>(sums, stage, 1);
    products.template multiply<0, 0, 1>(sums, stage, 1);
    products.template multiply<0, 0, 2>(sums, stage, 1);
    products.template multiply<0, 0, 3>(sums, stage, 1);
    commit_products();
    wait_products<1>();
    if (step > 0) release(shared, before);
    before = stage;
    ring.advance();
  }
  wait_products<0>();
  pin(sums);
  if (steps > 0) release(shared, before);
}

// Thread t of a warpgroup has of each 8 columns two neighbours, in rows t / 4 of its warp's 16 and
// 8 below (PTX ISA, "wgmma.mma_async", matrix D).
template <int COUNT, class Store>
__device__ __forceinline__ void for_each_pair(const float (&sums)[COUNT], int first_row,
                                              int first_column, const Store& store) {
  const int thread = threadIdx.x % 128;
  const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
  const int column = first_column + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < COUNT; i += 4) {
    store(Vector<float, 2>{{sums[i], sums[i + 1]}}, row, column + i * 2);
    store(Vector<float, 2>{{sums[i + 2], sums[i + 3]}}, row + 8, column + i * 2);
  }
}

template <class Config, class Problem>
__device__ __forceinline__ void consume(const Sm90Parameters<Problem>& p,
                                        const Sm90Shared<Sm90Tile<Config, Problem>>& shared,
                                        int warpgroup, int cluster, int clusters, int rank,
                                        const int* exponents) {
  using Tile = Sm90Tile<Config, Problem>;
  const StageProducts<Config, Problem> products(shared, warpgroup);
  Ring<Tile::STAGES> ring;
  for (int unit = cluster; unit < p.units; unit += clusters) {
    const Sm90Work work = locate_work<Tile>(p, unit, rank);
    float sums[Tile::REGISTERS];
    if constexpr (Tile::FEED == Feed::DIRECT) {
      multiply_plain(products, shared, ring, work.steps, sums);
    } else {
      multiply_pairs(products, shared, ring, work.steps, sums);
    }
    const int row = work.row + warpgroup * 64;
    if constexpr (Config::SLICES > 1) {
      const int64_t rows = p.problem.m;
      float* const part =
          p.partials + (work.slice * p.problem.batches + work.batch) * rows * p.partial_pitch;
      for_each_pair(sums, row, work.column, [&](const Vector<float, 2>& pair, int r, int c) {
        if (r < rows && c < p.partial_pitch) store_vector(part + r * p.partial_pitch + c, pair);
      });
    } else {
      int64_t index[MAX_BATCH_RANK];
      split_batch(p.problem, work.batch, index);
      const GemmEpilogue epilogue(p.problem, index);
      Unscale unscale = {};
      if constexpr (Tile::FEED != Feed::DIRECT) unscale = Unscale::of(exponents[0], exponents[1]);
      for_each_pair(sums, row, work.column, [&](Vector<float, 2> pair, int r, int c) {
        if constexpr (Tile::FEED != Feed::DIRECT) {
          pair.element[0] = unscale(pair.element[0]);
          pair.element[1] = unscale(pair.element[1]);
        }
        epilogue.apply(pair, r, c);
      });
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
  const Sm90Shared<Tile> shared(dynamic_shared);
  const int rank = Tile::CLUSTER > 1 ? cluster_rank() : 0;
  const int cluster = blockIdx.x / Tile::CLUSTER;
  const int clusters = gridDim.x / Tile::CLUSTER;
  const int warpgroup = threadIdx.x / Tile::WARPGROUP;
  if (threadIdx.x == 0) {
    prefetch_map(&p.lhs_map);
    prefetch_map(&p.rhs_map);
    shared.init();
  }
  __shared__ int sampled[2];
  if constexpr (Tile::FEED == Feed::CONVERT) {
    let_next_kernel_start();
    sample_exponents(p.lhs, p.rhs, sampled);
  }
  if constexpr (Tile::CLUSTER > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if constexpr (Tile::FEED == Feed::SPLIT) {
    wait_for_previous_kernel();
    let_next_kernel_start();
  }
  // The first warpgroup produces, the others multiply.
  if (warpgroup == 0) {
    give_registers_back<Tile::PRODUCER_REGISTERS>();
    if constexpr (Tile::FEED == Feed::CONVERT) {
      convert_planes<Config>(p, shared, sampled);
    } else if (threadIdx.x == 0) {
      produce_planes<Config>(p, shared, cluster, clusters, rank);
    }
  } else {
    take_registers<Tile::CONSUMER_REGISTERS>();
    const int* const exponents = Tile::FEED == Feed::CONVERT ? sampled : p.header->exponents;
    consume<Config>(p, shared, warpgroup - 1, cluster, clusters, rank, exponents);
  }
  // Nobody leaves while the others may still write to its shared memory.
  if constexpr (Tile::CLUSTER > 1) sync_cluster();
#endif
}
