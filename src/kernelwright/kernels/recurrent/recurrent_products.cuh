#pragma once
// Sums of a step: the weights' fragments times the planes of inputs and hidden states.

#include "recurrent_weights.cuh"
#include "wgmma.cuh"

// Sums of a thread. Columns of `wide` are those of the high plane, then those of the low one;
// `narrow` is the low plane of the weights times the high plane.
template <class Tile>
struct StepSums {
  static constexpr int NARROW = NarrowProduct<Tile::BATCH>::REGISTERS;
  static constexpr int WIDE = Tile::PLANES == 2 ? 2 * NARROW : 1;

  float wide[WIDE], narrow[NARROW];

  __device__ __forceinline__ void pin_all() {
    pin(wide);
    pin(narrow);
  }
  __device__ __forceinline__ float total(int i) const {
    if constexpr (Tile::PLANES == 1) return narrow[i];
    return wide[i] + (wide[i + NARROW] + narrow[i]);
  }
};

// Issues the products of STEPS steps with groups that begin at `groups`; `high` and `low` call what
// they are given with operand A of step i, registers or a descriptor. They are added to sums unless
// `accumulate` is 0.
template <class Tile, int STEPS, class High, class Low>
__device__ __forceinline__ void multiply_steps(StepSums<Tile>& sums, const High& high,
                                               const Low& low, CoreMatrices groups,
                                               int accumulate) {
  using Narrow = NarrowProduct<Tile::BATCH>;
#pragma unroll
  for (int i = 0; i < STEPS; ++i) {
    const CoreMatrices step = advance_cores(groups, i * 2 * Tile::GROUP_BYTES);
    const int adds = i > 0 ? 1 : accumulate;
    if constexpr (Tile::PLANES == 2) {
      high(i, [&](const auto& lhs) {
        NarrowProduct<2 * Tile::BATCH>::multiply(sums.wide, lhs, step, adds);
      });
      low(i, [&](const auto& lhs) { Narrow::multiply(sums.narrow, lhs, step, adds); });
    } else {
      high(i, [&](const auto& lhs) { Narrow::multiply(sums.narrow, lhs, step, adds); });
    }
  }
}

// Totals of a thread. The sums of inputs and of hidden states are added here: the shorter a sum on
// the tensor cores, which cut off what does not fit, the more accurate it is.
template <class Tile>
struct StepTotals {
  static constexpr int COUNT = StepSums<Tile>::NARROW;

  float value[COUNT];

  __device__ __forceinline__ void set(const StepSums<Tile>& sums, float ratio) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) value[i] = sums.total(i) * ratio;
  }
  __device__ __forceinline__ void add(const StepSums<Tile>& sums) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) value[i] += sums.total(i);
  }
};

// Writes a warpgroup's totals where threads that compute cells find them: for each of the batch's
// rows the 64 of the block.
template <class Tile>
__device__ __forceinline__ void write_totals(float* shared, const StepTotals<Tile>& totals) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  float* const own = shared + lane % 4 * 2 * Tile::SUM_PITCH + warp * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < StepTotals<Tile>::COUNT; ++i) {
    const int column = i / 4 * 8 + i % 2, row = i / 2 % 2 * 8;
    own[column * Tile::SUM_PITCH + row] = totals.value[i];
  }
}
