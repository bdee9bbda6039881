#pragma once
// Products of which only the largest, or the smallest, result of each row is kept. Blocks agree on
// it by atomic maxima of integers in the order of the floats: the outcome does not depend on who
// comes first.

#include <cmath>
#include <cstdint>

#include "extremes.cuh"

// Ordered as x, NaN above all; none is 0, which stands for no result.
__device__ __forceinline__ uint32_t ordered(float x) {
  if (x != x) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// The float with such a number; NaN where there is none.
__device__ __forceinline__ float from_ordered(uint32_t number) {
  return __uint_as_float((number >> 31) != 0 ? number ^ 0x80000000u : ~number);
}

// What is kept of a row.
struct AllResults {
  static constexpr bool IS_ONE = false;
};
struct LargestResult {
  static constexpr bool IS_ONE = true;
  static constexpr float NONE = -INFINITY;
  __device__ __forceinline__ static float better(float a, float b) { return maximum(a, b); }
  __device__ __forceinline__ static uint32_t key(float x) { return ordered(x); }
  __device__ __forceinline__ static float value(uint32_t key) { return from_ordered(key); }
};
struct SmallestResult {
  static constexpr bool IS_ONE = true;
  static constexpr float NONE = INFINITY;
  __device__ __forceinline__ static float better(float a, float b) { return minimum(a, b); }
  __device__ __forceinline__ static uint32_t key(float x) { return ordered(-x); }
  __device__ __forceinline__ static float value(uint32_t key) { return -from_ordered(key); }
};

// Of a product with this epilogue: one that keeps less has a specialisation.
template <class Epilogue>
struct Kept : AllResults {};
