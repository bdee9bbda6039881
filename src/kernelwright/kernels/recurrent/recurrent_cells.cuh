#pragma once
// Cells of recurrent layers: from the sums of a unit's gates to its next state.
//
// A unit has GATES rows of products. Each row is a sum over inputs, a sum over the hidden state, or
// both: GRU's third gate needs its two sums apart, and so has two rows. IS_BOUNDED says that states
// return to at most 1 in magnitude.

#include <cmath>

enum class RecurrentCell { LSTM, GRU, RNN_TANH, RNN_RELU };

struct UnitState {
  float hidden, cell;
};

// By instructions alone: where the power overflows, its inverse is 0.
__device__ __forceinline__ float gate_sigmoid(float x) {
  constexpr float LOG2_E = 1.44269504f;
  float power, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -LOG2_E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + power));
  return result;
}

template <RecurrentCell CELL>
struct CellRule;

template <>
struct CellRule<RecurrentCell::LSTM> {
  static constexpr int GATES = 4;  // rows of the weights of a unit
  static constexpr bool HAS_CELL = true, IS_BOUNDED = true;
  // Block of the weights' rows that row `gate` of a unit comes from.
  __host__ __device__ static constexpr int block(int gate) { return gate; }
  __host__ __device__ static constexpr bool takes_input(int) { return true; }
  __host__ __device__ static constexpr bool takes_hidden(int) { return true; }

  __device__ __forceinline__ static UnitState next(const float (&sums)[4], UnitState before) {
    const float kept = gate_sigmoid(sums[1]) * before.cell;
    const float cell = kept + gate_sigmoid(sums[0]) * tanhf(sums[2]);
    return {gate_sigmoid(sums[3]) * tanhf(cell), cell};
  }
};

template <>
struct CellRule<RecurrentCell::GRU> {
  static constexpr int GATES = 3;
  static constexpr bool HAS_CELL = false, IS_BOUNDED = true;
  __host__ __device__ static constexpr int block(int gate) { return gate < 3 ? gate : 2; }
  __host__ __device__ static constexpr bool takes_input(int gate) { return gate != 3; }
  __host__ __device__ static constexpr bool takes_hidden(int gate) { return gate != 2; }

  __device__ __forceinline__ static UnitState next(const float (&sums)[4], UnitState before) {
    const float reset = gate_sigmoid(sums[0]), update = gate_sigmoid(sums[1]);
    const float fresh = tanhf(sums[2] + reset * sums[3]);
    return {fresh + update * (before.hidden - fresh), 0.0f};
  }
};

// One row of a unit has anything to add up, and the other three are zeros: a step's time goes to
// what blocks tell each other, not to its products.
struct PlainRule {
  static constexpr int GATES = 1;
  static constexpr bool HAS_CELL = false;
  __host__ __device__ static constexpr int block(int) { return 0; }
  __host__ __device__ static constexpr bool takes_input(int gate) { return gate == 0; }
  __host__ __device__ static constexpr bool takes_hidden(int gate) { return gate == 0; }
};

template <>
struct CellRule<RecurrentCell::RNN_TANH> : PlainRule {
  static constexpr bool IS_BOUNDED = true;

  __device__ __forceinline__ static UnitState next(const float (&sums)[4], UnitState) {
    return {tanhf(sums[0]), 0.0f};
  }
};

template <>
struct CellRule<RecurrentCell::RNN_RELU> : PlainRule {
  static constexpr bool IS_BOUNDED = false;

  __device__ __forceinline__ static UnitState next(const float (&sums)[4], UnitState) {
    return {sums[0] <= 0.0f ? 0.0f : sums[0], 0.0f};  // NaN stays
  }
};
