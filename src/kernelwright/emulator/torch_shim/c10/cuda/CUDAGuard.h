// Guards of the current device and stream: there is one of each.
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
  Device current_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  void set_device(Device) {}
  void set_index(DeviceIndex) {}
  void reset() {}
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream stream) : stream_(stream) {}
  CUDAStream current_stream() const { return stream_; }

 private:
  CUDAStream stream_;
};

struct OptionalCUDAStreamGuard {
  OptionalCUDAStreamGuard() = default;
  explicit OptionalCUDAStreamGuard(std::optional<CUDAStream>) {}
};

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::OptionalCUDAStreamGuard;
}  // namespace at::cuda
