#pragma once
// Host side of every entry point: reads the packed arguments and selects the device.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

constexpr int MAX_RANK = 8;

// A tensor as PyTorch sees it: sizes and strides count elements, a stride may be 0.
struct Tensor {
  void* data = nullptr;
  int rank = 0;
  int64_t sizes[MAX_RANK] = {};
  int64_t strides[MAX_RANK] = {};
};

// Reads `words`: device index, stream, address of the workspace, then the arguments in order. A
// tensor is its address, rank, sizes and strides; an integer is itself; a real number is the bits
// of a double. Makes the device current while it lives; a negative index is the current device.
class Arguments {
 public:
  explicit Arguments(const int64_t* words) : next_(words) {
    const int device = static_cast<int>(integer());
    stream_ = reinterpret_cast<cudaStream_t>(integer());
    workspace_ = reinterpret_cast<void*>(integer());
    if (device < 0) return;
    status_ = cudaGetDevice(&previous_device_);
    if (status_ == cudaSuccess && device != previous_device_) {
      status_ = cudaSetDevice(device);
      switched_ = status_ == cudaSuccess;
    }
  }
  ~Arguments() {
    if (switched_) cudaSetDevice(previous_device_);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // What went wrong while reading: a device that cannot be selected, a rank above MAX_RANK.
  cudaError_t status() const { return status_; }
  cudaStream_t stream() const { return stream_; }
  // Device memory of the launch's own, null for kernels that need none.
  void* workspace() const { return workspace_; }

  int64_t integer() { return *next_++; }

  double real() {
    double value;
    std::memcpy(&value, next_++, sizeof(value));
    return value;
  }

  Tensor tensor() {
    Tensor result;
    result.data = reinterpret_cast<void*>(integer());
    const int rank = static_cast<int>(integer());
    if (rank > MAX_RANK) {
      status_ = cudaErrorInvalidValue;
      next_ += 2 * rank;
      return result;
    }
    result.rank = rank;
    for (int d = 0; d < rank; ++d) result.sizes[d] = integer();
    for (int d = 0; d < rank; ++d) result.strides[d] = integer();
    return result;
  }

 private:
  const int64_t* next_;
  cudaStream_t stream_ = nullptr;
  void* workspace_ = nullptr;
  cudaError_t status_ = cudaSuccess;
  int previous_device_ = 0;
  bool switched_ = false;
};
