#pragma once
// The fp16 planes of a filter: a row of K for each phase and output channel, by taps and then
// channels in chunks, scaled by its own largest element.

#include "conv_facts.cuh"
#include "conv_sets.cuh"
#include "conv_shape.cuh"
#include "convert.cuh"
#include "vector.cuh"

constexpr int PLANE_THREADS = 256;  // of the kernel that writes planes
constexpr int PLANE_BLOCKS = 4;     // of a multiprocessor, at least
constexpr int FILTER_WIDTH = 4;     // elements of a filter that one access brings

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
  bool has_spare;   // the second tap of K is zero, so that their number is even
  bool is_staged;   // an output channel's filter lies in one piece: see StagedRow
  bool is_aligned;  // and begins where a vector of FILTER_WIDTH elements does
  Divisor kernel[MAX_SPATIAL], of_chunks, of_taps;
  Divisor parts;  // of an output channel, each a block's; with more than one, it is staged
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

  __device__ __forceinline__ static FilterRange of_none() { return {0, ~0u}; }
  __device__ __forceinline__ void see(float number) {
    const uint32_t bits = __float_as_uint(number) & 0x7fffffffu;
    largest = max(largest, bits);
    least = min(least, bits);
  }
  // Those of all threads of the block; `shared` is of_none for all of them.
  __device__ __forceinline__ FilterRange of_block(FilterRange& shared) const {
    const uint32_t most = __reduce_max_sync(0xffffffffu, largest);
    const uint32_t fewest = __reduce_min_sync(0xffffffffu, least);
    if (threadIdx.x % 32 == 0) {
      atomicMax(&shared.largest, most);
      atomicMin(&shared.least, fewest);
    }
    __syncthreads();
    return shared;
  }
};

// Of what load(i) gives for `elements` of them, one or more. AT_ONCE of a thread are on their way:
// the last one stands for those that there are not.
template <int AT_ONCE, class Load>
__device__ __forceinline__ FilterRange range_of(uint32_t elements, const Load& load) {
  FilterRange range = FilterRange::of_none();
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first < elements; first += AT_ONCE * PLANE_THREADS) {
    float numbers[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      numbers[i] = load(min(first + i * PLANE_THREADS, elements - 1));
    }
#pragma unroll
    for (const float number : numbers) range.see(number);
  }
  return range;
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
  static constexpr int ELEMENTS = 9216;  // 1024 channels x 3 x 3
  static constexpr int RUN = 8;          // elements that a thread stores at once

  __device__ __forceinline__ StagedRow(const FilterPlanes& f, const float* elements)
      : f_(f), elements_(elements) {}

  // Channels of run number `run`; where it begins in the row is returned. Runs of a chunk follow
  // each other, then taps, then chunks: two lanes meet in a bank, where taps are odd.
  __device__ __forceinline__ uint32_t load(float (&values)[RUN], uint32_t run) const {
    const uint32_t of_chunk = f_.chunk / RUN, taps = f_.of_taps.value();
    const uint32_t above = run >> (f_.chunk_bits - RUN_BITS);
    const uint32_t chunk = f_.of_taps.quotient(above), tap = above - chunk * taps;
    const int in_chunk = static_cast<int>(run & (of_chunk - 1)) * RUN;
    const int channel = static_cast<int>(chunk) * f_.used + in_chunk;
    const int channels = in_chunk < f_.used ? f_.channels - channel : 0;
    const float* const first = elements_ + channel * taps + tap;
    if (taps == 1 && channels >= RUN) {
      const auto all = load_vector<RUN>(first);
#pragma unroll
      for (int i = 0; i < RUN; ++i) values[i] = all.element[i];
    } else {
#pragma unroll
      for (int i = 0; i < RUN; ++i) values[i] = i < channels ? first[i * taps] : 0.0f;
    }
    return ((tap * f_.chunks + chunk) << f_.chunk_bits) + in_chunk;
  }

 private:
  static constexpr int RUN_BITS = 3;

  const FilterPlanes& f_;
  const float* elements_;
};

// Brings an output channel's filter to shared memory, WIDTH elements an access; its range is
// returned. All of a thread's accesses are on their way at once where they are vectors: each that
// waits for the one before takes as long as a small kernel.
template <int WIDTH, class Filter>
__device__ __forceinline__ FilterRange stage(const Filter* from, uint32_t elements, float* staged) {
  constexpr int AT_ONCE = 5;
  const uint32_t count = elements / WIDTH;
  FilterRange range = FilterRange::of_none();
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first < count; first += AT_ONCE * PLANE_THREADS) {
    Vector<Filter, WIDTH> vectors[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const uint32_t at = min(first + i * PLANE_THREADS, count - 1);
      vectors[i] = load_constant_vector<WIDTH>(from + at * WIDTH);
    }
    // The last vector may be seen several times: with a condition, each load would wait for the
    // one before.
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      Vector<float, WIDTH> wide;
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) {
        wide.element[j] = widen(vectors[i].element[j]);
        range.see(wide.element[j]);
      }
      const uint32_t at = first + i * PLANE_THREADS;
      if (at < count) store_vector(staged + at * WIDTH, wide);
    }
  }
  return range;
}

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

// Pairs first, first + step... of a row of K, in a set; AT_ONCE of them are on their way. Beyond
// the row there are zeros to load.
template <class Set, int AT_ONCE, class Row, class Seen>
__device__ __forceinline__ void write_row(const FilterPlanes& f, const Row& values_of, __half* row,
                                          uint32_t first, uint32_t step, float scale, Seen& seen) {
  const uint32_t pairs = static_cast<uint32_t>(f.pitch) / 2;
  row += Set::NUMBER * Set::PLANES * f.plane_elements;
#pragma unroll 1
  for (; first < pairs; first += AT_ONCE * step) {
    float values[AT_ONCE][2];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) values_of.load(values[i], 2 * (first + i * step));
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const uint32_t pair = first + i * step;
      if (pair >= pairs) break;
      const float scaled[2] = {values[i][0] * scale, values[i][1] * scale};
      seen.see(values[i], scaled);
      seen.end_block();
      const Halves halves = Set::of(scaled[0], scaled[1]);
      *reinterpret_cast<__half2*>(row + 2 * pair) = halves.high;
      if constexpr (Set::PLANES == 2) {
        *reinterpret_cast<__half2*>(row + f.plane_elements + 2 * pair) = halves.low;
      }
    }
  }
}

// Runs first, first + step... of a staged row of K.
template <class Set, class Seen>
__device__ __forceinline__ void write_staged_row(const FilterPlanes& f, const StagedRow& values_of,
                                                 __half* row, uint32_t first, uint32_t step,
                                                 float scale, Seen& seen) {
  constexpr int RUN = StagedRow::RUN;
  const uint32_t runs = static_cast<uint32_t>(f.pitch) / RUN;
#pragma unroll 1
  for (uint32_t run = first; run < runs; run += step) {
    float values[RUN], scaled[RUN];
    const uint32_t k = values_of.load(values, run);
#pragma unroll
    for (int i = 0; i < RUN; i += 2) {
      const float pair[2] = {values[i], values[i + 1]};
      const float scaled_pair[2] = {pair[0] * scale, pair[1] * scale};
      seen.see(pair, scaled_pair);
      seen.end_block();
      scaled[i] = scaled_pair[0];
      scaled[i + 1] = scaled_pair[1];
    }
    store_run<Set>(row + k, f.plane_elements, scaled);
  }
}

// One output channel's rows of K, of all phases, in a set; for all THREADS threads of the block.
template <class Filter, class Set, bool HAS_PHASES, int THREADS, class Seen>
__device__ __forceinline__ void write_filter_rows(const FilterPlanes& f, const ConvShape& shape,
                                                  int channel, float scale, Seen& seen) {
  const int group = channel / shape.out_channels;
  const int of_group = channel - group * shape.out_channels;
  constexpr int AT_ONCE = Set::NUMBER == 0 ? 2 : 1;  // small code where it is seldom run
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

// Part `part` of the rows of an output channel in the first set, and their scale. `staged`: room
// for its filter, where that is staged; it and `shared` are of shared memory.
template <class Filter, int PLANES, bool HAS_PHASES>
__device__ __forceinline__ void write_filter(const FilterPlanes& f, const ConvShape& shape,
                                             int channel, uint32_t part, float* staged,
                                             FilterRange& shared, PlaneGuard& guard) {
  using Set = FirstSet<PLANES>;
  const Filter* const from = filter_of_channel<Filter>(f, shape, channel);
  const bool is_staged = !HAS_PHASES && f.is_staged;
  if (threadIdx.x == 0) shared = FilterRange::of_none();
  __syncthreads();
  FilterRange range;
  if (!is_staged) {
    range = range_of<8>(f.elements, [&](uint32_t i) { return load_element(f, from, i); });
  } else if (f.is_aligned) {
    range = stage<FILTER_WIDTH>(from, f.elements, staged);
  } else {
    range = stage<1>(from, f.elements, staged);
  }
  range = range.of_block(shared);
  const int exponent = scale_exponent(range.largest);
  const float scale = power_of_two(exponent);
  if (threadIdx.x == 0) {
    if (part == 0) f.exponents[channel] = exponent;
    guard.range.largest = max(guard.range.largest, range.largest);
    guard.range.has_zeros |= range.largest != 0 && range.least == 0;
  }
  if (is_staged) {
    write_staged_row<Set>(f, StagedRow(f, staged), f.rows + channel * f.pitch,
                          part * PLANE_THREADS + threadIdx.x, f.parts.value() * PLANE_THREADS,
                          scale, guard);
  } else {
    write_filter_rows<Filter, Set, HAS_PHASES, PLANE_THREADS>(f, shape, channel, scale, guard);
  }
  __syncthreads();
}
