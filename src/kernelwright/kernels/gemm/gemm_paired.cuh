#pragma once
// Rows of numbers from 0 to 1, as shares of a sum are, in the pairs that a product multiplies: the
// kernel that computes them writes what a kernel before the product would have to split. A line of
// 128 bytes holds 32 neighbours, the high halves first, where 32 floats would lie:
//
//   x = (high + low / 2^11) / 2^15
//
// The two roundings lose at most 2^-23 x from 2^-28 on, and 2^-50 below, so there is no guard. Only
// 0 is 0, for that decides what becomes of infinite factors; NaN is a pair of NaN.

#include "gemm_guard.cuh"
#include "paired_facts.cuh"

constexpr int PAIRED_EXPONENT = 15;
constexpr int PAIRED_LINE = 32;  // numbers

// Whether rows of `length` from `data` on, one after the other, are pairs: those of whole lines.
__host__ __device__ __forceinline__ bool holds_pairs(const void* data, int64_t length) {
  return length % PAIRED_LINE == 0 && reinterpret_cast<uintptr_t>(data) % (PAIRED_LINE * 4) == 0;
}

// The high half of the number that would be the float at `place`; PAIRED_LINE after it the low one.
__device__ __forceinline__ __half* high_half(void* place) {
  const auto address = reinterpret_cast<uintptr_t>(place);
  const uintptr_t in_line = address % (PAIRED_LINE * 4);
  return reinterpret_cast<__half*>(address - in_line + in_line / 2);
}

// The number that would be the float at `place`.
__device__ __forceinline__ float load_pair(const void* place) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS), UNSCALE = 1.0f / (1 << PAIRED_EXPONENT);
  const __half* const from = high_half(const_cast<void*>(place));
  return fmaf(__half2float(from[PAIRED_LINE]), LOW, __half2float(from[0])) * UNSCALE;
}
