#pragma once
// The kernel before a convolution on the tensor cores: it writes the fp16 planes of the input, and
// those of the filter.
//
// The input, in any strides, becomes images x D x H x W x pitch fp16 numbers, channels last; for
// few channels see RowTaps. The scale is a power of two, from a sample of the input
// (gemm_guard.cuh). A second plane, of what the first one leaves, follows it. Bound by memory:
// reads the input once and writes 2 or 4 bytes an element.

#include "conv_filter.cuh"
#include "convert.cuh"
#include "dependent_launch.cuh"
#include "vector.cuh"

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
  bool is_contiguous;  // the planes' positions are the input's, and follow each other in a channel
  Divisor divisors[MAX_SPATIAL], of_channels, of_groups;
  Divisor channel_tiles, position_tiles;  // of an image
  uint32_t positions;                     // of an image
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
// Columns are those of RowFold where ROW_TAPS says so.
template <class Input, int CHANNELS, int PLANES, RowTaps ROW_TAPS>
class PlaneTile {
  static constexpr bool FOLDS = ROW_TAPS == RowTaps::FOLDED;

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

  // The first one of an image.
  __device__ __forceinline__ static PlaneTile of_image(const PixelPlanes& p, int image) {
    PlaneTile tile(p);
    tile.image_ = image;
    return tile;
  }

  __device__ __forceinline__ void load(Values& values) const {
    if (!FOLDS && p_.is_contiguous && p_.group_pitch == p_.group_channels) {
      load_side_by_side(values);
      return;
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      // Divisions for each pair would take most of the time.
      const Pixel pixel = find(position_ + position_of(part));
#pragma unroll
      for (int i = part; i < OF_THREAD; i += PARTS) {
        load_channels(values[i], pixel, channel_ + 2 * pair_of(i));
      }
    }
  }

  // Pairs go into shared memory, along the channels.
  __device__ __forceinline__ static void turn(const Values& values, int exponent, Words& words,
                                              PlaneGuard& guard) {
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

  // A pair of channels of a position of the image; zero where there is none.
  __device__ __forceinline__ void load_pair(float (&values)[2], uint32_t position,
                                            int channel) const {
    load_channels(values, find(position), channel);
  }

 private:
  // What the channels of a position share.
  struct Pixel {
    const Input* first;  // channel; of a row where taps are folded, for each has a column
    int column;
    bool exists;
  };

  __device__ __forceinline__ Pixel find(uint32_t position) const {
    Pixel pixel = {static_cast<const Input*>(p_.data) + image_ * p_.strides.image, 0,
                   position < p_.positions};
    if (!FOLDS && p_.is_contiguous) {
      pixel.first += position;
      return pixel;
    }
    uint32_t rest = position;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const uint32_t next = p_.divisors[d].quotient(rest);
      int at = static_cast<int>(rest - next * p_.divisors[d].value());
      if (ROW_TAPS == RowTaps::OVERLAPPING && d == 0) {
        at -= p_.fold.padding;
        pixel.exists &= at >= 0 && at < p_.fold.in;
      }
      if (FOLDS && d == 0) {
        pixel.column = at * p_.fold.step - p_.fold.padding;
      } else {
        pixel.first += at * p_.strides.spatial[d];
      }
      rest = next;
    }
    return pixel;
  }

  __device__ __forceinline__ void load_channels(float (&values)[2], const Pixel& pixel,
                                                int channel) const {
    if constexpr (FOLDS) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int tap = static_cast<int>(p_.of_channels.quotient(channel + i));
        const int at = pixel.column + tap * p_.fold.dilation;
        const int real = channel + i - tap * p_.real_channels;
        const bool exists = pixel.exists && channel + i < p_.channels && at >= 0 && at < p_.fold.in;
        values[i] = exists ? widen(load_constant(pixel.first + at * p_.strides.spatial[0] +
                                                 real * p_.strides.channel))
                           : 0.0f;
      }
    } else {
      int end = p_.channels, spare = 0;  // channels before that are no group's
      if (p_.group_pitch != p_.group_channels && channel < end) {
        const int group = static_cast<int>(p_.of_groups.quotient(channel));
        spare = group * (p_.group_pitch - p_.group_channels);
        end = spare + (group + 1) * p_.group_channels;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        values[i] =
            pixel.exists && channel + i < end
                ? widen(load_constant(pixel.first + (channel + i - spare) * p_.strides.channel))
                : 0.0f;
      }
    }
  }

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

  const PixelPlanes& p_;
  int channel_ = 0;
  uint32_t position_ = 0;
  int image_ = 0;
};

// The body of a kernel of PLANE_THREADS threads and plane_shared_bytes: the first blocks write the
// filter, the others the input.
template <class Input, int CHANNELS, int PLANES, RowTaps ROW_TAPS, bool HAS_PHASES>
__device__ __forceinline__ void write_planes(const PlaneParameters& p) {
  wait_for_previous_kernel();
  using Tile = PlaneTile<Input, CHANNELS, PLANES, ROW_TAPS>;
  // The words of a tile, or an output channel's filter.
  extern __shared__ __align__(16) unsigned char planes_shared[];
  __shared__ FilterRange filter_range;
  __shared__ uint32_t largest;
  __shared__ GuardWord block_word;
  __shared__ PlaneRange block_range;
  if (threadIdx.x == 0) {
    block_word.clear();
    block_range = {};
    if (blockIdx.x == 0) p.header->work = {};
  }
  PlaneGuard guard;
  if (static_cast<int>(blockIdx.x) < p.filter_blocks) {
    const Divisor& parts = p.filter.parts;
    const uint32_t shares = p.filter.out_channels * parts.value();
    for (uint32_t share = blockIdx.x; share < shares; share += p.filter_blocks) {
      const uint32_t channel = parts.quotient(share);
      write_filter<Input, PLANES, HAS_PHASES>(
          p.filter, p.shape, static_cast<int>(channel), share - channel * parts.value(),
          reinterpret_cast<float*>(planes_shared), filter_range, guard);
    }
  } else {
    const uint32_t tiles = p.pixels.channel_tiles.value() * p.pixels.position_tiles.value() *
                           static_cast<uint32_t>(p.pixels.images);
    const uint32_t blocks = gridDim.x - p.filter_blocks;
    const uint32_t first = blockIdx.x - p.filter_blocks;
    auto& words = *reinterpret_cast<typename Tile::Words*>(planes_shared);
    Tile at(p.pixels);
    typename Tile::Values values;
    // The first tile is on its way while the exponent is found.
    if (first < tiles) {
      at.move_to(first);
      at.load(values);
    }
    const int exponent = sample_exponent<Input>(p.pixels, largest);
    if (first == 0 && threadIdx.x == 0) p.header->exponents[0] = exponent;
    for (uint32_t tile = first; tile < tiles; tile += blocks) {
      Tile::turn(values, exponent, words, guard);
      if (tile + blocks < tiles) {
        at.move_to(tile + blocks);
        at.load(values);
      }
      at.move_to(tile);
      at.write(words);
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
