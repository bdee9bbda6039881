#pragma once
// A block's units of a convolution on the CUDA cores, in float32, from the input and the filter as
// they lie: for what fp16 planes do not carry.

#include "conv_facts.cuh"
#include "conv_reduction.cuh"
#include "conv_totals.cuh"

// Sums of COUNT channels of a group, from `channel` of it on, at one position: a pixel is read once
// for all of them. Those behind the last channel repeat it. `at`: the position in the phase.
template <int COUNT, class Parameters>
__device__ __forceinline__ void convolve_channels(const Parameters& p, const ConvPhase& in_phase,
                                                  int image, const int (&at)[MAX_SPATIAL],
                                                  int group, int channel, float (&sums)[COUNT]) {
  const ConvShape& shape = p.plain;
  decltype(p.filter) filters[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const int own = min(channel + i, shape.out_channels - 1);
    filters[i] = p.filter + group * p.filter_strides.group + own * p.filter_strides.out_channel;
    sums[i] = 0;
  }
  const auto* const data = p.data + image * p.data_strides.image +
                           int64_t{group} * shape.in_channels * p.data_strides.channel;
  const int taps = in_phase.taps(shape);
  for (int number = 0; number < taps; ++number) {
    int64_t from = 0, weight = 0;
    int rest = number;
    bool exists = true;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = shape.dimensions[d];
      const int phase = in_phase.of[d], count = dimension.taps[phase], tap = rest % count;
      rest /= count;
      const int in = dimension.lower + at[d] * dimension.step + dimension.offset(phase, tap);
      exists = exists && in >= 0 && in < dimension.in;
      from += in * p.data_strides.spatial[d];
      weight += dimension.tap(phase, tap) * p.filter_strides.taps[d];
    }
    if (!exists) continue;
    // Few warps are there: each has the loads of four channels under way.
#pragma unroll 4
    for (int c = 0; c < shape.in_channels; ++c) {
      const float pixel = widen(data[from + c * p.data_strides.channel]);
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        sums[i] = fmaf(pixel, widen(filters[i][weight + c * p.filter_strides.in_channel]), sums[i]);
      }
    }
  }
}

// The sum of one element; `channel`: of all groups.
template <class Parameters>
__device__ __forceinline__ float convolve_element(const Parameters& p, const ConvPhase& in_phase,
                                                  int image, const int (&at)[MAX_SPATIAL],
                                                  int channel) {
  const int group = channel / p.plain.out_channels;
  float sum[1];
  convolve_channels(p, in_phase, image, at, group, channel - group * p.plain.out_channels, sum);
  return sum[0];
}

// What becomes of one element of a channel: of all outputs of its window, if it is one.
template <class Parameters>
__device__ __forceinline__ float finish_element(const Parameters& p, const ConvPhase& phase,
                                                int image, const int (&at)[MAX_SPATIAL],
                                                int channel) {
  const auto row = p.epilogue.row(channel);
  if constexpr (Parameters::WINDOWS == ConvFold::NONE) {
    return row(convolve_element(p, phase, image, at, channel));
  } else {
    float value = neutral_of<Parameters::WINDOWS>();
    for (int number = 0; number < p.plain.phases(); ++number) {
      const ConvPhase output = ConvPhase::of_number(p.plain, number);
      bool exists = true;
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        exists = exists && output.of[d] < p.plain.dimensions[d].outputs_of(at[d]);
      }
      if (!exists) continue;
      value =
          fold<Parameters::WINDOWS>(value, row(convolve_element(p, output, image, at, channel)));
    }
    return value;
  }
}

// All units of a convolution with `positions` of a phase: those of the blocks together.
template <class Tile, class Parameters>
__device__ __forceinline__ void convolve_on_cuda_cores(const Parameters& p) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  constexpr bool HAS_WINDOWS = ANY_WINDOWS && Parameters::WINDOWS != ConvFold::NONE;
  constexpr bool OVER_CHANNELS = ANY_CHANNEL_FOLDS && Parameters::CHANNELS != ConvFold::NONE;
  constexpr bool IS_PROGRAM = ANY_PROGRAMS && Parameters::CHANNELS == ConvFold::EXP_SUM;
  constexpr int AT_ONCE = HAS_WINDOWS || OVER_CHANNELS ? 1 : 8;  // channels
  const ConvShape& shape = p.plain;
  const int channels = shape.out_channels * shape.groups;
  const int runs = (shape.out_channels + AT_ONCE - 1) / AT_ONCE;  // of a group
  const int results = OVER_CHANNELS ? 1 : runs * shape.groups;
  const int phases = HAS_WINDOWS ? 1 : shape.phases();
  for (int outer = 0; outer < results * phases; ++outer) {
    const int group = outer % results / runs, of_group = (outer % results - group * runs) * AT_ONCE;
    const int channel = group * shape.out_channels + of_group;
    const ConvPhase phase = ConvPhase::of_number(shape, outer / results);
    for (uint32_t position = blockIdx.x * Tile::THREADS + threadIdx.x; position < p.positions;
         position += gridDim.x * Tile::THREADS) {
      int at[MAX_SPATIAL];
      const int image = p.divisors.split(position, at);
      int64_t place = image * p.out_strides.image + channel * p.out_strides.channel;
      bool exists = true;
#pragma unroll
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        const ConvDimension& dimension = shape.dimensions[d];
        const int of = HAS_WINDOWS ? at[d] : at[d] * dimension.out_step + phase.of[d];
        exists = exists && (HAS_WINDOWS || of < dimension.out);
        place += of * p.out_strides.spatial[d];
      }
      if (!exists) continue;
      if constexpr (IS_PROGRAM) {
        run_program(p, channels, place, p.out, p.out_strides.channel,
                    [&](int of) { return finish_element(p, phase, image, at, of); });
      } else if constexpr (AT_ONCE == 1) {
        float value = finish_element(p, phase, image, at, channel);
        if constexpr (OVER_CHANNELS) {
          for (int other = 1; other < channels; ++other) {
            value = fold<Parameters::CHANNELS>(value, finish_element(p, phase, image, at, other));
          }
        }
        p.out[place] = narrow<Result>(p.epilogue.finish(value, place, channel));
      } else {
        float sums[AT_ONCE];
        convolve_channels(p, phase, image, at, group, of_group, sums);
        const int end = min(AT_ONCE, shape.out_channels - of_group);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
          if (i >= end) break;
          const int64_t to = place + i * p.out_strides.channel;
          const float value = p.epilogue.row(channel + i)(sums[i]);
          p.out[to] = narrow<Result>(p.epilogue.finish(value, to, channel + i));
        }
      }
    }
  }
}
