#pragma once
// Sums of a step: the weights' fragments times the planes of inputs and hidden states.

#include "recurrent_shared.cuh"
#include "recurrent_weights.cuh"
#include "wgmma.cuh"

// Sums of a thread. Columns of `wide` are those of the high plane, then those of the low one;
// `narrow` is the low plane of the weights times the high plane. Of pairs it is among the rows of
// `wide`.
template <class Tile>
struct StepSums {
  static constexpr int NARROW = NarrowProduct<Tile::BATCH, typename Tile::Plane>::REGISTERS;
  static constexpr int WIDE = Tile::PLANES == 2 ? 2 * NARROW : 1;

  static constexpr int COUNT = Tile::PAIRED ? 2 : NARROW;  // totals

  float wide[WIDE], narrow[NARROW];

  __device__ __forceinline__ void pin_all() {
    pin(wide);
    if constexpr (!Tile::PAIRED) pin(narrow);
  }
  __device__ __forceinline__ float total(int i) const {
    if constexpr (Tile::PLANES == 1) return narrow[i];
    return wide[i] + (wide[i + NARROW] + (Tile::PAIRED ? wide[(i + 2) % WIDE] : narrow[i]));
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
    if constexpr (Tile::PAIRED) {
      high(i, [&](const auto& lhs) {
        NarrowProduct<2 * Tile::BATCH, __half>::multiply(sums.wide, lhs, step, adds);
      });
    } else if constexpr (Tile::PLANES == 2) {
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
  static constexpr int COUNT = StepSums<Tile>::COUNT;

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
// the other one what it has of every other eight rows of the batch, at `given`, and finds what it
// gets at `taken`. `sync` is a barrier of both.
template <class Tile, class Sync>
__device__ __forceinline__ void join_parts(uint32_t given, uint32_t taken,
                                           const StepTotals<Tile>& totals, const Sync& sync,
                                           float (&own)[Tile::PAIRS_EACH][4]) {
  constexpr int EIGHTS = Tile::BATCH / 8, COUNT = StepTotals<Tile>::COUNT;
  if constexpr (Tile::PARTS_OF_K == 1) {
    sync();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) own[i / 4][i % 4] = totals.value[i];
  } else {
    // Where there are but eight rows, they are all the first warpgroup's.
    const bool is_second = threadIdx.x >= 128;
    const bool gives = EIGHTS > 1 || is_second, takes = EIGHTS > 1 || !is_second;
    float others[Tile::PAIRS_EACH][4];
#pragma unroll
    for (int i = 0; i < Tile::PAIRS_EACH; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float even = totals.value[i * 8 + j], odd = totals.value[(i * 8 + 4 + j) % COUNT];
        own[i][j] = is_second ? odd : even;
        others[i][j] = is_second ? even : odd;
      }
      if (gives) write_shared(given + i * 2 * Tile::EIGHT_SUM_BYTES, others[i]);
    }
    sync();
#pragma unroll
    for (int i = 0; i < Tile::PAIRS_EACH; ++i) {
      if (takes) read_shared(taken + i * 2 * Tile::EIGHT_SUM_BYTES, others[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) own[i][j] += others[i][j];
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

// The same of pairs: four threads four lanes apart have a gate each, in two columns. The first two
// take a column each.
__device__ __forceinline__ void gather_gates(const float (&own)[2], float (&sums)[4]) {
  const bool is_odd = threadIdx.x / 4 % 2 == 1;
  const float same = is_odd ? own[1] : own[0], other = is_odd ? own[0] : own[1];
  const float first = __shfl_xor_sync(0xffffffffu, other, 4);
  const float second = __shfl_xor_sync(0xffffffffu, same, 8);
  const float third = __shfl_xor_sync(0xffffffffu, other, 12);
  sums[0] = is_odd ? first : same;
  sums[1] = is_odd ? same : first;
  sums[2] = is_odd ? third : second;
  sums[3] = is_odd ? second : third;
}
