#pragma once
// Sums of a step: the weights' fragments times the planes of inputs and hidden states.

#include "recurrent_weights.cuh"
#include "wgmma.cuh"

// Sums of a thread. Columns of `wide` are those of the high plane, then those of the low one;
// `narrow` is the low plane of the weights times the high plane.
template <class Tile>
struct StepSums {
  static constexpr int NARROW = NarrowProduct<Tile::BATCH, typename Tile::Plane>::REGISTERS;
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
  using Narrow = NarrowProduct<Tile::BATCH, typename Tile::Plane>;
#pragma unroll
  for (int i = 0; i < STEPS; ++i) {
    const CoreMatrices step = advance_cores(groups, i * 2 * Tile::GROUP_BYTES);
    const int adds = i > 0 ? 1 : accumulate;
    if constexpr (Tile::PLANES == 2) {
      high(i, [&](const auto& lhs) {
        NarrowProduct<2 * Tile::BATCH, __half>::multiply(sums.wide, lhs, step, adds);
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

// Sums of this thread's pairs over its part of K, or, of two parts, over both: each warpgroup gives
// the other one what it has of every other eight rows of the batch. `sync` is a barrier of both.
template <class Tile, class Sync>
__device__ __forceinline__ void join_parts(float* shared, const StepTotals<Tile>& totals,
                                           const Sync& sync, float (&own)[Tile::PAIRS_EACH][4]) {
  constexpr int EIGHTS = Tile::BATCH / 8;
  if constexpr (Tile::PARTS_OF_K == 1) {
    sync();
#pragma unroll
    for (int i = 0; i < EIGHTS * 4; ++i) own[i / 4][i % 4] = totals.value[i];
  } else {
    auto* const runs = reinterpret_cast<float4*>(shared) + threadIdx.x % 128;
    const int warpgroup = threadIdx.x / 128;
#pragma unroll
    for (int eight = 0; eight < EIGHTS; ++eight) {
      const float* const from = totals.value + eight * 4;
      if (eight % 2 != warpgroup) {
        runs[eight * 128] = make_float4(from[0], from[1], from[2], from[3]);
      }
    }
    sync();
#pragma unroll
    for (int i = 0; i < Tile::PAIRS_EACH; ++i) {
      const int eight = 2 * i + warpgroup, second = 2 * i + 1 < EIGHTS ? 2 * i + 1 : 2 * i;
      if (eight >= EIGHTS) continue;
      const float4 other = runs[eight * 128];
      const float others[4] = {other.x, other.y, other.z, other.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float even = totals.value[2 * i * 4 + j], odd = totals.value[second * 4 + j];
        own[i][j] = others[j] + (warpgroup == 1 ? odd : even);
      }
    }
  }
}

// The gates of this thread's unit in one of its two columns. The thread four lanes away has the
// other two gates of that unit, and takes the other column.
__device__ __forceinline__ void gather_gates(const float (&own)[4], float (&sums)[4]) {
  const bool is_odd = threadIdx.x / 4 % 2 == 1;
  const float first = __shfl_xor_sync(0xffffffffu, is_odd ? own[0] : own[1], 4);
  const float second = __shfl_xor_sync(0xffffffffu, is_odd ? own[2] : own[3], 4);
  sums[0] = is_odd ? first : own[0];
  sums[1] = is_odd ? own[1] : first;
  sums[2] = is_odd ? second : own[2];
  sums[3] = is_odd ? own[3] : second;
}
