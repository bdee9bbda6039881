#pragma once
// The kernel before a convolution on the tensor cores: it writes the fp16 planes of the input, and
// those of the filter.
//
// The input, in any strides, becomes images x D x H x W x pitch fp16 numbers, channels last; for
// few channels see RowTaps. The scale is a power of two, from a sample of the input
// (gemm_guard.cuh). A second plane, of what the first one leaves, follows it. The filter becomes a
// row of K for each phase and output channel, by taps and then channels in chunks, scaled by its
// own largest element. Bound by memory: reads the input once and writes 2 or 4 bytes an element.

#include "conv_shape.cuh"
#include "convert.cuh"
#include "dependent_launch.cuh"
#include "gemm_guard.cuh"
#include "gemm_rest.cuh"
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
  Divisor channel_tiles, position_tiles;  // of an image
  uint32_t positions;                     // of an image
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
  GemmHeader* header;
  int filter_blocks;  // the first blocks write the filter
};

// The exponent of the input's scale, from random elements: the same in every block.
template <class Input>
__device__ __forceinline__ int sample_exponent(const PixelPlanes& p, int& shared) {
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
  if (threadIdx.x % 32 == 0) atomicMax(&shared, static_cast<int>(largest));
  __syncthreads();
  return scale_exponent(static_cast<uint32_t>(shared));
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

  __device__ __forceinline__ explicit PlaneTile(const PixelPlanes& p) : p_(p) {}

  __device__ __forceinline__ void move_to(uint32_t tile) {
    const uint32_t above = p_.channel_tiles.quotient(tile);
    channel_ = (tile - above * p_.channel_tiles.value()) * CHANNELS;
    const uint32_t image = p_.position_tiles.quotient(above);
    position_ = (above - image * p_.position_tiles.value()) * POSITIONS;
    image_ = image;
  }

  __device__ __forceinline__ void take_place_of(const PlaneTile& other) {
    channel_ = other.channel_;
    position_ = other.position_;
    image_ = other.image_;
  }

  __device__ __forceinline__ void load(Values& values) const {
    if (!MOVES && p_.is_contiguous && p_.group_pitch == p_.group_channels) {
      load_side_by_side(values);
      return;
    }
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
      const uint32_t position = position_ + position_of(i);
      const int channel = channel_ + 2 * pair_of(i);
      load_pair(values[i], position, channel);
    }
  }

  // Pairs go into shared memory, along the channels.
  __device__ __forceinline__ void turn(const Values& values, int exponent, Words& words,
                                       Guard<2>& guard) const {
    const float scale = power_of_two(exponent);
    __syncthreads();  // the tile before has been read
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
      const Halves halves = split(values[i][0] * scale, values[i][1] * scale);
      const int place = position_of(i) * PITCH + pair_of(i);
      words[0][place] = reinterpret_cast<const uint32_t&>(halves.high);
      if constexpr (PLANES == 2) words[1][place] = reinterpret_cast<const uint32_t&>(halves.low);
    }
    guard.see_block(values, scale, SMALL * power_of_two(-exponent));
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

 private:
  // Lanes side by side along the positions; warps along positions and then pairs of channels: what
  // a thread has lies in PARTS places of a channel, and in every STEP-th pair of channels.
  static constexpr int PARTS = POSITIONS > PLANE_THREADS ? POSITIONS / PLANE_THREADS : 1;
  static constexpr int STEP = POSITIONS > PLANE_THREADS ? 1 : PLANE_THREADS / POSITIONS;
  __device__ __forceinline__ static int position_of(int i) {
    return threadIdx.x % POSITIONS + i % PARTS * PLANE_THREADS;
  }
  __device__ __forceinline__ static int pair_of(int i) {
    return threadIdx.x / POSITIONS + i / PARTS * STEP;
  }

  // Where positions and channels are those of the input, and a channel's positions side by side.
  __device__ __forceinline__ void load_side_by_side(Values& values) const {
    const int64_t channel_stride = p_.strides.channel;
    const int first_channel = channel_ + 2 * pair_of(0), channels = p_.channels - first_channel;
    const uint32_t first_position = position_ + position_of(0);
    const auto* from = static_cast<const Input*>(p_.data) + image_ * p_.strides.image +
                       first_channel * channel_stride + first_position;
    bool exists[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      exists[part] = first_position + part * PLANE_THREADS < p_.positions;
    }
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
      const int part = i % PARTS, channel = i / PARTS * STEP * 2;
      const Input* const pair = from + part * PLANE_THREADS;
      values[i][0] = exists[part] && channel < channels ? widen(load_constant(pair)) : 0.0f;
      values[i][1] = exists[part] && channel + 1 < channels
                         ? widen(load_constant(pair + channel_stride))
                         : 0.0f;
      if (part == PARTS - 1) from += 2 * STEP * channel_stride;
    }
  }

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
template <int PLANES>
__device__ __forceinline__ void clear_rows(const FilterPlanes& f, int64_t row, int64_t end) {
  for (int64_t k = row * f.pitch + threadIdx.x; k < end * f.pitch; k += PLANE_THREADS) {
#pragma unroll
    for (int plane = 0; plane < PLANES; ++plane) {
      f.rows[plane * f.plane_elements + k] = __float2half(0.0f);
    }
  }
}

// The largest magnitude of an output channel's filter, as bits; for all threads of the block.
template <class Filter>
__device__ __forceinline__ uint32_t largest_of_filter(const FilterPlanes& f, const Filter* from,
                                                      int& shared) {
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  uint32_t largest = 0;
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
    if (bits < 0x7f800000u) largest = max(largest, bits);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&shared, static_cast<int>(largest));
  __syncthreads();
  return static_cast<uint32_t>(shared);
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
      if (JOINED && tap < 0) return;
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
      if (!exists || (JOINED && tap < 0)) continue;
      values[i] = widen(load_constant(from_ + place + tap * f_.strides.taps[0] +
                                      channel * f_.strides.in_channel));
    }
  }

 private:
  // The filter's tap along dimension `d` at the offset of tap `number`; -1: the phase has none.
  __device__ __forceinline__ int tap_of(int d, int number) const {
    const ConvDimension& dimension = shape_.dimensions[d];
    if (JOINED && dimension.is_joined()) return dimension.joined_tap(own_.of[d], number);
    return dimension.tap(phase_.of[d], number);
  }

  const FilterPlanes& f_;
  const ConvShape& shape_;
  const Filter* from_;
  ConvPhase phase_;
  JoinedPhase own_;
  uint32_t counts_[MAX_SPATIAL], taps_;
};

// One output channel's rows of K, of all phases.
template <class Filter, int PLANES, bool JOINED>
__device__ __forceinline__ void write_filter(const PlaneParameters& p, int channel, int& shared,
                                             Guard<2>& guard) {
  const FilterPlanes& f = p.filter;
  const ConvShape& shape = p.shape;
  const int group = channel / shape.out_channels;
  const int of_group = channel - group * shape.out_channels;
  const auto* const from = static_cast<const Filter*>(f.data) + group * f.strides.group +
                           of_group * f.strides.out_channel;
  const int exponent = scale_exponent(largest_of_filter(f, from, shared));
  const float scale = power_of_two(exponent);
  if (threadIdx.x == 0) f.exponents[channel] = exponent;
  const int joined = JOINED ? shape.joined() : 1, phases = shape.phases();
  const int run_channels = shape.run_channels(), run = of_group / run_channels;
  const auto first_of_run = [&](int phase_number) {
    return (int64_t{phase_number} * shape.groups + group) * shape.rows() + run * FILTER_RUN;
  };
  // Where rows are short the block writes several at once.
  const uint32_t pairs = static_cast<uint32_t>(f.pitch) / 2;
  const uint32_t at_once = pairs < PLANE_THREADS ? PLANE_THREADS / pairs : 1;
  const uint32_t own = at_once > 1 ? threadIdx.x / pairs : 0;
  const uint32_t step = at_once > 1 ? pairs : PLANE_THREADS;
  for (int number = own; own < at_once && number < phases * joined; number += at_once) {
    const int phase_number = number / joined, in_channel = number - phase_number * joined;
    const FilterRow<Filter, JOINED> values_of(f, shape, from,
                                              ConvPhase::of_number(shape, phase_number),
                                              JoinedPhase::of_number(shape, in_channel));
    int64_t place = int64_t{phase_number} * f.out_channels + channel;
    if constexpr (JOINED) {
      place = first_of_run(phase_number) + (of_group - run * run_channels) * joined + in_channel;
    }
    __half* const row = f.rows + place * f.pitch;
#pragma unroll 4
    for (uint32_t pair = threadIdx.x - own * pairs; pair < pairs; pair += step) {
      float values[2];
      values_of.load(values, 2 * pair);
      const float scaled[2] = {values[0] * scale, values[1] * scale};
      guard.see(values, scaled);
      guard.end_block();
      const Halves halves = split(scaled[0], scaled[1]);
      *reinterpret_cast<__half2*>(row + 2 * pair) = halves.high;
      if constexpr (PLANES == 2) {
        *reinterpret_cast<__half2*>(row + f.plane_elements + 2 * pair) = halves.low;
      }
    }
  }
  const int next = of_group + 1;
  if (JOINED && (next == shape.out_channels || next % run_channels == 0)) {
    for (int phase = 0; phase < phases; ++phase) {
      const int64_t begin = first_of_run(phase);
      clear_rows<PLANES>(f, begin + (next - run * run_channels) * joined, begin + FILTER_RUN);
    }
  }
  __syncthreads();
}

// The body of a kernel of PLANE_THREADS threads: the first blocks write the filter, the others the
// input.
template <class Input, int CHANNELS, int PLANES, RowTaps ROW_TAPS, bool JOINED>
__device__ __forceinline__ void write_planes(const PlaneParameters& p) {
  using Tile = PlaneTile<Input, CHANNELS, PLANES, ROW_TAPS != RowTaps::APART>;
  __shared__ typename Tile::Words words;
  __shared__ int largest;
  __shared__ GuardWord block_word;
  if (threadIdx.x == 0) block_word.clear();
  Guard<2> guard;
  if (static_cast<int>(blockIdx.x) < p.filter_blocks) {
    for (int channel = blockIdx.x; channel < p.filter.out_channels; channel += p.filter_blocks) {
      write_filter<Input, PLANES, JOINED>(p, channel, largest, guard);
    }
  } else {
    const uint32_t tiles = p.pixels.channel_tiles.value() * p.pixels.position_tiles.value() *
                           static_cast<uint32_t>(p.pixels.images);
    const uint32_t blocks = gridDim.x - p.filter_blocks;
    const uint32_t first = blockIdx.x - p.filter_blocks;
    Tile here(p.pixels), next(p.pixels);
    typename Tile::Values values;
    // The first tile is on its way while the exponent is found.
    if (first < tiles) {
      next.move_to(first);
      next.load(values);
    }
    const int exponent = sample_exponent<Input>(p.pixels, largest);
    if (first == 0 && threadIdx.x == 0) p.header->exponents[0] = exponent;
    for (uint32_t tile = first; tile < tiles; tile += blocks) {
      here.take_place_of(next);
      here.turn(values, exponent, words, guard);
      if (tile + blocks < tiles) {
        next.move_to(tile + blocks);
        next.load(values);
      }
      here.write(words);
    }
  }
  __syncthreads();
  block_word.add(guard.word());
  __syncthreads();
  if (threadIdx.x == 0) p.header->guard[blockIdx.x] = block_word.word();
  let_next_kernel_start();
}
