#pragma once
// Moments of a convolution's results: of each channel of an image the mean, and the sum of squared
// distances from it, from the tiles that have the results in registers. Norms and averages over
// maps need no more of them, so that nobody reads the results for it.
//
// A tile leaves a state for each row of the filter and each image that it meets. A kernel after the
// convolution combines those of a channel, in a fixed order (conv_moments_launch.cuh).

#include <cstdint>

#include "conv_shape.cuh"
#include "math.cuh"

// total / count without the branch that division has, which would cost the sums beside it their
// registers. Of no numbers 0; an infinite total stays.
__device__ __forceinline__ float mean_of(float total, float count) {
  const float reciprocal = one_over_sum(fmaxf(count, 1.0f)), mean = total * reciprocal;
  return std::isinf(mean) ? mean : refined_quotient(total, fmaxf(count, 1.0f), reciprocal);
}

// Of some numbers: how many, their mean, and the sum of squared distances from it.
struct Moments {
  float count, mean, spread;

  // An infinite mean stays one.
  __device__ __forceinline__ static Moments combine(const Moments& a, const Moments& b) {
    const float count = a.count + b.count;
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const float share = b.count * one_over_sum(count), distance = b.mean - a.mean;
    return {count, a.mean * (1 - share) + b.mean * share,
            a.spread + b.spread + distance * distance * (a.count * share)};
  }
};

// The states of all tiles, and what becomes of them.
struct MomentStates {
  float *means, *spreads;  // results: of each channel of each image
  Moments* states;         // of each tile and phase, slot, and row of the filter; null: none
  int segments, parts;     // slots of a tile: images that a part of it may meet, by its parts
  int part_positions;
  int phases;
  int image_tiles;  // of an image alone; 0: tiles begin `step` positions after each other
  int step;
  int64_t positions, plane;  // of all images, of one
  int rows, group_rows;      // of the filter: of all groups, of one
  int group_channels;
  int run_channels, joined;  // channels of a run of rows; rows of a channel

  // The first state of all says so where the CUDA cores computed the results, and there are none: a
  // word in front of the sums that says they are would cost these registers.
  __device__ __forceinline__ void leave() const { states->count = -1; }
  __device__ __forceinline__ bool are_written() const {
    return states != nullptr && states->count >= 0;
  }

  // Of a slot of a tile; `tile`: number of it and its phase.
  __device__ __forceinline__ Moments* slot(int64_t tile, int part, int segment) const {
    return states + ((tile * parts + part) * segments + segment) * rows;
  }
  __device__ __forceinline__ int first_row(int channel) const {
    const int group = channel / group_channels, of_group = channel - group * group_channels;
    const int run = of_group / run_channels;
    return group * group_rows + run * FILTER_RUN + (of_group - run * run_channels) * joined;
  }
};
