// Atomics for every scalar type of a tensor.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <class T>
inline T gpuAtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}
inline int64_t gpuAtomicAdd(int64_t* address, int64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(address),
                   static_cast<unsigned long long>(value));
}
inline c10::Half gpuAtomicAdd(c10::Half* address, c10::Half value) {
  const __half old =
      atomicAdd(reinterpret_cast<__half*>(address), *reinterpret_cast<__half*>(&value));
  return *reinterpret_cast<const c10::Half*>(&old);
}
inline c10::BFloat16 gpuAtomicAdd(c10::BFloat16* address, c10::BFloat16 value) {
  const __nv_bfloat16 old = atomicAdd(reinterpret_cast<__nv_bfloat16*>(address),
                                      *reinterpret_cast<__nv_bfloat16*>(&value));
  return *reinterpret_cast<const c10::BFloat16*>(&old);
}

template <class T>
inline void gpuAtomicAddNoReturn(T* address, T value) {
  gpuAtomicAdd(address, value);
}

inline c10::Half atomicAdd(c10::Half* address, c10::Half value) {
  return gpuAtomicAdd(address, value);
}
inline c10::BFloat16 atomicAdd(c10::BFloat16* address, c10::BFloat16 value) {
  return gpuAtomicAdd(address, value);
}
