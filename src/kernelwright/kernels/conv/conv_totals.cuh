#pragma once
// What the channels of one output come to, and what becomes of it. A program has
//   IS_BY_CHANNEL  whether each channel has a result; else there is one for all
//   TAKES_TERMS    whether a channel's result is made of its exp(x - largest), not of x
//   of_totals()    of the largest and the sum: the result, or what all channels share
//   of_channel()   of x, the largest and that; or of exp(x - largest), the sum and that

#include <type_traits>

#include "conv_elements.cuh"
#include "convert.cuh"
#include "math.cuh"

// The largest number, and the sum of exp(x - largest), one number after the other.
struct ConvTotals {
  float largest = -INFINITY, sum = 0;

  // What to subtract from numbers up to `largest`: nothing from -inf, whose exp is 0.
  __device__ __forceinline__ static float origin(float largest) {
    return largest == -INFINITY ? 0.0f : largest;
  }
  __device__ __forceinline__ void add(float value) {
    const float before = largest;
    largest = maximum(before, value);
    const float from = origin(largest);
    sum = sum * std::exp(before - from) + std::exp(value - from);
  }
  // The result of all channels.
  template <class Program>
  __device__ __forceinline__ float result() const {
    return Program::of_totals(largest, sum);
  }
  // The result of a channel that has `value`.
  template <class Program>
  __device__ __forceinline__ float result_of(float value) const {
    const float shared = Program::of_totals(largest, sum);
    if constexpr (!Program::TAKES_TERMS) return Program::of_channel(value, largest, shared);
    if constexpr (Program::TAKES_TERMS) {
      return Program::of_channel(std::exp(value - origin(largest)), sum, shared);
    }
  }
};

// A program over the channels of one output, in one thread: what is one for all channels, or first
// the totals and then each channel's. `value(channel)`: before the program. `place`: of the first
// channel in `out`.
template <class Parameters, class Result, class Value>
__device__ __forceinline__ void run_program(const Parameters& p, int channels, int64_t place,
                                            Result* out, int64_t channel_stride,
                                            const Value& value) {
  using Program = typename Parameters::Ending::Program;
  constexpr int TURNS = Program::IS_BY_CHANNEL ? 2 : 1;
  ConvTotals totals;
  // In one loop: the code of a value is there once.
#pragma unroll 1
  for (int number = 0; number < TURNS * channels; ++number) {
    const int channel = number < channels ? number : number - channels;
    const float before = value(channel);
    if (number < channels) {
      totals.add(before);
    } else if constexpr (Program::IS_BY_CHANNEL) {
      const float made = p.epilogue.after.row(channel)(totals.template result_of<Program>(before));
      const int64_t at = place + channel * channel_stride;
      out[at] = narrow<Result>(p.epilogue.finish(made, at, channel));
    }
  }
  if constexpr (!Program::IS_BY_CHANNEL) {
    out[place] = narrow<Result>(p.epilogue.finish(totals.template result<Program>(), place, 0));
  }
}

// Softmax: each channel's share of the sum.
struct ChannelShares {
  static constexpr bool IS_BY_CHANNEL = true, TAKES_TERMS = true;
  __device__ __forceinline__ static float of_totals(float, float sum) { return 1.0f / sum; }
  __device__ __forceinline__ static float of_channel(float term, float sum, float reciprocal) {
    return refined_quotient(term, sum, reciprocal);
  }
};

// The logarithm of it.
struct ChannelLogShares {
  static constexpr bool IS_BY_CHANNEL = true, TAKES_TERMS = false;
  __device__ __forceinline__ static float of_totals(float, float sum) { return std::log(sum); }
  __device__ __forceinline__ static float of_channel(float x, float largest, float log_sum) {
    return x - largest - log_sum;
  }
};
