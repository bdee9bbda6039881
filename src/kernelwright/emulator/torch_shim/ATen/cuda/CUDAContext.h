// The emulated device, as ATen sees it.
#pragma once

#include <ATen/Context.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAStream.h>

namespace at::cuda {

inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }
inline int warp_size() { return 32; }

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
  static cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device < 0 ? 0 : device));
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }

}  // namespace at::cuda
