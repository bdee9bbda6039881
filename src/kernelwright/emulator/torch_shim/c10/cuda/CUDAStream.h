// The one stream of the emulated device.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime.h>

#include <ostream>

namespace c10::cuda {

class CUDAStream {
 public:
  CUDAStream() = default;
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}

  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  bool operator==(const CUDAStream&) const { return true; }
  bool operator!=(const CUDAStream&) const { return false; }
  Device device() const { return Device(DeviceType::CPU); }
  DeviceType device_type() const { return DeviceType::CPU; }
  DeviceIndex device_index() const { return 0; }
  int64_t id() const { return 0; }
  int priority() const { return 0; }
  bool query() const { return true; }
  void synchronize() const { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

 private:
  cudaStream_t stream_ = nullptr;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex) {
  return CUDAStream(stream);
}
inline void setCurrentCUDAStream(CUDAStream) {}
inline std::ostream& operator<<(std::ostream& out, const CUDAStream&) { return out << "stream 0"; }

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromExternal;
using c10::cuda::getStreamFromPool;
using c10::cuda::setCurrentCUDAStream;
}  // namespace at::cuda
