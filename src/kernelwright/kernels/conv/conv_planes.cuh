#pragma once
// The kernel before a convolution on the tensor cores: it writes the fp16 planes of the input, and
// those of the filter.
//
// The input, in any strides, becomes images x D x H x W x pitch fp16 numbers, channels last; for
// few channels see RowTaps. The scale is a power of two, from a sample of the input
// (gemm_guard.cuh). A second plane, of what the first one leaves, follows it. The filter becomes a
// row of K for each phase and output channel, by taps and then channels in chunks, scaled by its
// own largest element. Bound by memory: reads the input once and writes 2 or 4 bytes an element.

#include "conv_sets.cuh"
#include "conv_shape.cuh"
#include "convert.cuh"
#include "dependent_launch.cuh"
#include "vector.cuh"

constexpr int PLANE_THREADS = 256;
constexpr int PLANE_ELEMENTS = 4096;  // of a tile

// Where channels are few, taps that are neighbours in a row can be more of them, so that a copy
// brings whole rows of 128 bytes.
enum class RowTaps {
  APART,       // each tap is a copy
  FOLDED,      // the plane holds the taps of every output position side by side, along W
  OVERLAPPING  // the plane holds each pixel once, the padding along W too: pixels that are
               // neighbours are the channels of one, and pixels overlap
};

// Columns of the planes: `taps` channels of the input's column  at * step - padding + tap *
// dilation.
struct RowFold {
  int taps = 1, in = 1, step = 1, padding = 0, dilation = 1;
};

// How the input's planes lie, and what they hold.
struct PixelPlanes {
  const void* data;  // the input
  ImageStrides strides;
  int64_t images;
  int in[MAX_SPATIAL];  // elements of the input
  int channels, pitch;  // of the planes; a multiple of 8
  int real_channels;    // of the input
  // Channels of a group, and of the planes from one group to the next: copies begin at 16 bytes.
  int group_channels, group_pitch;
  RowFold fold;
  __half* planes;
  int64_t plane_elements;
  bool is_contiguous;  // W, H and D of a channel follow each other
  Divisor divisors[MAX_SPATIAL], of_channels, of_groups;
  uint32_t channel_tiles, position_tiles;  // of all images: position tiles x images
  uint32_t positions;                      // of an image
};

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
  Divisor kernel[MAX_SPATIAL], of_chunks;
};

struct PlaneParameters {
  PixelPlanes pixels;
  FilterPlanes filter;
  ConvShape shape;  // of what the tensor cores compute: without taps along W where they are folded
  ConvHeader* header;
  int filter_blocks;  // the first blocks write the filter
};

// The exponent of the input's scale, from random elements: the same in every block.
template <class Input>
__device__ __forceinline__ int sample_exponent(const PixelPlanes& p, uint32_t& shared) {
  constexpr int OF_THREAD = SAMPLES / PLANE_THREADS;
  const auto* const data = static_cast<const Input*>(p.data);
  float samples[OF_THREAD];
#pragma unroll
  for (int i = 0; i < OF_THREAD; ++i) {
    // Hashes (Knuth, TAOCP 3, 6.4): a regular step would meet the same few columns.
    uint32_t hash = (threadIdx.x * OF_THREAD + i + 1) * 2654435769u;
    int64_t place = __umulhi(hash, static_cast<uint32_t>(p.images)) * p.strides.image;
    hash = hash * 2654435769u + 1;
    place += __umulhi(hash, p.real_channels) * p.strides.channel;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      hash = hash * 0x85ebca6bu + 1;
      place += __umulhi(hash, p.in[d]) * p.strides.spatial[d];
    }
    samples[i] = widen(data[place]);
  }
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  uint32_t largest = 0;
#pragma unroll
  for (const float sample : samples) {
    const uint32_t bits = __float_as_uint(sample) & 0x7fffffffu;
    if (bits < 0x7f800000u) largest = max(largest, bits);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&shared, largest);
  __syncthreads();
  // Where all are zero, whatever there is besides does not fit: so its scale is looked for.
  return shared == 0 ? MOST_EXPONENT : scale_exponent(shared);
}

// One tile: CHANNELS of a part of an image's positions, read along the positions and written along
// the channels. Threads read pairs of channels of WIDTH positions each.
// MOVES: columns are those of RowFold.
template <class Input, int CHANNELS, int PLANES, bool MOVES>
class PlaneTile {
 public:
  static constexpr int POSITIONS = PLANE_ELEMENTS / CHANNELS;
  static constexpr int PAIRS = CHANNELS / 2;
  static constexpr int PITCH = PAIRS + 1;  // words; odd, against bank conflicts
  static constexpr int WARPS = PLANE_THREADS / 32;
  static constexpr int OF_THREAD = PLANE_ELEMENTS / 2 / PLANE_THREADS;  // pairs
  using Words = uint32_t[PLANES][POSITIONS * PITCH];
  using Values = float[OF_THREAD][2];

  __device__ __forceinline__ PlaneTile(const PixelPlanes& p, uint32_t tile) : p_(p) {
    const uint32_t above = tile / p.channel_tiles;
    channel_ = (tile - above * p.channel_tiles) * CHANNELS;
    const uint32_t image = above / p.position_tiles;
    position_ = (above - image * p.position_tiles) * POSITIONS;
    image_ = image;
  }

  // The first one of an image.
  __device__ __forceinline__ static PlaneTile of_image(const PixelPlanes& p, int image) {
    return PlaneTile(p, 0, 0, image);
  }

  __device__ __forceinline__ void load(Values& values) const {
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
      const uint32_t position = position_ + position_of(i);
      const int channel = channel_ + 2 * pair_of(i);
      load_pair(values[i], position, channel);
    }
  }

  // Pairs go into shared memory, along the channels.
  __device__ __forceinline__ void turn(const Values& values, float scale, Words& words,
                                       PlaneGuard& guard) const {
    __syncthreads();  // the tile before has been read
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
      const float scaled[2] = {values[i][0] * scale, values[i][1] * scale};
      guard.see(values[i], scaled);
      const Halves halves = split(scaled[0], scaled[1]);
      const int place = position_of(i) * PITCH + pair_of(i);
      words[0][place] = reinterpret_cast<const uint32_t&>(halves.high);
      if constexpr (PLANES == 2) words[1][place] = reinterpret_cast<const uint32_t&>(halves.low);
    }
    guard.guard.end_block();
    __syncthreads();
  }

  __device__ __forceinline__ void write(const Words& words) const {
    constexpr int RUNS = CHANNELS / 8;  // of 16 bytes
#pragma unroll
    for (int i = threadIdx.x; i < POSITIONS * RUNS; i += PLANE_THREADS) {
      const int at = i / RUNS, run = i % RUNS;
      const uint32_t position = position_ + at;
      const int channel = channel_ + run * 8;
      if (position >= p_.positions || channel >= p_.pitch) continue;
      const int64_t place = (int64_t{image_} * p_.positions + position) * p_.pitch + channel;
#pragma unroll
      for (int plane = 0; plane < PLANES; ++plane) {
        const uint32_t* const from = &words[plane][at * PITCH + run * 4];
        *reinterpret_cast<uint4*>(p_.planes + plane * p_.plane_elements + place) =
            make_uint4(from[0], from[1], from[2], from[3]);
      }
    }
  }

  // A pair of channels of a position of the image; zero where there is none.
  __device__ __forceinline__ void load_pair(float (&values)[2], uint32_t position,
                                            int channel) const {
    const auto* const image = static_cast<const Input*>(p_.data) + image_ * p_.strides.image;
    values[0] = values[1] = 0;
    if (position >= p_.positions) return;
    int64_t place = position;
    int column = 0;
    if (MOVES || !p_.is_contiguous) {
      uint32_t rest = position;
      place = 0;
#pragma unroll
      for (int d = 0; d < MAX_SPATIAL; ++d) {
        const uint32_t next = p_.divisors[d].quotient(rest);
        const int at = static_cast<int>(rest - next * p_.divisors[d].value());
        if (MOVES && d == 0) {
          column = at * p_.fold.step - p_.fold.padding;
        } else {
          place += at * p_.strides.spatial[d];
        }
        rest = next;
      }
    }
    int end = p_.channels, spare = 0;  // channels before that are no group's
    if (!MOVES && p_.group_pitch != p_.group_channels && channel < end) {
      const int group = static_cast<int>(p_.of_groups.quotient(channel));
      spare = group * (p_.group_pitch - p_.group_channels);
      end = spare + (group + 1) * p_.group_channels;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (channel + i >= end) continue;
      if constexpr (MOVES) {
        const int tap = static_cast<int>(p_.of_channels.quotient(channel + i));
        const int at = column + tap * p_.fold.dilation;
        const int real = channel + i - tap * p_.real_channels;
        if (at >= 0 && at < p_.fold.in) {
          values[i] = widen(load_constant(image + place + at * p_.strides.spatial[0] +
                                          real * p_.strides.channel));
        }
      } else {
        values[i] =
            widen(load_constant(image + place + (channel + i - spare) * p_.strides.channel));
      }
    }
  }

 private:
  __device__ __forceinline__ PlaneTile(const PixelPlanes& p, int channel, uint32_t position,
                                       int image)
      : p_(p), channel_(channel), position_(position), image_(image) {}

  // Lanes side by side along the positions; warps along positions and then pairs of channels.
  __device__ __forceinline__ static int position_of(int i) {
    return (threadIdx.x + i * PLANE_THREADS) % POSITIONS;
  }
  __device__ __forceinline__ static int pair_of(int i) {
    return (threadIdx.x + i * PLANE_THREADS) / POSITIONS;
  }

  const PixelPlanes& p_;
  int channel_;
  uint32_t position_;
  int image_;
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
__device__ __forceinline__ const Filter* filter_of_channel(const PlaneParameters& p, int channel) {
  const int group = channel / p.shape.out_channels;
  return static_cast<const Filter*>(p.filter.data) + group * p.filter.strides.group +
         (channel - group * p.shape.out_channels) * p.filter.strides.out_channel;
}

// Magnitudes of an output channel's filter, as bits.
struct FilterRange {
  uint32_t largest, least;
};

// For all threads of the block.
template <class Filter>
__device__ __forceinline__ FilterRange range_of_filter(const FilterPlanes& f, const Filter* from,
                                                       FilterRange& shared) {
  if (threadIdx.x == 0) shared = {0, ~0u};
  __syncthreads();
  uint32_t largest = 0, least = ~0u;
#pragma unroll 4
  for (uint32_t i = threadIdx.x; i < f.elements; i += PLANE_THREADS) {
    uint32_t rest = i;
    int64_t place = 0;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t next = f.kernel[d].quotient(rest);
      place += (rest - next * f.kernel[d].value()) * f.strides.taps[d];
      rest = next;
    }
    const float value = widen(load_constant(from + place + rest * f.strides.in_channel));
    const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
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

// Elements of the rows of K of one phase of an output channel.
template <class Filter, bool JOINED>
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
    int tap_of_row = 0;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t next = counts_[d] == 1 ? rest : rest / counts_[d];
      const int at_tap = static_cast<int>(rest - next * counts_[d]);
      rest = next;
      const ConvDimension& dimension = shape_.dimensions[d];
      int tap = dimension.tap(phase_.of[d], at_tap);
      if constexpr (JOINED) {
        if (dimension.is_joined()) tap = dimension.joined_tap(own_.of[d], at_tap);
        if (tap < 0) return;
      }
      if (d == 0) {
        tap_of_row = tap;
      } else {
        place += tap * f_.strides.taps[d];
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int channel = at + i, tap = tap_of_row;
      bool exists = channel < f_.channels;
      if (f_.fold > 1) {
        const int in_fold = channel / f_.fold_channels;
        channel -= in_fold * f_.fold_channels;
        tap = tap * f_.fold + in_fold;
        exists = exists && channel < f_.real_channels && tap < f_.row_taps;
      }
      if (!exists) continue;
      values[i] = widen(load_constant(from_ + place + tap * f_.strides.taps[0] +
                                      channel * f_.strides.in_channel));
    }
  }

 private:
  const FilterPlanes& f_;
  const ConvShape& shape_;
  const Filter* from_;
  ConvPhase phase_;
  JoinedPhase own_;
  uint32_t counts_[MAX_SPATIAL], taps_;
};

// One output channel's rows of K, of all phases, in a set; for all THREADS threads of the block.
template <class Filter, class Set, bool JOINED, int THREADS, class Seen>
__device__ __forceinline__ void write_filter_rows(const PlaneParameters& p, int channel,
                                                  float scale, Seen& seen) {
  constexpr int AT_ONCE = Set::NUMBER == 0 ? 4 : 1;  // small code where it is seldom run
  const FilterPlanes& f = p.filter;
  const ConvShape& shape = p.shape;
  const int group = channel / shape.out_channels;
  const int of_group = channel - group * shape.out_channels;
  const Filter* const from = filter_of_channel<Filter>(p, channel);
  const int joined = JOINED ? shape.joined() : 1, phases = shape.phases();
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
    const FilterRow<Filter, JOINED> values_of(f, shape, from,
                                              ConvPhase::of_number(shape, phase_number),
                                              JoinedPhase::of_number(shape, in_channel));
    int64_t place = int64_t{phase_number} * f.out_channels + channel;
    if constexpr (JOINED) {
      place = first_of_run(phase_number) + (of_group - run * run_channels) * joined + in_channel;
    }
    __half* const row = f.rows + Set::NUMBER * Set::PLANES * f.plane_elements + place * f.pitch;
#pragma unroll AT_ONCE
    for (uint32_t pair = threadIdx.x - own * pairs; pair < pairs; pair += step) {
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
  const int next = of_group + 1;
  if (JOINED && (next == shape.out_channels || next % run_channels == 0)) {
    for (int phase = 0; phase < phases; ++phase) {
      const int64_t begin = first_of_run(phase);
      clear_rows<Set, THREADS>(f, begin + (next - run * run_channels) * joined, begin + FILTER_RUN);
    }
  }
}

// The same in the first set, and the scale.
template <class Filter, int PLANES, bool JOINED>
__device__ __forceinline__ void write_filter(const PlaneParameters& p, int channel,
                                             FilterRange& shared, PlaneGuard& guard) {
  const FilterRange range =
      range_of_filter(p.filter, filter_of_channel<Filter>(p, channel), shared);
  const int exponent = scale_exponent(range.largest);
  const float scale = power_of_two(exponent);
  if (threadIdx.x == 0) {
    p.filter.exponents[channel] = exponent;
    guard.range.largest = max(guard.range.largest, range.largest);
    guard.range.has_gaps |= range.largest != 0 && __uint_as_float(range.least) * scale < SMALL;
  }
  write_filter_rows<Filter, FirstSet<PLANES>, JOINED, PLANE_THREADS>(p, channel, scale,
                                                                     guard.guard);
  __syncthreads();
}

// The body of a kernel of PLANE_THREADS threads: the first blocks write the filter, the others the
// input.
template <class Input, int CHANNELS, int PLANES, RowTaps ROW_TAPS, bool JOINED>
__device__ __forceinline__ void write_planes(const PlaneParameters& p) {
  using Tile = PlaneTile<Input, CHANNELS, PLANES, ROW_TAPS != RowTaps::APART>;
  __shared__ typename Tile::Words words;
  __shared__ FilterRange shared;
  __shared__ GuardWord block_word;
  __shared__ PlaneRange block_range;
  if (threadIdx.x == 0) {
    block_word.clear();
    block_range = {};
    if (blockIdx.x == 0) p.header->work = {};
  }
  PlaneGuard guard;
  if (static_cast<int>(blockIdx.x) < p.filter_blocks) {
    for (int channel = blockIdx.x; channel < p.filter.out_channels; channel += p.filter_blocks) {
      write_filter<Input, PLANES, JOINED>(p, channel, shared, guard);
    }
  } else {
    const uint32_t tiles =
        p.pixels.channel_tiles * p.pixels.position_tiles * static_cast<uint32_t>(p.pixels.images);
    const uint32_t blocks = gridDim.x - p.filter_blocks;
    uint32_t tile = blockIdx.x - p.filter_blocks;
    typename Tile::Values values;
    // The first tile is on its way while the exponent is found.
    if (tile < tiles) Tile(p.pixels, tile).load(values);
    const int exponent = sample_exponent<Input>(p.pixels, shared.largest);
    if (tile == 0 && threadIdx.x == 0) p.header->exponents[0] = exponent;
    while (tile < tiles) {
      const Tile now(p.pixels, tile);
      now.turn(values, power_of_two(exponent), words, guard);
      tile += blocks;
      if (tile < tiles) Tile(p.pixels, tile).load(values);
      now.write(words);
    }
  }
  __syncthreads();
  guard.add_to(block_word, block_range);
  __syncthreads();
  if (threadIdx.x == 0) {
    p.header->guard[blockIdx.x] = block_word.word();
    p.header->ranges[blockIdx.x] = block_range;
  }
  let_next_kernel_start();
}
