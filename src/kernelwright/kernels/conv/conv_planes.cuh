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

  __device__ __forceinline__ PlaneTile(const PixelPlanes& p, uint32_t tile) : p_(p) {
    const uint32_t above = tile / p.channel_tiles;
    channel_ = (tile - above * p.channel_tiles) * CHANNELS;
    const uint32_t image = above / p.position_tiles;
    position_ = (above - image * p.position_tiles) * POSITIONS;
    image_ = image;
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
                                       Guard<2>& guard) const {
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
    guard.end_block();
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
  // Lanes side by side along the positions; warps along positions and then pairs of channels.
  __device__ __forceinline__ static int position_of(int i) {
    return (threadIdx.x + i * PLANE_THREADS) % POSITIONS;
  }
  __device__ __forceinline__ static int pair_of(int i) {
    return (threadIdx.x + i * PLANE_THREADS) / POSITIONS;
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

// One output channel's rows of K, of all phases.
template <class Filter, int PLANES, bool JOINED>
__device__ __forceinline__ void write_filter(const PlaneParameters& p, int channel, int& shared,
                                             Guard<2>& guard) {
  const FilterPlanes& f = p.filter;
  const ConvShape& shape = p.shape;
  const int group = channel / shape.out_channels;
  const auto* const from = static_cast<const Filter*>(f.data) + group * f.strides.group +
                           (channel - group * shape.out_channels) * f.strides.out_channel;
  const int joined = JOINED ? shape.joined() : 1;
  // Element `k` of the row of a phase; zero where there is none.
  const auto element = [&](const ConvPhase& phase, const JoinedPhase& row, int64_t k) {
    const int in_chunk = static_cast<int>(k % f.chunk);
    int64_t rest = k / f.chunk;
    int at = static_cast<int>(rest % f.chunks) * f.used + in_chunk;
    rest /= f.chunks;
    int64_t place = 0;
    if (in_chunk >= f.used || at >= f.channels) return 0.0f;
    int in_fold = 0;
    if (f.fold > 1) {
      in_fold = at / f.fold_channels;
      at -= in_fold * f.fold_channels;
      if (at >= f.real_channels) return 0.0f;
    }
    place += at * f.strides.in_channel;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const int count = phase.taps(shape, d);
      if (count == 0) return 0.0f;
      const int at_tap = static_cast<int>(rest % count);
      int tap = shape.dimensions[d].tap(phase.of[d], at_tap);
      rest /= count;
      if constexpr (JOINED) {
        if (shape.dimensions[d].is_joined()) {
          tap = shape.dimensions[d].joined_tap(row.of[d], at_tap);
          if (tap < 0) return 0.0f;
        }
      }
      if (d == 0 && f.fold > 1) {
        tap = tap * f.fold + in_fold;
        if (tap >= f.row_taps) return 0.0f;
      }
      place += tap * f.strides.taps[d];
    }
    return rest > 0 ? 0.0f : widen(load_constant(from + place));
  };
  if (threadIdx.x == 0) shared = 0;
  __syncthreads();
  uint32_t largest = 0;
  for (int number = 0; number < shape.phases() * joined; ++number) {
    const ConvPhase phase = ConvPhase::of_number(shape, number / joined);
    const JoinedPhase own = JoinedPhase::of_number(shape, number % joined);
    for (int64_t k = threadIdx.x; k < f.pitch; k += PLANE_THREADS) {
      const uint32_t bits = __float_as_uint(element(phase, own, k)) & 0x7fffffffu;
      if (bits < 0x7f800000u) largest = max(largest, bits);
    }
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&shared, static_cast<int>(largest));
  __syncthreads();
  const int exponent = scale_exponent(static_cast<uint32_t>(shared));
  const float scale = power_of_two(exponent);
  if (threadIdx.x == 0) f.exponents[channel] = exponent;
  const int of_group = channel - group * shape.out_channels;
  const int run_channels = shape.run_channels(), run = of_group / run_channels;
  for (int number = 0; number < shape.phases() * joined; ++number) {
    const int phase_number = number / joined, in_channel = number - phase_number * joined;
    const ConvPhase phase = ConvPhase::of_number(shape, phase_number);
    const JoinedPhase own = JoinedPhase::of_number(shape, in_channel);
    int64_t place = int64_t{phase_number} * f.out_channels + channel;
    if constexpr (JOINED) {
      const int64_t begin =
          (int64_t{phase_number} * shape.groups + group) * shape.rows() + run * FILTER_RUN;
      place = begin + (of_group - run * run_channels) * joined + in_channel;
      const bool ends = of_group + 1 == shape.out_channels || (of_group + 1) % run_channels == 0;
      if (ends && in_channel == joined - 1) {
        clear_rows<PLANES>(f, place + 1, begin + FILTER_RUN);
      }
    }
    __half* const row = f.rows + place * f.pitch;
    for (int64_t k = threadIdx.x * 2; k < f.pitch; k += PLANE_THREADS * 2) {
      const float values[2] = {element(phase, own, k), element(phase, own, k + 1)};
      const float scaled[2] = {values[0] * scale, values[1] * scale};
      guard.see(values, scaled);
      guard.end_block();
      const Halves halves = split(scaled[0], scaled[1]);
      *reinterpret_cast<__half2*>(row + k) = halves.high;
      if constexpr (PLANES == 2) {
        *reinterpret_cast<__half2*>(row + f.plane_elements + k) = halves.low;
      }
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
    const uint32_t tiles =
        p.pixels.channel_tiles * p.pixels.position_tiles * static_cast<uint32_t>(p.pixels.images);
    const uint32_t blocks = gridDim.x - p.filter_blocks;
    uint32_t tile = blockIdx.x - p.filter_blocks;
    typename Tile::Values values;
    // The first tile is on its way while the exponent is found.
    if (tile < tiles) Tile(p.pixels, tile).load(values);
    const int exponent = sample_exponent<Input>(p.pixels, largest);
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
  block_word.add(guard.word());
  __syncthreads();
  if (threadIdx.x == 0) p.header->guard[blockIdx.x] = block_word.word();
  let_next_kernel_start();
}
