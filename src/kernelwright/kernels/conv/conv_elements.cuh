#pragma once
// What an epilogue and the stores hand each other.

#include <cstdint>

#include "conv_fold.cuh"
#include "launch.cuh"

// Elements of the result: what they have so far, their offsets in it, less than 0 where there is
// none, and their channels.
template <int COUNT>
struct ConvElements {
  float values[COUNT];
  int64_t places[COUNT];
  int channels[COUNT];

  __device__ __forceinline__ void set(int i, float value, int64_t place, int channel) {
    values[i] = value;
    places[i] = place;
    channels[i] = channel;
  }
};

// Where a warp's first channel begins in the result, and its number.
struct ConvOrigin {
  int64_t place;
  int channel;
};
