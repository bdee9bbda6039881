#pragma once
// Results that a product reads next, stored as pairs of fp16 numbers: see gemm_paired.cuh.

#include "convert.cuh"
#include "gemm_paired.cuh"
#include "vector.cuh"

// Such a number in registers.
struct Paired {
  float number;
};

template <>
struct Element<Paired> {
  using compute = float;
  __device__ __forceinline__ static float widen(Paired value) { return value.number; }
  __device__ __forceinline__ static Paired narrow(float value) { return {value}; }
};
template <>
constexpr bool IS_PAIRED<Paired> = true;

__device__ __forceinline__ float paired_scaled(float x) {
  constexpr float SCALE = 1 << PAIRED_EXPONENT;
  constexpr float LEAST = 1.0f / (1ll << 35);  // its low half is the least that there is
  const float scaled = x * SCALE;
  return x > 0 ? fmaxf(scaled, LEAST) : scaled;
}

// Those of VALID, bit by bit, from `place` on. With all of them WIDTH neighbours are in one line.
template <int WIDTH>
__device__ __forceinline__ void store_paired(Paired* place, const Vector<Paired, WIDTH>& values,
                                             unsigned valid) {
  Vector<__half2, (WIDTH + 1) / 2> high, low;
#pragma unroll
  for (int i = 0; i < WIDTH; i += 2) {
    const float second = i + 1 < WIDTH ? values.element[(i + 1) % WIDTH].number : 0.0f;
    const Halves halves = split(paired_scaled(values.element[i].number), paired_scaled(second));
    high.element[i / 2] = halves.high;
    low.element[i / 2] = halves.low;
  }
  if (WIDTH % 2 == 0 && valid == (1u << WIDTH) - 1) {
    auto* const to = reinterpret_cast<__half2*>(high_half(place));
    store_vector(to, high);
    store_vector(to + PAIRED_LINE / 2, low);
    return;
  }
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    if ((valid >> i & 1) == 0) continue;
    __half* const to = high_half(place + i);
    to[0] = i % 2 == 0 ? high.element[i / 2].x : high.element[i / 2].y;
    to[PAIRED_LINE] = i % 2 == 0 ? low.element[i / 2].x : low.element[i / 2].y;
  }
}
