#pragma once
// A convolution of any sizes, strides and alignment on the CUDA cores, in float32: a thread
// computes elements of the result one by one, from the input and the filter as they lie.

#include "conv_facts.cuh"
#include "conv_fold.cuh"
#include "conv_moments.cuh"
#include "conv_request.cuh"
#include "conv_totals.cuh"
#include "convert.cuh"

template <class Input, class Result, class Epilogue>
struct ConvAnyParameters {
  using Ending = Epilogue;
  static constexpr ConvFold WINDOWS = Epilogue::WINDOWS, CHANNELS = Epilogue::CHANNELS;
  ConvRequest<Input, Result> request;
  Epilogue epilogue;
  int64_t elements;  // units of work: results, or outputs of all channels
};

// The element of the input's dimension that tap `tap` of output `out` meets; -1: none.
__device__ __forceinline__ int64_t input_of_conv(const ConvCall& call, ConvDirection direction,
                                                 int64_t out, int tap) {
  const int64_t reach = int64_t{tap} * call.dilation;
  int64_t in = out * call.stride - call.padding + reach;
  if (direction == ConvDirection::TRANSPOSED) {
    const int64_t scaled = out + call.padding - reach;
    if (scaled % call.stride != 0) return -1;
    in = scaled / call.stride;
  }
  return in >= 0 && in < call.in ? in : -1;
}

// The sum of one element; `at`: its place along W, H and D; `channel`: of all groups.
template <class Input, class Result>
__device__ __forceinline__ float sum_of_conv(const ConvRequest<Input, Result>& r, int64_t image,
                                             int64_t channel, const int64_t (&at)[MAX_SPATIAL]) {
  const int64_t of_group = r.out_channels / r.groups, group = channel / of_group;
  const int64_t channels = r.in_channels / r.groups;
  const Input* const filter = r.filter + group * r.filter_strides.group +
                              (channel - group * of_group) * r.filter_strides.out_channel;
  const Input* const data =
      r.data + image * r.data_strides.image + group * channels * r.data_strides.channel;
  float sum = 0;
  for (int z = 0; z < r.calls[2].kernel; ++z) {
    const int64_t depth = input_of_conv(r.calls[2], r.direction, at[2], z);
    for (int y = 0; depth >= 0 && y < r.calls[1].kernel; ++y) {
      const int64_t row = input_of_conv(r.calls[1], r.direction, at[1], y);
      for (int x = 0; row >= 0 && x < r.calls[0].kernel; ++x) {
        const int64_t column = input_of_conv(r.calls[0], r.direction, at[0], x);
        if (column < 0) continue;
        const Input* const from = data + depth * r.data_strides.spatial[2] +
                                  row * r.data_strides.spatial[1] +
                                  column * r.data_strides.spatial[0];
        const Input* const weights = filter + z * r.filter_strides.taps[2] +
                                     y * r.filter_strides.taps[1] + x * r.filter_strides.taps[0];
        for (int64_t c = 0; c < channels; ++c) {
          sum = fmaf(widen(from[c * r.data_strides.channel]),
                     widen(weights[c * r.filter_strides.in_channel]), sum);
        }
      }
    }
  }
  return sum;
}

// What becomes of one element of a channel: of all outputs of its window, if it is one. `at`: its
// place in the result.
template <class Parameters>
__device__ __forceinline__ float value_of_conv(const Parameters& p, int64_t image, int64_t channel,
                                               const int64_t (&at)[MAX_SPATIAL]) {
  const auto& r = p.request;
  const auto row = p.epilogue.row(static_cast<int>(channel));
  if constexpr (Parameters::WINDOWS == ConvFold::NONE) {
    return row(sum_of_conv(r, image, channel, at));
  } else {
    float value = neutral_of<Parameters::WINDOWS>();
    const int outputs = r.windows[0] * r.windows[1] * r.windows[2];
#pragma unroll 1
    for (int number = 0; number < outputs; ++number) {
      int rest = number;
      int64_t output[MAX_SPATIAL];
      bool exists = true;
#pragma unroll
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        output[d] = at[d] * r.windows[d] + rest % r.windows[d];
        rest /= r.windows[d];
        exists = exists && output[d] < r.calls[d].out;
      }
      if (!exists) continue;
      value = fold<Parameters::WINDOWS>(value, row(sum_of_conv(r, image, channel, output)));
    }
    return value;
  }
}

// All channels of one output, at `place` of the result's first channel.
template <class Parameters>
__device__ __forceinline__ void run_any_program(const Parameters& p, int64_t image,
                                                const int64_t (&at)[MAX_SPATIAL], int64_t place) {
  const auto& r = p.request;
  run_program(p, static_cast<int>(r.out_channels), place, r.out, r.out_strides.channel,
              [&](int channel) { return value_of_conv(p, image, channel, at); });
}

// The body of a kernel of any number of threads.
template <class Parameters>
__device__ __forceinline__ void conv_any(const Parameters& p) {
  wait_for_previous_kernel();
  using Result = std::remove_pointer_t<decltype(p.request.out)>;
  constexpr bool IS_PROGRAM = ANY_PROGRAMS && Parameters::CHANNELS == ConvFold::EXP_SUM;
  const auto& r = p.request;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < p.elements; i += step) {
    int64_t rest = i, place = 0, at[MAX_SPATIAL];
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int64_t along = r.results_along(d);
      at[d] = rest % along;
      rest /= along;
      place += at[d] * r.out_strides.spatial[d];
    }
    if constexpr (IS_PROGRAM) {
      run_any_program(p, rest, at, place + rest * r.out_strides.image);
      continue;
    }
    const int64_t channel = rest % r.result_channels, image = rest / r.result_channels;
    place += image * r.out_strides.image + channel * r.out_strides.channel;
    float value = value_of_conv(p, image, channel, at);
    if constexpr (ANY_CHANNEL_FOLDS && Parameters::CHANNELS != ConvFold::NONE && !IS_PROGRAM) {
#pragma unroll 1
      for (int64_t other = 1; other < r.out_channels; ++other) {
        value = fold<Parameters::CHANNELS>(value, value_of_conv(p, image, other, at));
      }
    }
    r.out[place] = narrow<Result>(p.epilogue.finish(value, place, static_cast<int>(channel)));
  }
}

// Host side; see conv_launch.cuh for what a variant has.
template <class Input, class Result, class Epilogue>
struct ConvAnyVariant {
  using Parameters = ConvAnyParameters<Input, Result, Epilogue>;
  using Request = ConvRequest<Input, Result>;
  static constexpr int THREADS = 256;

  void (*kernel)(Parameters);

  static bool admits(const Request&) { return true; }
  static int64_t workspace_bytes(const Request&) { return 0; }
  static MomentStates moments(const Request&, const MomentStates& results, void*) {
    return results;
  }

  cudaError_t launch(const Request& request, const Epilogue& epilogue, cudaStream_t stream,
                     void*) const {
    // Who makes the moments computes the results.
    if constexpr (ANY_MOMENTS && Epilogue::MOMENTS == ConvMoments::ALONE) return cudaSuccess;
    constexpr int64_t MOST_BLOCKS = 1 << 16;
    constexpr bool IS_PROGRAM = ANY_PROGRAMS && Epilogue::CHANNELS == ConvFold::EXP_SUM;
    const int64_t elements = request.result_elements() / (IS_PROGRAM ? request.result_channels : 1);
    const int64_t blocks = (elements + THREADS - 1) / THREADS;
    const unsigned grid = static_cast<unsigned>(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    const Parameters parameters = {request, epilogue, elements};
    return launch_dependent(kernel, grid, THREADS, stream, parameters);
  }
};
