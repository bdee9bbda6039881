#pragma once
// A block's units of a convolution on the CUDA cores, in float32, from the input and the filter as
// they lie: for what fp16 planes do not carry.

#include "conv_tile.cuh"

// The sum of one element; `at`: its position in the phase.
template <class Parameters>
__device__ __forceinline__ float convolve_element(const Parameters& p, const ConvWork& work,
                                                  int image, const int (&at)[MAX_SPATIAL],
                                                  int channel) {
  const ConvShape& shape = p.plain;
  const auto* const filter =
      p.filter + work.group * p.filter_strides.group + channel * p.filter_strides.out_channel;
  const auto* const data = p.data + image * p.data_strides.image +
                           int64_t{work.group} * shape.in_channels * p.data_strides.channel;
  const int taps = work.phase.taps(shape);
  float sum = 0;
  for (int number = 0; number < taps; ++number) {
    int64_t from = 0, weight = 0;
    int rest = number;
    bool exists = true;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = shape.dimensions[d];
      const int phase = work.phase.of[d], count = dimension.taps[phase], tap = rest % count;
      rest /= count;
      const int in = dimension.lower + at[d] * dimension.step + dimension.offset(phase, tap);
      exists = exists && in >= 0 && in < dimension.in;
      from += in * p.data_strides.spatial[d];
      weight += dimension.tap(phase, tap) * p.filter_strides.taps[d];
    }
    if (!exists) continue;
    for (int c = 0; c < shape.in_channels; ++c) {
      sum = fmaf(widen(data[from + c * p.data_strides.channel]),
                 widen(filter[weight + c * p.filter_strides.in_channel]), sum);
    }
  }
  return sum;
}

// All units of a convolution with `positions` of a phase: those of the blocks together.
template <class Tile, class Parameters>
__device__ __forceinline__ void convolve_on_cuda_cores(const Parameters& p) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const ConvShape& shape = p.plain;
  const int channels = shape.out_channels * shape.groups;
  for (int outer = 0; outer < channels * shape.phases(); ++outer) {
    ConvWork work = {};
    const int channel = outer % channels;
    work.phase = ConvPhase::of_number(shape, outer / channels);
    work.group = channel / shape.out_channels;
    for (uint32_t position = blockIdx.x * Tile::THREADS + threadIdx.x; position < p.positions;
         position += gridDim.x * Tile::THREADS) {
      int at[MAX_SPATIAL];
      const int image = p.divisors.split(position, at);
      int64_t place = image * p.out_strides.image + channel * p.out_strides.channel;
      bool exists = true;
#pragma unroll
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        const ConvDimension& dimension = shape.dimensions[d];
        const int of = at[d] * dimension.out_step + work.phase.of[d];
        exists = exists && of < dimension.out;
        place += of * p.out_strides.spatial[d];
      }
      if (!exists) continue;
      const float sum =
          convolve_element(p, work, image, at, channel - work.group * shape.out_channels);
      p.out[place] =
          narrow<Result>(p.epilogue.finish(p.epilogue.row(channel)(sum), place, channel));
    }
  }
}
