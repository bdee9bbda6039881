#pragma once
// The fp16 planes of a filter: a row of K for each phase and output channel, by taps and then
// channels in chunks, scaled by its own largest element.

#include "conv_facts.cuh"
#include "conv_sets.cuh"
#include "conv_shape.cuh"
#include "convert.cuh"
#include "vector.cuh"

constexpr int PLANE_THREADS = 256;  // of the kernel that writes planes

struct FilterPlanes {
  const void* data;
  FilterStrides strides;
  __half* rows;
  int64_t pitch, plane_elements;
  int* exponents;   // of each output channel's scale
  int chunk, used;  // elements of K for one tap and a chunk of channels, and those that are used
  int channels, chunks;         // of one tap
  int fold, fold_channels;      // taps of a row that are channels, so many of the planes each
  int row_taps, real_channels;  // of the filter
  int out_channels;             // of all groups
  uint32_t elements;            // of an output channel's filter
  int chunk_bits;
  bool has_spare;  // the second tap of K is zero, so that their number is even
  bool is_staged;  // an output channel's filter lies in one piece: see StagedRow
  Divisor kernel[MAX_SPATIAL], of_chunks;
};

// Joined phase number `number`, of each dimension.
struct JoinedPhase {
  int of[MAX_SPATIAL];

  __device__ __forceinline__ static JoinedPhase of_number(const ConvShape& shape, int number) {
    JoinedPhase phase;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int count = shape.dimensions[d].joined;
      phase.of[d] = number % count;
      number /= count;
    }
    return phase;
  }
};

// Zeros in the rows of a run that are no channel's: `row` is the first of all, `end` the last one's
// end.
template <class Set, int THREADS>
__device__ __forceinline__ void clear_rows(const FilterPlanes& f, int64_t row, int64_t end) {
  for (int64_t k = row * f.pitch + threadIdx.x; k < end * f.pitch; k += THREADS) {
#pragma unroll
    for (int plane = 0; plane < Set::PLANES; ++plane) {
      f.rows[(Set::NUMBER * Set::PLANES + plane) * f.plane_elements + k] = __float2half(0.0f);
    }
  }
}

// Where an output channel's filter begins.
template <class Filter>
__device__ __forceinline__ const Filter* filter_of_channel(const FilterPlanes& f,
                                                           const ConvShape& shape, int channel) {
  const int group = channel / shape.out_channels;
  return static_cast<const Filter*>(f.data) + group * f.strides.group +
         (channel - group * shape.out_channels) * f.strides.out_channel;
}

// Magnitudes of an output channel's filter, as bits.
struct FilterRange {
  uint32_t largest, least;
};

// Of what load(i) gives for `elements` of them, AT_ONCE at a time. For all threads of the block.
template <int AT_ONCE, class Load>
__device__ __forceinline__ FilterRange range_of(uint32_t elements, FilterRange& shared,
                                                const Load& load) {
  if (threadIdx.x == 0) shared = {0, ~0u};
  __syncthreads();
  uint32_t largest = 0, least = ~0u;
#pragma unroll AT_ONCE
  for (uint32_t i = threadIdx.x; i < elements; i += PLANE_THREADS) {
    const uint32_t bits = __float_as_uint(load(i)) & 0x7fffffffu;
    largest = max(largest, bits);
    least = min(least, bits);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  least = __reduce_min_sync(0xffffffffu, least);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&shared.largest, largest);
    atomicMin(&shared.least, least);
  }
  __syncthreads();
  return shared;
}

// Element `i` of an output channel's filter, W first, in any strides.
template <class Filter>
__device__ __forceinline__ float load_element(const FilterPlanes& f, const Filter* from,
                                              uint32_t i) {
  uint32_t rest = i;
  int64_t place = 0;
#pragma unroll
  for (int d = 0; d < MAX_SPATIAL; ++d) {
    const uint32_t next = f.kernel[d].quotient(rest);
    place += (rest - next * f.kernel[d].value()) * f.strides.taps[d];
    rest = next;
  }
  return widen(load_constant(from + place + rest * f.strides.in_channel));
}

// The row of K of a filter that lies in one piece, by channels and then taps, and that shared
// memory has: the multiplications and divisions that find an element elsewhere take longer than
// what they find. One phase, whose taps are the filter's.
class StagedRow {
 public:
  static constexpr int ELEMENTS = 4608;  // 512 channels x 3 x 3

  __device__ __forceinline__ StagedRow(const FilterPlanes& f, const float* elements)
      : f_(f), elements_(elements), taps_(f.elements / f.channels) {}

  // Elements `k` and the next one, `k` even; zero where there is none.
  __device__ __forceinline__ void load(float (&values)[2], uint32_t k) const {
    const uint32_t in_chunk = k & (f_.chunk - 1), chunk = k >> f_.chunk_bits;
    const uint32_t tap = f_.of_chunks.quotient(chunk);
    const int channel = (chunk - tap * f_.of_chunks.value()) * f_.used + in_chunk;
    const bool exists = static_cast<int>(in_chunk) < f_.used && tap < taps_;
    const float* const first = elements_ + channel * taps_ + tap;
    values[0] = exists && channel < f_.channels ? first[0] : 0.0f;
    values[1] = exists && channel + 1 < f_.channels ? first[taps_] : 0.0f;
  }

 private:
  const FilterPlanes& f_;
  const float* elements_;
  uint32_t taps_;
};

// Elements of the rows of K of one phase of an output channel.
template <class Filter, bool HAS_PHASES>
class FilterRow {
 public:
  __device__ __forceinline__ FilterRow(const FilterPlanes& f, const ConvShape& shape,
                                       const Filter* from, const ConvPhase& phase,
                                       const JoinedPhase& own)
      : f_(f), shape_(shape), from_(from), phase_(phase), own_(own) {
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) counts_[d] = phase.taps(shape, d);
    taps_ = counts_[0] * counts_[1] * counts_[2];
  }

  // Elements `k` and the next one, `k` even; zero where there is none.
  __device__ __forceinline__ void load(float (&values)[2], uint32_t k) const {
    values[0] = values[1] = 0;
    const uint32_t in_chunk = k & (f_.chunk - 1), chunk = k >> f_.chunk_bits;
    uint32_t rest = f_.of_chunks.quotient(chunk);
    const int at = (chunk - rest * f_.of_chunks.value()) * f_.used + in_chunk;
    if (f_.has_spare) {
      if (rest == 1) return;
      rest -= rest > 1;
    }
    if (static_cast<int>(in_chunk) >= f_.used || rest >= taps_) return;
    int64_t place = 0;
    int number_in_row = 0;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t next = counts_[d] == 1 ? rest : rest / counts_[d];
      const int at_tap = static_cast<int>(rest - next * counts_[d]);
      rest = next;
      if (d == 0) {
        number_in_row = at_tap;
        continue;
      }
      const int tap = tap_of(d, at_tap);
      if (ANY_JOINED && HAS_PHASES && tap < 0) return;
      place += tap * f_.strides.taps[d];
    }
    int tap = tap_of(0, number_in_row);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int channel = at + i;
      bool exists = channel < f_.channels;
      if (f_.fold > 1) {
        const int in_fold = channel / f_.fold_channels;
        channel -= in_fold * f_.fold_channels;
        tap = tap_of(0, number_in_row * f_.fold + in_fold);
        exists = exists && channel < f_.real_channels && tap < f_.row_taps;
      }
      if (!exists || (ANY_JOINED && HAS_PHASES && tap < 0)) continue;
      values[i] = widen(load_constant(from_ + place + tap * f_.strides.taps[0] +
                                      channel * f_.strides.in_channel));
    }
  }

 private:
  // The filter's tap along dimension `d` at the offset of tap `number`; -1: the phase has none.
  __device__ __forceinline__ int tap_of(int d, int number) const {
    const ConvDimension& dimension = shape_.dimensions[d];
    if (ANY_JOINED && HAS_PHASES && dimension.is_joined())
      return dimension.joined_tap(own_.of[d], number);
    return dimension.tap(phase_.of[d], number);
  }

  const FilterPlanes& f_;
  const ConvShape& shape_;
  const Filter* from_;
  ConvPhase phase_;
  JoinedPhase own_;
  uint32_t counts_[MAX_SPATIAL], taps_;
};

// Pairs first, first + step... of a row of K, in a set; AT_ONCE of them are on their way.
template <class Set, int AT_ONCE, class Row, class Seen>
__device__ __forceinline__ void write_row(const FilterPlanes& f, const Row& values_of, __half* row,
                                          uint32_t first, uint32_t step, float scale, Seen& seen) {
  const uint32_t pairs = static_cast<uint32_t>(f.pitch) / 2;
  row += Set::NUMBER * Set::PLANES * f.plane_elements;
#pragma unroll AT_ONCE
  for (uint32_t pair = first; pair < pairs; pair += step) {
    float values[2];
    values_of.load(values, 2 * pair);
    const float scaled[2] = {values[0] * scale, values[1] * scale};
    seen.see(values, scaled);
    seen.end_block();
    const Halves halves = Set::of(scaled[0], scaled[1]);
    *reinterpret_cast<__half2*>(row + 2 * pair) = halves.high;
    if constexpr (Set::PLANES == 2) {
      *reinterpret_cast<__half2*>(row + f.plane_elements + 2 * pair) = halves.low;
    }
  }
}

// One output channel's rows of K, of all phases, in a set; for all THREADS threads of the block.
template <class Filter, class Set, bool HAS_PHASES, int THREADS, class Seen>
__device__ __forceinline__ void write_filter_rows(const FilterPlanes& f, const ConvShape& shape,
                                                  int channel, float scale, Seen& seen) {
  const int group = channel / shape.out_channels;
  const int of_group = channel - group * shape.out_channels;
  constexpr int AT_ONCE = Set::NUMBER == 0 ? 4 : 1;  // small code where it is seldom run
  const Filter* const from = filter_of_channel<Filter>(f, shape, channel);
  const int joined = ANY_JOINED && HAS_PHASES ? shape.joined() : 1, phases = shape.phases();
  const int run_channels = shape.run_channels(), run = of_group / run_channels;
  const auto first_of_run = [&](int phase_number) {
    return (int64_t{phase_number} * shape.groups + group) * shape.rows() + run * FILTER_RUN;
  };
  // Where rows are short the block writes several at once.
  const uint32_t pairs = static_cast<uint32_t>(f.pitch) / 2;
  const uint32_t at_once = pairs < THREADS ? THREADS / pairs : 1;
  const uint32_t own = at_once > 1 ? threadIdx.x / pairs : 0;
  const uint32_t step = at_once > 1 ? pairs : THREADS;
  for (int number = own; own < at_once && number < phases * joined; number += at_once) {
    const int phase_number = number / joined, in_channel = number - phase_number * joined;
    const FilterRow<Filter, HAS_PHASES> values_of(f, shape, from,
                                                  ConvPhase::of_number(shape, phase_number),
                                                  JoinedPhase::of_number(shape, in_channel));
    int64_t place = int64_t{phase_number} * f.out_channels + channel;
    if constexpr (ANY_JOINED && HAS_PHASES) {
      place = first_of_run(phase_number) + (of_group - run * run_channels) * joined + in_channel;
    }
    write_row<Set, AT_ONCE>(f, values_of, f.rows + place * f.pitch, threadIdx.x - own * pairs, step,
                            scale, seen);
  }
  const int next = of_group + 1;
  if (ANY_JOINED && HAS_PHASES && (next == shape.out_channels || next % run_channels == 0)) {
    for (int phase = 0; phase < phases; ++phase) {
      const int64_t begin = first_of_run(phase);
      clear_rows<Set, THREADS>(f, begin + (next - run * run_channels) * joined, begin + FILTER_RUN);
    }
  }
}

// What a block needs of shared memory to write a filter.
struct FilterRoom {
  FilterRange range;
  float staged[StagedRow::ELEMENTS];
};

// The rows of an output channel in the first set, and their scale.
template <class Filter, int PLANES, bool HAS_PHASES>
__device__ __forceinline__ void write_filter(const FilterPlanes& f, const ConvShape& shape,
                                             int channel, FilterRoom& room, PlaneGuard& guard) {
  using Set = FirstSet<PLANES>;
  const Filter* const from = filter_of_channel<Filter>(f, shape, channel);
  const bool is_staged = !HAS_PHASES && f.is_staged;
  const FilterRange range =
      is_staged
          ? range_of<9>(f.elements, room.range,
                        [&](uint32_t i) { return room.staged[i] = widen(load_constant(from + i)); })
          : range_of<4>(f.elements, room.range,
                        [&](uint32_t i) { return load_element(f, from, i); });
  const int exponent = scale_exponent(range.largest);
  const float scale = power_of_two(exponent);
  if (threadIdx.x == 0) {
    f.exponents[channel] = exponent;
    guard.range.largest = max(guard.range.largest, range.largest);
    guard.range.has_gaps |= range.largest != 0 && __uint_as_float(range.least) * scale < SMALL;
  }
  if (is_staged) {
    write_row<Set, 4>(f, StagedRow(f, room.staged), f.rows + channel * f.pitch, threadIdx.x,
                      PLANE_THREADS, scale, guard);
  } else {
    write_filter_rows<Filter, Set, HAS_PHASES, PLANE_THREADS>(f, shape, channel, scale, guard);
  }
  __syncthreads();
}
