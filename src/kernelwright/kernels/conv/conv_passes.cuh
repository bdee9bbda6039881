#pragma once
// Passes over K: one for each pair of sets of planes (conv_sets.cuh), the smallest products first.
// There is one pass, of the first sets, unless these do not carry the input or the filter.

#include "conv_sets.cuh"

struct ConvPasses {
  static constexpr int LAST = 3;
  static constexpr int OF_PIXELS = 2;  // the first where the filter needs no second set
  static constexpr int OF_BOTH = 0;
  static constexpr int NONE = -1;  // the CUDA cores

  int first = LAST;

  __host__ __device__ __forceinline__ int count() const { return LAST + 1 - first; }
  // The set that a pass multiplies.
  __host__ __device__ __forceinline__ static int set_of_pixels(int pass) { return ~pass & 1; }
  __host__ __device__ __forceinline__ static int set_of_filter(int pass) { return pass < 2; }

  template <int PARTS, int COUNT>
  __device__ __forceinline__ static void begin(float (&sums)[PARTS][COUNT]) {
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) sums[part][i] = 0;
    }
  }
  // After a pass: products of one more second set weigh less.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ static void end(int pass, float (&sums)[PARTS][COUNT]) {
    if (set_of_pixels(pass) == 0) return;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) sums[part][i] *= 1.0f / (1 << REST_EXPONENT);
    }
  }
};
