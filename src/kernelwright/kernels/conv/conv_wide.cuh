#pragma once
// Numbers of a wide range: small ones beside large ones, and ones that a sample missed.
//
// Where the guard says that the first set of planes does not carry the input or the filter, the
// blocks of the convolution write the second one (conv_sets.cuh) before they multiply. They divide
// that work: a block takes shares until there are none, and then waits for those that others have
// taken. Who has taken one runs, so that nobody waits for a block that has not begun.
//
// The CUDA cores keep infinities and NaN, and what is below 2^-51 of the largest: unless more
// channels of the pixel are far from small than the filter has small elements, and it has no zeros.
// One of them meets an element that is not small, so that what is lost is below 2^-15 of the sum of
// one product's magnitudes, 2^-26 of that of three.

#include "conv_passes.cuh"
#include "conv_tile.cuh"
#include "flags.cuh"

// What the kernel before has met, of all blocks; in shared memory.
struct WideRange {
  static constexpr uint32_t INFINITE = 0x7f800000u;

  GuardWord filter;
  uint32_t largest[2];  // magnitudes as bits, of the input and of the filter
  uint32_t has_zeros;   // of the filter

  // For all threads of the block.
  __device__ __forceinline__ void find(const ConvHeader& header, int words, int filter_words) {
    if (threadIdx.x == 0) *this = {};
    __syncthreads();
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
      const bool is_filter = i < filter_words;
      atomicMax(&largest[is_filter], header.ranges[i].largest);
      if (!is_filter) continue;
      filter.add(header.guard[i]);
      atomicOr(&has_zeros, header.ranges[i].has_zeros);
    }
    __syncthreads();
  }
  __device__ __forceinline__ bool is_finite() const {
    return max(largest[0], largest[1]) < INFINITE;
  }
  // Channels of a pixel among which one meets an element of each row that is not small; more than
  // there are where no number is enough.
  __device__ __forceinline__ uint32_t decisive() const {
    return has_zeros != 0 || filter.bad != 0 ? ~0u : filter.small + 1;
  }
  __device__ __forceinline__ bool fits(int exponent) const {
    return __uint_as_float(largest[0]) * power_of_two(exponent) <= 65504;
  }
};

// Whether the second set does not carry some numbers.
struct LostNumbers {
  bool are_lost = false;

  template <int COUNT>
  __device__ __forceinline__ void see(const float (&numbers)[COUNT], const float (&scaled)[COUNT]) {
    constexpr float LEAST = SecondSet<1>::LEAST;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      are_lost = are_lost || (numbers[i] != 0 && fabsf(scaled[i]) < LEAST);
    }
  }
  __device__ __forceinline__ void end_block() {}
};

// Calls write(share, lost) for this block's shares; returns when all blocks' are written, and
// whether something is lost of them. What was written is visible to this block's asynchronous
// copies. `share`: in shared memory. For all threads.
template <class Write>
__device__ __forceinline__ bool divide_work(DividedWork* work, uint32_t shares, uint32_t& share,
                                            const Write& write) {
  LostNumbers lost;
  for (;;) {
    if (threadIdx.x == 0) share = atomicAdd(&work->taken, 1u);
    __syncthreads();
    if (share >= shares) break;
    write(share, lost);
    if (lost.are_lost) atomicOr(&work->lost, 1u);
    fence_for_async();
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&work->done, 1u);
    }
  }
  if (threadIdx.x == 0) {
    while (load_acquire(&work->done) < shares) {
    }
  }
  __syncthreads();
  fence_for_async();
  return load_acquire(&work->lost) != 0;
}

// The input in the second set; in the first one, too, where it is not yet there at this scale.
template <int PLANES, int THREADS, class Pixels>
class WidePixels {
 public:
  // `decisive`: channels far from small that make all others of a pixel harmless.
  __device__ __forceinline__ WidePixels(const PixelPlanes& p, int exponent, bool is_first_written,
                                        uint32_t decisive)
      : p_(p),
        scale_(power_of_two(exponent)),
        is_first_written_(is_first_written),
        decisive_(decisive) {}

  __device__ __forceinline__ uint32_t shares() const { return (runs() + OF_SHARE - 1) / OF_SHARE; }

  __device__ __forceinline__ void write(uint32_t share, LostNumbers& lost) const {
    const uint32_t begin = share * OF_SHARE, end = min(begin + OF_SHARE, runs());
#pragma unroll 1
    for (uint32_t run = begin + threadIdx.x; run < end; run += THREADS) write_run(run, lost);
  }

 private:
  static constexpr uint32_t OF_SHARE = 8 * THREADS;  // runs of eight channels

  __device__ __forceinline__ uint32_t runs() const {
    return static_cast<uint32_t>(p_.plane_elements / 8);
  }

  // Runs follow each other along the positions, as the input is read.
  __device__ __forceinline__ void write_run(uint32_t run, LostNumbers& lost) const {
    const uint32_t of_pixel = p_.pitch / 8, above = run / p_.positions, image = above / of_pixel;
    const uint32_t position = run - above * p_.positions;
    const int channel = static_cast<int>(above - image * of_pixel) * 8;
    const auto pixels = Pixels::of_image(p_, static_cast<int>(image));
    float numbers[8], scaled[8];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      float pair[2];
      pixels.load_pair(pair, position, channel + i);
      numbers[i] = pair[0];
      numbers[i + 1] = pair[1];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) scaled[i] = numbers[i] * scale_;
    LostNumbers own;
    own.see(numbers, scaled);
    // Whoever has found one that matters need not look again.
    if (own.are_lost && !lost.are_lost && !has_large(pixels, position, channel, channel + 8) &&
        !has_large(pixels, position, first_of_group(channel), end_of_group(channel))) {
      lost.are_lost = true;
    }
    __half* const place =
        p_.planes + (int64_t{image} * p_.positions + position) * p_.pitch + channel;
    if (!is_first_written_) store_run<FirstSet<PLANES>>(place, p_.plane_elements, scaled);
    store_run<SecondSet<PLANES>>(place, p_.plane_elements, scaled);
  }

  // Whether so many of these channels are so far from small that all others may be lost.
  __device__ __forceinline__ bool has_large(const Pixels& pixels, uint32_t position, int channel,
                                            int end) const {
    const float large = SMALL * static_cast<float>(end - channel);
    uint32_t found = 0;
#pragma unroll 1
    for (; channel < end && found < decisive_; channel += 2) {
      float pair[2];
      pixels.load_pair(pair, position, channel);
      found += (fabsf(pair[0]) * scale_ >= large) + (fabsf(pair[1]) * scale_ >= large);
    }
    return found >= decisive_;
  }
  // Channels whose products are summed.
  __device__ __forceinline__ int first_of_group(int channel) const {
    return has_groups() ? channel - channel % p_.group_pitch : 0;
  }
  __device__ __forceinline__ int end_of_group(int channel) const {
    return has_groups() ? first_of_group(channel) + p_.group_pitch : p_.pitch;
  }
  __device__ __forceinline__ bool has_groups() const {
    return p_.group_channels != p_.real_channels;
  }

  const PixelPlanes& p_;
  float scale_;
  bool is_first_written_;
  uint32_t decisive_;
};

// Writes what the first set does not carry; the passes over K are returned. `exponent`: of the
// input's scale, in shared memory, as is what `memory` has room for. For all threads of all blocks.
template <class Config, class Parameters>
__device__ __forceinline__ ConvPasses write_second_set(const Parameters& p, int& exponent,
                                                       void* memory) {
  using Tile = ConvTile<Config>;
  using Input = std::remove_const_t<std::remove_pointer_t<decltype(p.data)>>;
  using Pixels = PlaneTile<Input, Tile::PLANE_CHANNELS, Tile::PLANES, Config::ROW_TAPS>;
  struct Shared {
    WideRange range;
    uint32_t share;
  };
  static_assert(sizeof(Shared) <= Tile::PLACE_BYTES, "places have not been found yet");
  auto& shared = *static_cast<Shared*>(memory);
  const PlaneParameters& planes = p.planes;
  ConvHeader* const header = planes.header;
  shared.range.find(*header, p.rest.guard_words, planes.filter_blocks);
  const WideRange range = shared.range;
  const bool is_filter_wide = range.filter.bad != 0 || range.filter.small > p.rest.small_elements;
  if (!range.is_finite() || (is_filter_wide && !Tile::HAS_FILTER_SETS)) return {ConvPasses::NONE};
  const int sampled = exponent;
  const int own = range.fits(sampled) ? sampled : scale_exponent(range.largest[0]);
  __syncthreads();
  if (threadIdx.x == 0) exponent = own;

  const WidePixels<Tile::PLANES, Tile::THREADS, Pixels> pixels(planes.pixels, own, own == sampled,
                                                               range.decisive());
  const uint32_t channels = is_filter_wide ? planes.filter.out_channels : 0;
  const bool are_lost =
      divide_work(&header->work, channels + pixels.shares(), shared.share,
                  [&](uint32_t share, LostNumbers& lost) {
                    if (share >= channels) {
                      pixels.write(share - channels, lost);
                    } else if constexpr (Tile::HAS_FILTER_SETS) {
                      const int channel = static_cast<int>(share);
                      write_filter_rows<Input, SecondSet<Tile::PLANES>, Tile::JOINS, Tile::THREADS>(
                          planes.filter, planes.shape, channel,
                          power_of_two(planes.filter.exponents[channel]), lost);
                    }
                  });
  if (are_lost) return {ConvPasses::NONE};
  return {is_filter_wide ? ConvPasses::OF_BOTH : ConvPasses::OF_PIXELS};
}
