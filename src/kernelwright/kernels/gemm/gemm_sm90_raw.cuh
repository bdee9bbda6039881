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
  __device__ __forceinline__ RawLhs(const Sm90Shared<Tile>& shared, int warpgroup, float scale)
      : scale_(scale) {
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
    const Rows rows = scaled(load_rows(stage, STEP));
    Fragment fragment;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Halves above = split(rows.upper[2 * i], rows.upper[2 * i + 1]);
      const Halves below = split(rows.lower[2 * i], rows.lower[2 * i + 1]);
      fragment.high[2 * i] = bits(above.high);
      fragment.high[2 * i + 1] = bits(below.high);
      fragment.low[2 * i] = bits(above.low);
      fragment.low[2 * i + 1] = bits(below.low);
    }
    return fragment;
  }

  // Looks at this thread's part of a stage: what the guard has to say.
  __device__ __forceinline__ uint32_t look(int stage) const {
    Guard<4> guard;
#pragma unroll 1
    for (int step = 0; step < Tile::BLOCK_K / Tile::STEP_K; ++step) {
      const Rows rows = load_rows(stage, step);
      const Rows scaled_rows = scaled(rows);
      guard.see(rows.upper, scaled_rows.upper);
      guard.see(rows.lower, scaled_rows.lower);
      guard.end_block();
    }
    return guard.word();
  }

 private:
  // Columns 2q, 2q + 1, 2q + 8, 2q + 9 (permuted) of two rows.
  struct Rows {
    float upper[4], lower[4];
  };

  __device__ __forceinline__ Rows load_rows(int stage, int step) const {
    const unsigned char* const shared = base_ + stage * Tile::STAGE_BYTES;
    Rows rows;
    if constexpr (Config::LHS == Major::K) {
      const int box = step / 2 * Tile::BLOCK_M * 128;
      const int place = ((step % 2 * 4 + q_) ^ permuted_row<Config::LHS>(g())) << 4;
      load_run(shared + box + place, rows.upper);
      load_run(shared + box + place + 8 * 128, rows.lower);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int in_eight = q_ * 2 + i % 2;
        const int k = step * Tile::STEP_K + i / 2 * 8 + in_eight;
        rows.upper[i] = number(shared + k * 128 + ((chunk_ ^ in_eight) << 4));
        rows.lower[i] = number(shared + k * 128 + (((chunk_ + 2) ^ in_eight) << 4));
      }
    }
    return rows;
  }

  __device__ __forceinline__ Rows scaled(Rows rows) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows.upper[i] *= scale_;
      rows.lower[i] *= scale_;
    }
    return rows;
  }

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
};

// Starts the products of the low parts of instruction STEP of a stage.
template <int STEP, class Products, int COUNT>
__device__ __forceinline__ void start_low_products(const Products& products, const Fragment& lhs,
                                                   float (&low)[COUNT]) {
  products.template multiply_registers<0, STEP>(low, lhs.low, 1);
  products.template multiply_registers<1, STEP>(low, lhs.high, 1);
  commit_products();
}

// Two instructions' worth of K, from instruction STEP on, whose first fragment is `even`. Each
// other fragment is prepared while the one before it is multiplied: load_odd() is the second, and
// load_even() the one after both. On return the products of the high parts are in `sums`, and those
// of the second fragment's low parts are under way.
template <int STEP, class Products, class Release, class LoadOdd, class LoadEven, int COUNT>
__device__ __forceinline__ void multiply_raw_part(const Products& products, Fragment& even,
                                                  Fragment& odd, float (&sums)[COUNT],
                                                  float (&high)[COUNT], float (&low)[COUNT],
                                                  const Release& release_before,
                                                  const LoadOdd& load_odd,
                                                  const LoadEven& load_even) {
  fence_products();
  products.template multiply_registers<0, STEP>(high, even.high, 0);
  start_low_products<STEP>(products, even, low);
  wait_products<1>();  // for the part before: `odd` is free
  release_before();
  odd = load_odd();
  fence_products();
  products.template multiply_registers<0, STEP + 1>(high, odd.high, 1);
  commit_products();
  start_low_products<STEP + 1>(products, odd, low);
  wait_products<1>();  // for the high parts: `even` is free
  pin(high);
  even = load_even();
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] += high[i];
}

// sums = products of pairs over `steps` steps of K, at least one. `checks`: this tile is the one
// that looks at lhs for the guard. The last stage, which is not released, is returned.
template <class Config, class Tile>
__device__ __forceinline__ int multiply_raw(const Sm90Shared<Tile>& shared, int warpgroup,
                                            const RawLhs<Config, Tile>& lhs,
                                            Ring<Tile::STAGES>& ring, int steps,
                                            float (&sums)[Tile::REGISTERS], bool checks,
                                            GuardWord& guard) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  float high[Tile::REGISTERS], low[Tile::REGISTERS];
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = low[i] = 0;
  wait(shared.full + ring.stage, ring.phase);
  Fragment even = lhs.template load<0>(ring.stage), odd;
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    const StageProducts<Config, Tile> products(shared, warpgroup, stage);
    if (checks) guard.add(lhs.look(stage));
    multiply_raw_part<0>(
        products, even, odd, sums, high, low,
        [&] {
          if (step > 0) shared.release(before);
        },
        [&] { return lhs.template load<1>(stage); }, [&] { return lhs.template load<2>(stage); });
    ring.advance();
    multiply_raw_part<2>(
        products, even, odd, sums, high, low, [] {}, [&] { return lhs.template load<3>(stage); },
        [&] {
          // No branch while products are under way: after the last step its own stage is read
          // again.
          const bool ends = step + 1 == steps;
          const int next = ends ? stage : ring.stage;
          wait(shared.full + next, ends ? ring.phase ^ (ring.stage == 0) : ring.phase);
          return lhs.template load<0>(next);
        });
    before = stage;
  }
  wait_products<0>();
  pin(low);
#pragma unroll
  for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = fmaf(low[i], LOW, sums[i]);
  return before;
}
