#pragma once
// A convolution, usual or transposed, as phases of dense ones: each phase is a set of output
// positions whose taps lie at the same offsets.
//
// Along one dimension, W, H or D:
//   usual        output o meets input  o * stride - padding + k * dilation; one phase
//   transposed   input i meets output  i * stride - padding + k * dilation. With o = phase + stride
//                * t, the taps that hit are every (stride / g)-th, g = gcd(stride, dilation), and
//                meet input t + (phase + padding - k * dilation) / stride: each dilation / g less
// Both: position t meets input  lower + t * step + offset(tap)  with offset(tap) >= 0.
//
// Phases may be joined: a position then computes all of its phases, each a row of the filter. Its
// taps are the offsets that any phase meets; where a phase has none of its own the filter is zero.
// Neighbouring outputs of a usual convolution may be joined likewise, along W: few channels fill
// the rows of a tile.

#include <cuda_runtime.h>

#include <cstdint>

#include "conv_pixels.cuh"
#include "dependent_launch.cuh"
#include "divide.cuh"

constexpr int MAX_PHASES = 8;   // along one dimension
constexpr int FILTER_RUN = 16;  // rows of the filter that a warp stores: joined phases do not cross

__host__ __device__ constexpr int greatest_divisor(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// What the user's call says of one dimension.
struct ConvCall {
  int64_t in = 1, out = 1;
  int kernel = 1, stride = 1, padding = 0, dilation = 1;

  // The call whose outputs meet all that `count` neighbouring outputs of this one meet.
  ConvCall joining(int count) const {
    const int divisor = greatest_divisor(stride, dilation);
    const int last = (count - 1) * stride + (kernel - 1) * dilation;
    return {in, (out + count - 1) / count, last / divisor + 1, stride * count, padding, divisor};
  }
};

struct ConvDimension {
  int in, out;           // elements
  int positions;         // of a phase: the most that one has
  int phases;            // units of work
  int out_step;          // output o is position o / out_step
  int window;            // phases that are reduced to one result; 1: none are
  int filter_phases;     // phases that differ in their taps of the filter
  int joined;            // phases of a position that are rows of the filter; 1: none are
  int kernel, dilation;  // of the user's call where phases are joined, else 0
  // Where phases are joined a tap of the filter lies `dilation` times its number into it. Phase p
  // has at the offset of tap n what lies  first_reach + p * phase_reach + n * tap_reach  into it.
  int first_reach, phase_reach, tap_reach;
  int lower, step;
  int tap_step, offset_step;  // from one tap of a phase to the next: of the filter, of the input
  int taps[MAX_PHASES];
  int first_tap[MAX_PHASES];     // of the filter
  int first_offset[MAX_PHASES];  // of the input, from `lower`

  __host__ __device__ __forceinline__ int tap(int phase, int number) const {
    return first_tap[phase] + number * tap_step;
  }
  __host__ __device__ __forceinline__ int offset(int phase, int number) const {
    return first_offset[phase] + number * offset_step;
  }

  static ConvDimension usual(const ConvCall& call) {
    ConvDimension d = {};
    d.in = static_cast<int>(call.in);
    d.out = d.positions = static_cast<int>(call.out);
    d.phases = d.out_step = d.joined = d.window = d.filter_phases = 1;
    d.lower = -call.padding;
    d.step = call.stride;
    d.tap_step = 1;
    d.offset_step = call.dilation;
    d.taps[0] = call.kernel;
    return d;
  }

  static ConvDimension transposed(const ConvCall& call) {
    ConvDimension d = {};
    const int divisor = greatest_divisor(call.stride, call.dilation);
    d.in = static_cast<int>(call.in);
    d.out = static_cast<int>(call.out);
    d.phases = d.out_step = d.filter_phases = call.stride;
    d.joined = d.window = 1;
    d.positions = (d.out + call.stride - 1) / call.stride;
    d.step = 1;
    d.tap_step = call.stride / divisor;
    d.offset_step = -call.dilation / divisor;
    for (int phase = 0; phase < d.phases; ++phase) {
      const int place = phase + call.padding;
      int tap = 0;
      while (tap < d.tap_step && (place - tap * call.dilation) % call.stride != 0) ++tap;
      const bool hits = tap < d.tap_step && tap < call.kernel;
      d.taps[phase] = hits ? (call.kernel - tap + d.tap_step - 1) / d.tap_step : 0;
      d.first_tap[phase] = tap;
      d.first_offset[phase] = hits ? (place - tap * call.dilation) / call.stride : 0;
      const int last = d.first_offset[phase] + (d.taps[phase] - 1) * d.offset_step;
      if (hits && last < d.lower) d.lower = last;
    }
    for (int phase = 0; phase < d.phases; ++phase) d.first_offset[phase] -= d.lower;
    return d;
  }

  // All phases of a transposed convolution together.
  static ConvDimension joined_phases(const ConvCall& call) {
    const ConvDimension apart = transposed(call);
    int least = 0, most = 0;
    bool is_first = true;
    for (int phase = 0; phase < apart.phases; ++phase) {
      if (apart.taps[phase] == 0) continue;
      const int high = apart.lower + apart.first_offset[phase];
      const int low = high + (apart.taps[phase] - 1) * apart.offset_step;
      least = is_first || low < least ? low : least;
      most = is_first || high > most ? high : most;
      is_first = false;
    }
    ConvDimension d = {};
    d.in = apart.in;
    d.out = apart.out;
    d.positions = apart.positions;
    d.phases = d.step = d.tap_step = d.offset_step = d.window = d.filter_phases = 1;
    d.out_step = d.joined = call.stride;
    d.kernel = call.kernel;
    d.dilation = call.dilation;
    d.first_reach = call.padding - least * call.stride;
    d.phase_reach = 1;
    d.tap_reach = -call.stride;
    d.lower = least;
    d.taps[0] = most - least + 1;
    return d;
  }

  // `count` neighbouring outputs of a usual convolution together. `row`: call.joining(count), or
  // what remains of it where its taps are channels.
  static ConvDimension joined_outputs(const ConvCall& call, int count, const ConvCall& row) {
    ConvDimension d = usual(row);
    d.out = static_cast<int>(call.out);
    d.out_step = d.joined = count;
    d.kernel = call.kernel;
    d.dilation = call.dilation;
    d.phase_reach = -call.stride;
    d.tap_reach = greatest_divisor(call.stride, call.dilation);
    return d;
  }

  // Windows of `size` outputs side by side, which are reduced to one result.
  static ConvDimension windows(const ConvDimension& apart, int size) {
    ConvDimension d = side_by_side(apart, size);
    d.window = size;
    return d;
  }

  // Positions of `size` outputs each, which are its phases. The last one may reach beyond the
  // outputs. `size` is a multiple of the phases of `apart`.
  static ConvDimension side_by_side(const ConvDimension& apart, int size) {
    ConvDimension d = apart;
    const int turns = size / apart.phases;
    d.phases = d.out_step = size;
    d.positions = (apart.out + size - 1) / size;
    d.step = apart.step * turns;
    for (int phase = 0; phase < size; ++phase) {
      const int own = phase % apart.phases;
      d.taps[phase] = apart.taps[own];
      d.first_tap[phase] = apart.first_tap[own];
      d.first_offset[phase] = apart.first_offset[own] + phase / apart.phases * apart.step;
    }
    return d;
  }

  // Outputs of a window that there are.
  __host__ __device__ __forceinline__ int outputs_of(int position) const {
    const int left = out - position * window;
    return left < window ? left : window;
  }

  // Also with one phase: its taps are offsets, too.
  __host__ __device__ __forceinline__ bool is_joined() const { return dilation > 0; }
  // The filter's tap at the offset of tap `number` in a joined phase; -1: none.
  __host__ __device__ __forceinline__ int joined_tap(int phase, int number) const {
    const int reach = first_reach + phase * phase_reach + number * tap_reach;
    const int tap = reach / dilation;
    return reach >= 0 && tap * dilation == reach && tap < kernel ? tap : -1;
  }

  // The corner of the bounding box at the end, from the last pixel.
  int upper() const { return lower + (positions - 1) * step - (in - 1); }

  int64_t last_offset() const {
    int64_t most = 0;
    for (int phase = 0; phase < phases; ++phase) {
      const int64_t count = taps[phase] - 1;
      const int64_t last = first_offset[phase] + (count < 0 ? 0 : count) * offset_step;
      if (taps[phase] > 0 && first_offset[phase] > most) most = first_offset[phase];
      if (taps[phase] > 0 && last > most) most = last;
    }
    return most;
  }

  // Whether the mode im2col has the bits for it, of `spatial` dimensions.
  bool fits(int spatial) const {
    const int most = 1 << (corner_bits(spatial) - 1);
    const int64_t end = int64_t{lower} + int64_t{positions - 1} * step - (in - 1);
    return lower >= -most && lower < most && end >= -most && end < most &&
           last_offset() < 2 * most && step <= MAX_TRAVERSAL_STEP && phases <= MAX_PHASES;
  }
};

// The whole call. `dimensions`: W, H, D; those that there are not have one element and one tap.
struct ConvShape {
  int64_t images;
  int groups;
  int in_channels, out_channels;  // of one group
  ConvDimension dimensions[MAX_SPATIAL];

  __host__ __device__ int phases() const {
    return dimensions[0].phases * dimensions[1].phases * dimensions[2].phases;
  }
  __host__ __device__ int filter_phases() const {
    return dimensions[0].filter_phases * dimensions[1].filter_phases * dimensions[2].filter_phases;
  }
  __host__ __device__ int joined() const {
    return dimensions[0].joined * dimensions[1].joined * dimensions[2].joined;
  }
  // Output channels of FILTER_RUN rows, with all of their joined phases.
  __host__ __device__ int run_channels() const { return FILTER_RUN / joined(); }
  // The filter's of one group and phase: a channel's joined phases follow each other, W first.
  __host__ __device__ int rows() const {
    if (!dimensions[0].is_joined()) return out_channels;
    return (out_channels + run_channels() - 1) / run_channels() * FILTER_RUN;
  }
  int64_t positions() const {
    return images * dimensions[0].positions * dimensions[1].positions * dimensions[2].positions;
  }
  // The most of one phase.
  int taps() const {
    int product = 1;
    for (const ConvDimension& d : dimensions) {
      int most = 0;
      for (int phase = 0; phase < d.phases; ++phase)
        most = d.taps[phase] > most ? d.taps[phase] : most;
      product *= most;
    }
    return product;
  }
};

// One phase: of each dimension.
struct ConvPhase {
  int of[MAX_SPATIAL];

  __host__ __device__ __forceinline__ static ConvPhase of_number(const ConvShape& shape,
                                                                 int number) {
    ConvPhase phase;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int count = shape.dimensions[d].phases;
      phase.of[d] = count == 1 ? 0 : number % count;
      number = count == 1 ? number : number / count;
    }
    return phase;
  }
  // The one after this one, W first; after the last one the first.
  __device__ __forceinline__ void advance(const ConvShape& shape) {
    bool carries = true;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int next = carries ? of[d] + 1 : of[d];
      carries = next == shape.dimensions[d].phases;
      of[d] = carries ? 0 : next;
    }
  }
  // Number of the phase among those that differ in their taps of the filter.
  __host__ __device__ __forceinline__ int of_filter(const ConvShape& shape) const {
    int number = 0;
#pragma unroll
    for (int d = MAX_SPATIAL - 1; d >= 0; --d) {
      const int count = shape.dimensions[d].filter_phases;
      number = number * count + (count == 1 ? 0 : of[d] % count);
    }
    return number;
  }
  __host__ __device__ __forceinline__ int taps(const ConvShape& shape, int d) const {
    return shape.dimensions[d].taps[of[d]];
  }
  __host__ __device__ __forceinline__ int taps(const ConvShape& shape) const {
    return taps(shape, 0) * taps(shape, 1) * taps(shape, 2);
  }
};

// Divides linear positions, W first, then H, D and images.
struct PositionDivisors {
  Divisor of[MAX_SPATIAL];

  static PositionDivisors make(const ConvShape& shape) {
    PositionDivisors divisors;
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      divisors.of[d] = Divisor(static_cast<uint32_t>(shape.dimensions[d].positions));
    }
    return divisors;
  }
  // Position number `linear` of a phase; the image is returned.
  __device__ __forceinline__ int split(uint32_t linear, int (&at)[MAX_SPATIAL]) const {
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t next = of[d].quotient(linear);
      at[d] = static_cast<int>(linear - next * of[d].value());
      linear = next;
    }
    return static_cast<int>(linear);
  }
};

// Strides of a tensor of images, in elements; W, H, D first.
struct ImageStrides {
  int64_t image, channel;
  int64_t spatial[MAX_SPATIAL];
};

// Strides of a filter: of a group, of output and input channels in it, and of taps.
struct FilterStrides {
  int64_t group, out_channel, in_channel;
  int64_t taps[MAX_SPATIAL];
};
