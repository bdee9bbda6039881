// The one device.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAMacros.h>

namespace c10::cuda {

inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

}  // namespace c10::cuda
