#pragma once
// bfloat16: stored as __nv_bfloat16, computed with as float.

#include <cuda_bf16.h>

#include "convert.cuh"
#include "short_results.cuh"

template <>
struct Element<__nv_bfloat16> {
  using compute = float;
  __device__ __forceinline__ static float widen(__nv_bfloat16 value) {
    return __bfloat162float(value);
  }
  template <class From>
  __device__ __forceinline__ static __nv_bfloat16 narrow(From value) {
    return __float2bfloat16_rn(static_cast<float>(value));
  }
  // Of two numbers side by side the upper one is where float has it. One number by itself takes an
  // instruction of an eighth of the rate.
  template <class From>
  __device__ __forceinline__ static float rounded(From value) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(0.0f, static_cast<float>(value));
    return __uint_as_float(*reinterpret_cast<const unsigned*>(&both));
  }
};
