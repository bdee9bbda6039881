// The few names of CUDA's runtime that the kernels' scalar and host code needs, for a C++ compiler.
#pragma once

#define __host__
#define __device__
#define __forceinline__ inline

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1 };

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
