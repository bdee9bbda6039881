#pragma once
// Products of pairs whose left factor comes as fp32 numbers and is split on the way into registers.

#include "gemm_sm90_products.cuh"

// One thread's part of 64 x 16 elements of lhs: four pairs each of high and low numbers.
struct Fragment {
  uint32_t high[4], low[4];
};

// The instruction wants of each thread, with g = lane / 4 and q = lane % 4, columns 2q, 2q + 1,
// 2q + 8, 2q + 9 of rows g and g + 8 (PTX ISA, "wgmma.mma_async", matrix A). Rows and columns may
// stand in any order, as long as the result's rows and the columns of rhs stand in the same:
//   lhs contiguous along K   columns 4q to 4q + 3 are one access; rows 0, 4, 1, 5, ... so that the
//                            lanes of an access meet in no bank. See permuted_k.
//   along M                  nothing to gain, and no conflicts
template <Major LHS>
__device__ __forceinline__ int permuted_row(int g) {
  return LHS == Major::K ? g % 2 * 4 + g / 2 : g;
}

template <class Config, class Tile>
class RawLhs {
 public:
  // `checks`: this tile is the one that looks at these elements for the guard.
  __device__ __forceinline__ RawLhs(const Sm90Shared<Tile>& shared, int warpgroup, float scale,
                                    bool checks, Guard<4>& guard)
      : scale_(scale), checks_(checks), guard_(guard) {
    const int lane = threadIdx.x % 32;
    const int row = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + permuted_row<Config::LHS>(g());
    if constexpr (Config::LHS == Major::K) {
      base_ = shared.lhs(0) + row * 128;
    } else {
      base_ = shared.lhs(0) + row / 32 * (Tile::BLOCK_K * 128) + row % 4 * 4;
      chunk_ = row % 32 / 4;
    }
    q_ = lane % 4;
  }

  // Instruction STEP of a stage.
  template <int STEP>
  __device__ __forceinline__ Fragment load(int stage) const {
    const unsigned char* const shared = base_ + stage * Tile::STAGE_BYTES;
    float upper[4], lower[4];
    if constexpr (Config::LHS == Major::K) {
      constexpr int BOX = STEP / 2 * Tile::BLOCK_M * 128;
      const int place = ((STEP % 2 * 4 + q_) ^ permuted_row<Config::LHS>(g())) << 4;
      load_run(shared + BOX + place, upper);
      load_run(shared + BOX + place + 8 * 128, lower);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int in_eight = q_ * 2 + i % 2;
        const int k = STEP * 16 + i / 2 * 8 + in_eight;
        upper[i] = number(shared + k * 128 + ((chunk_ ^ in_eight) << 4));
        lower[i] = number(shared + k * 128 + ((chunk_ + 2 ^ in_eight) << 4));
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      upper[i] *= scale_;
      lower[i] *= scale_;
    }
    if (checks_) {
      guard_.see(upper);
      guard_.see(lower);
      guard_.end_block();
    }
    Fragment fragment;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Halves above = split(upper[2 * i], upper[2 * i + 1]);
      const Halves below = split(lower[2 * i], lower[2 * i + 1]);
      fragment.high[2 * i] = bits(above.high);
      fragment.high[2 * i + 1] = bits(below.high);
      fragment.low[2 * i] = bits(above.low);
      fragment.low[2 * i + 1] = bits(below.low);
    }
    return fragment;
  }

 private:
  __device__ __forceinline__ static int g() { return threadIdx.x % 32 / 4; }
  __device__ __forceinline__ static float number(const unsigned char* address) {
    return *reinterpret_cast<const float*>(address);
  }
  __device__ __forceinline__ static void load_run(const unsigned char* address, float (&run)[4]) {
    const float4 numbers = *reinterpret_cast<const float4*>(address);
    run[0] = numbers.x;
    run[1] = numbers.y;
    run[2] = numbers.z;
    run[3] = numbers.w;
  }
  __device__ __forceinline__ static uint32_t bits(const __half2& pair) {
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  const unsigned char* base_;
  int q_, chunk_;
  float scale_;
  bool checks_;
  Guard<4>& guard_;
};

// Two instructions' worth of K from STEP on: their products are added to `sums`. While those of the
// low parts are under way, `load_next` prepares the next fragments.
template <int STEP, class Products, class LoadNext, int COUNT>
__device__ __forceinline__ void multiply_raw_part(const Products& products, int stage,
                                                  const Fragment (&lhs)[2], float (&sums)[COUNT],
                                                  const LoadNext& load_next) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  float part[COUNT];
  fence_products();
  products.template multiply<0, STEP>(part, lhs[0].low, stage, 0);
  products.template multiply<1, STEP>(part, lhs[0].high, stage, 1);
  products.template multiply<0, STEP + 1>(part, lhs[1].low, stage, 1);
  products.template multiply<1, STEP + 1>(part, lhs[1].high, stage, 1);
  commit_products();
  load_next();
  wait_products<0>();
  pin(part);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = fmaf(part[i], LOW, sums[i]);
  fence_products();
  products.template multiply<0, STEP>(part, lhs[0].high, stage, 0);
  products.template multiply<0, STEP + 1>(part, lhs[1].high, stage, 1);
  commit_products();
  wait_products<0>();
  pin(part);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] += part[i];
}

// sums = products of pairs over `steps` steps of K. The warpgroups' pauses fall apart by
// themselves: while one adds, the other multiplies.
template <class Config, class Tile>
__device__ __forceinline__ void multiply_raw(const Sm90Shared<Tile>& shared,
                                             const StageProducts<Config, Tile>& products,
                                             const RawLhs<Config, Tile>& lhs,
                                             Ring<Tile::STAGES>& ring, int steps,
                                             float (&sums)[Tile::REGISTERS]) {
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = 0;
  if (steps == 0) return;
  Fragment now[2], next[2];
  wait(shared.full + ring.stage, ring.phase);
  now[0] = lhs.template load<0>(ring.stage);
  now[1] = lhs.template load<1>(ring.stage);
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    multiply_raw_part<0>(products, stage, now, sums, [&] {
      next[0] = lhs.template load<2>(stage);
      next[1] = lhs.template load<3>(stage);
    });
    ring.advance();
    multiply_raw_part<2>(products, stage, next, sums, [&] {
      if (step + 1 == steps) return;
      wait(shared.full + ring.stage, ring.phase);
      now[0] = lhs.template load<0>(ring.stage);
      now[1] = lhs.template load<1>(ring.stage);
    });
    shared.release(stage);
  }
}
