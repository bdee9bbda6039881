#pragma once
// float16: stored as __half, computed with as float.

#include <cuda_fp16.h>

#include "convert.cuh"
#include "short_results.cuh"

template <>
struct Element<__half> {
  using compute = float;
  __device__ __forceinline__ static float widen(__half value) { return __half2float(value); }
  template <class From>
  __device__ __forceinline__ static __half narrow(From value) {
    return __float2half_rn(static_cast<float>(value));
  }
  template <class From>
  __device__ __forceinline__ static float rounded(From value) {
    return widen(narrow(value));
  }
};
