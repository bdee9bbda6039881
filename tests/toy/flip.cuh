#pragma once
// A line read from its end: the device code of a family that only a test has.

#include <cuda_runtime.h>

#include <cstdint>

#include "launch.cuh"

template <class Element>
__device__ void read_backwards(Element* out, Tensor line) {
  const int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t count = line.sizes[0];
  if (at < count) {
    out[at] = static_cast<const Element*>(line.data)[(count - 1 - at) * line.strides[0]];
  }
}
