// Events, where all work is done when the call that gives it returns.
#pragma once

#include <ATen/cuda/CUDAContext.h>

#include <chrono>

namespace at::cuda {

class CUDAEvent {
 public:
  CUDAEvent() = default;
  explicit CUDAEvent(unsigned) {}

  void record() { time_ = std::chrono::steady_clock::now(); }
  void record(const CUDAStream&) { record(); }
  void recordOnce(const CUDAStream&) { record(); }
  void block(const CUDAStream&) {}
  void synchronize() const {}
  bool query() const { return true; }
  float elapsed_time(const CUDAEvent& end) const {
    return std::chrono::duration<float, std::milli>(end.time_ - time_).count();
  }

 private:
  std::chrono::steady_clock::time_point time_;
};

}  // namespace at::cuda
