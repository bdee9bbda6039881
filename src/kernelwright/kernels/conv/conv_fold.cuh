#pragma once
// How results of a convolution are reduced before they are stored; NaN propagates. EXP_SUM: by a
// program over channels, see conv_totals.cuh.

#include "math.cuh"

enum class ConvFold { NONE, MAXIMUM, MINIMUM, SUM, EXP_SUM };

// Whether the moments of channels are made of results (conv_moments.cuh): beside these, or alone.
enum class ConvMoments { NONE, BESIDE, ALONE };

template <ConvFold HOW>
__device__ __forceinline__ float neutral_of() {
  static_assert(HOW != ConvFold::NONE, "nothing is reduced");
  if constexpr (HOW == ConvFold::MAXIMUM) return -INFINITY;
  if constexpr (HOW == ConvFold::MINIMUM) return INFINITY;
  return 0.0f;
}

template <ConvFold HOW>
__device__ __forceinline__ float fold(float a, float b) {
  static_assert(HOW != ConvFold::NONE, "nothing is reduced");
  if constexpr (HOW == ConvFold::MAXIMUM) return maximum(a, b);
  if constexpr (HOW == ConvFold::MINIMUM) return minimum(a, b);
  return a + b;
}
