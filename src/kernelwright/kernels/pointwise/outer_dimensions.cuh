#pragma once
// The dimensions around those that a kernel walks by itself.

#include "divide.cuh"
#include "launch.cuh"

template <int OPERANDS>
struct OuterDimensions {
  int rank = 0;
  Divisor sizes[MAX_RANK];
  int64_t strides[MAX_RANK][OPERANDS] = {};

  // Inside of those that are there already. 1 <= size < 2^31.
  void add(int64_t size, const int64_t (&steps)[OPERANDS]) {
    sizes[rank] = Divisor(static_cast<uint32_t>(size));
    for (int o = 0; o < OPERANDS; ++o) strides[rank][o] = steps[o];
    ++rank;
  }

  // Adds to the offsets of all operands how far the `index`-th combination is from the first, the
  // last dimension counted first. Offset: int64_t, or int32_t where that counts them all.
  template <class Offset>
  __device__ __forceinline__ void move(uint32_t index, Offset (&offsets)[OPERANDS]) const {
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const uint32_t above = sizes[d].quotient(index);
      step(d, index - above * sizes[d].value(), offsets);
      index = above;
    }
    // Of the first one there is nothing left to divide.
    step(0, index, offsets);
  }

 private:
  template <class Offset>
  __device__ __forceinline__ void step(int d, uint32_t count, Offset (&offsets)[OPERANDS]) const {
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) {
      offsets[o] += static_cast<Offset>(count) * static_cast<Offset>(strides[d][o]);
    }
  }
};
