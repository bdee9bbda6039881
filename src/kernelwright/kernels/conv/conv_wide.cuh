#pragma once
// What one set of fp16 planes does not carry: small elements beside large ones, and elements that
// are much larger than what was sampled.
//
// The blocks of the convolution write two sets of planes, of what is not small and of the rest, and
// meet. The products of both are summed in passes (conv_passes.cuh). So elements keep their bits
// down to 2^-51 of the largest, at the expense of one more pass over K, or of three where the
// filter needs it, too. Infinities and NaN are left to the CUDA cores, and so are smaller elements.

#include "conv_passes.cuh"
#include "conv_tile.cuh"
#include "flags.cuh"

// The largest magnitude that a thread has seen, as bits; infinite as well where an element is too
// small for the second set.
struct LargestSeen {
  static constexpr uint32_t INFINITE = 0x7f800000u;
  static constexpr float TOO_SMALL = SMALL / (1 << REST_EXPONENT);
  uint32_t bits = 0;

  __device__ __forceinline__ void see(const float (&numbers)[2], const float (&scaled)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool is_lost = numbers[i] != 0 && fabsf(scaled[i]) < TOO_SMALL;
      bits = max(bits, is_lost ? INFINITE : __float_as_uint(numbers[i]) & 0x7fffffffu);
    }
  }
  __device__ __forceinline__ void end_block() {}
};

// Whether one set does not carry the filter, for all threads of the block.
template <class Parameters>
__device__ __forceinline__ bool filter_is_wide(const Parameters& p) {
  __shared__ GuardWord all;
  if (threadIdx.x == 0) all.clear();
  __syncthreads();
  for (int i = threadIdx.x; i < p.planes.filter_blocks; i += blockDim.x) {
    all.add(p.rest.header->guard[i]);
  }
  __syncthreads();
  return all.bad != 0 || all.small > p.rest.small_elements;
}

// Returns when all blocks have come for the `times`-th time, and sees what they wrote; so do the
// asynchronous copies of this one. All blocks of the launch run at the same time.
__device__ __forceinline__ void meet_blocks(ConvHeader* header, uint32_t times) {
  fence_for_async();
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(&header->arrived, 1u);
    while (load_acquire(&header->arrived) < times * gridDim.x) {
    }
  }
  __syncthreads();
  fence_for_async();
}

// A part of eight channels of a position.
template <PlanePart PART, int PLANES>
__device__ __forceinline__ void store_run_of_planes(const PixelPlanes& p, int64_t place,
                                                    const float (&scaled)[4][2]) {
  Halves halves[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) halves[i] = split_part<PART>(scaled[i][0], scaled[i][1]);
#pragma unroll
  for (int plane = 0; plane < PLANES; ++plane) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = reinterpret_cast<const uint32_t&>(plane == 0 ? halves[i].high : halves[i].low);
    }
    const int64_t first = (first_plane<PART, PLANES>() + plane) * p.plane_elements;
    *reinterpret_cast<uint4*>(p.planes + first + place) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// This block's share of both sets of the input's planes.
template <int PLANES, class Pixels>
__device__ __forceinline__ void write_sets(const PixelPlanes& p, float scale, LargestSeen& seen) {
  const int runs = p.pitch / 8;
  const int64_t all = p.images * p.positions * runs;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all; i += step) {
    const int64_t above = i / p.positions;
    const auto position = static_cast<uint32_t>(i - above * p.positions);
    const int image = static_cast<int>(above / runs);
    const int channel = static_cast<int>(above - int64_t{image} * runs) * 8;
    const auto pixels = Pixels::of_image(p, image);
    float values[4][2], scaled[4][2];
#pragma unroll
    for (int j = 0; j < 4; ++j) pixels.load_pair(values[j], position, channel + 2 * j);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scaled[j][0] = values[j][0] * scale;
      scaled[j][1] = values[j][1] * scale;
      seen.see(values[j], scaled[j]);
    }
    const int64_t place = (int64_t{image} * p.positions + position) * p.pitch + channel;
    store_run_of_planes<PlanePart::LARGE, PLANES>(p, place, scaled);
    store_run_of_planes<PlanePart::REST, PLANES>(p, place, scaled);
  }
}

// Adds what a block has seen to what all have.
__device__ __forceinline__ void tell_largest(uint32_t* of_all, uint32_t bits) {
  bits = __reduce_max_sync(0xffffffffu, bits);
  if (threadIdx.x % 32 == 0 && bits != 0) atomicMax(of_all, bits);
}

// Writes two sets; the first pass over K is returned. `exponent`: of the input's scale, the
// block's. For all threads of all blocks.
template <class Config, class Parameters>
__device__ __forceinline__ int write_both_sets(const Parameters& p, int& exponent) {
  using Tile = ConvTile<Config>;
  using Input = std::remove_const_t<std::remove_pointer_t<decltype(p.data)>>;
  using Pixels =
      PlaneTile<Input, Tile::PLANE_CHANNELS, Tile::PLANES, Config::ROW_TAPS != RowTaps::APART>;
  __shared__ int shared;
  ConvHeader* const header = p.planes.header;
  const bool has_wide_filter = filter_is_wide(p);
  LargestSeen of_filter, seen;
  if (has_wide_filter) {
    for (int channel = blockIdx.x; channel < p.planes.filter.out_channels; channel += gridDim.x) {
      write_filter<Input, Tile::PLANES, Tile::JOINED, PlanePart::LARGE, Tile::THREADS>(
          p.planes, channel, shared, of_filter);
      write_filter<Input, Tile::PLANES, Tile::JOINED, PlanePart::REST, Tile::THREADS>(
          p.planes, channel, shared, of_filter);
    }
  }
  const float scale = power_of_two(exponent);
  write_sets<Tile::PLANES, Pixels>(p.planes.pixels, scale, seen);
  if (of_filter.bits >= LargestSeen::INFINITE) seen.bits = LargestSeen::INFINITE;
  tell_largest(&header->largest, seen.bits);
  meet_blocks(header, 1);
  const uint32_t largest = load_acquire(&header->largest);
  if (largest >= LargestSeen::INFINITE) return ConvPasses::NONE;
  if (__uint_as_float(largest) * scale > 65504) {  // the sample missed it
    const int own = scale_exponent(largest);
    if (threadIdx.x == 0) exponent = own;
    write_sets<Tile::PLANES, Pixels>(p.planes.pixels, power_of_two(own), seen);
    tell_largest(&header->largest_again, seen.bits);
    meet_blocks(header, 2);
    if (load_acquire(&header->largest_again) >= LargestSeen::INFINITE) return ConvPasses::NONE;
  }
  return has_wide_filter ? ConvPasses::OF_BOTH : ConvPasses::OF_PIXELS;
}
