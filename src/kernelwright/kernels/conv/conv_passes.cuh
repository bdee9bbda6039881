#pragma once
// Passes over K: one for each pair of sets of planes (conv_planes.cuh), the smallest products
// first. There is one pass, of the first sets, unless these do not carry the input or the filter.

#include "conv_planes.cuh"

struct ConvPasses {
  static constexpr int LAST = 3;
  static constexpr int OF_PIXELS = 2;  // the first where the filter needs no second set
  static constexpr int OF_BOTH = 0;
  static constexpr int NONE = -1;  // no planes carry infinities and NaN

  int first = LAST;

  __host__ __device__ __forceinline__ int count() const { return LAST + 1 - first; }
  // Which set of planes a pass multiplies.
  __host__ __device__ __forceinline__ static int set_of_pixels(int pass) { return ~pass & 1; }
  __host__ __device__ __forceinline__ static int set_of_filter(int pass) { return pass < 2; }

  // After a pass that is not the last: products of one more second set weigh less.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ static void end(int pass, float (&sums)[PARTS][COUNT]) {
    constexpr float WEIGHT = 1.0f / (1 << REST_EXPONENT);
    const float weight = set_of_pixels(pass) == 1 ? WEIGHT : 1;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) sums[part][i] *= weight;
    }
  }
};
