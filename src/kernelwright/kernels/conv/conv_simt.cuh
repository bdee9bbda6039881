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

template <class Tile, class Parameters>
__device__ __forceinline__ void convolve_on_cuda_cores(const Parameters& p) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const int cluster = blockIdx.x / Tile::CLUSTER, clusters = gridDim.x / Tile::CLUSTER;
  for (int unit = cluster; unit < p.units.count; unit += clusters) {
    const ConvWork work = locate_conv<Tile>(p, unit);
    for (int i = threadIdx.x; i < Tile::BLOCK_POSITIONS * Tile::BLOCK_CHANNELS;
         i += Tile::THREADS) {
      const uint32_t position = work.position + i % Tile::BLOCK_POSITIONS;
      const int in_group = work.channel + i / Tile::BLOCK_POSITIONS;
      if (position >= p.positions || in_group >= p.shape.out_channels) continue;
      int at[MAX_SPATIAL];
      const int image = p.divisors.split(position, at);
      const int channel = work.group * p.shape.out_channels + in_group;
      int64_t place = image * p.out_strides.image + channel * p.out_strides.channel;
      bool exists = true;
#pragma unroll
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        const ConvDimension& dimension = p.shape.dimensions[d];
        const int of = at[d] * dimension.phases + work.phase.of[d];
        exists = exists && of < dimension.out;
        place += of * p.out_strides.spatial[d];
      }
      if (!exists) continue;
      const float sum = convolve_element(p, work, image, at, in_group);
      p.out[place] = narrow<Result>(p.epilogue.row(channel)(sum, place));
    }
  }
}
