#pragma once
// Sets of fp16 planes, and what the kernel that writes the first set leaves for a second one.
//
// The first set holds numbers as gemm_guard.cuh has them: what is small at the scale loses bits. A
// second set holds those bits, times 2^REST_EXPONENT, so that both together keep numbers down to
// 2^-51 of the largest. It is written, and multiplied, only where the first one does not carry the
// numbers (conv_wide.cuh).

#include "extremes.cuh"
#include "gemm_guard.cuh"

constexpr int SETS = 2;
constexpr int REST_EXPONENT = 28;
constexpr int MOST_EXPONENT = 126;  // of a scale

// What planes hold of two numbers, which are scaled already.
template <int PLANES_>
struct FirstSet {
  static constexpr int NUMBER = 0, PLANES = PLANES_;

  __device__ __forceinline__ static Halves of(float x, float y) { return split(x, y); }
};

template <int PLANES_>
struct SecondSet {
  static constexpr int NUMBER = 1, PLANES = PLANES_;
  // What is smaller loses bits here, too.
  static constexpr float LEAST = SMALL / (1 << REST_EXPONENT);

  __device__ __forceinline__ static Halves of(float x, float y) {
    const Halves first = split(x, y);
    const float2 high = __half22float2(first.high), low = __half22float2(first.low);
    return split(rest_of(x, high.x, low.x), rest_of(y, high.y, low.y));
  }

 private:
  // Exact.
  __device__ __forceinline__ static float rest_of(float number, float high, float low) {
    constexpr float LOW = 1.0f / (1 << LOW_BITS);
    if (fabsf(number) >= SMALL) return 0;
    const float rest = number - high;
    return (PLANES == 2 ? rest - low * LOW : rest) * (1 << REST_EXPONENT);
  }
};

// Eight numbers side by side, in a set; `place`: theirs in the first plane of all.
template <class Set>
__device__ __forceinline__ void store_run(__half* place, int64_t plane_elements,
                                          const float (&scaled)[8]) {
  Halves halves[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) halves[i] = Set::of(scaled[2 * i], scaled[2 * i + 1]);
#pragma unroll
  for (int plane = 0; plane < Set::PLANES; ++plane) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = reinterpret_cast<const uint32_t&>(plane == 0 ? halves[i].high : halves[i].low);
    }
    *reinterpret_cast<uint4*>(place + (Set::NUMBER * Set::PLANES + plane) * plane_elements) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// What a block of the kernel that writes the first set has met.
struct PlaneRange {
  uint32_t largest;    // magnitude, as bits
  uint32_t has_zeros;  // one of the filter's rows, beside others
};

// Work that the blocks of a launch divide (conv_wide.cuh).
struct DividedWork {
  uint32_t taken, done;  // shares
  uint32_t lost;         // whether something is that no set carries
};

// Beginning of the workspace.
struct ConvHeader : GemmHeader {
  PlaneRange ranges[MAX_GUARD_WORDS];  // by block, as the guard
  DividedWork work;                    // zeros
};

// What one thread of that kernel has met.
class PlaneGuard : public Guard<2> {
 public:
  PlaneRange range = {};

  // A block of the input, whose runs come at once: as `see` for each of them, and `end_block`.
  // `small`: SMALL without the scale.
  template <int RUNS>
  __device__ __forceinline__ void see_block(const float (&numbers)[RUNS][2], float scale,
                                            float small) {
    float largest = 0, least = INFINITY;
#pragma unroll
    for (int i = 0; i < RUNS * 2; ++i) {
      const float magnitude = fabsf(numbers[i / 2][i % 2]);
      largest = maximum(largest, magnitude);
      least = fminf(least, magnitude);
    }
    if (!(largest * scale <= 65504)) word_ |= BAD;
    range.largest = max(range.largest, __float_as_uint(largest));
    // Many blocks have zeros, and few have small elements.
    if (least < small && has_small(numbers, small)) {
#pragma unroll
      for (int i = 0; i < RUNS; ++i) {
        const float scaled[2] = {numbers[i][0] * scale, numbers[i][1] * scale};
        count_small(numbers[i], scaled);
      }
      end_block();
    }
  }

  // To what the block has met, in shared memory; for all threads of a warp.
  __device__ __forceinline__ void add_to(GuardWord& block, PlaneRange& of_block) const {
    block.add(word());
    const uint32_t largest = __reduce_max_sync(0xffffffffu, range.largest);
    if (threadIdx.x % 32 == 0) atomicMax(&of_block.largest, largest);
    if (range.has_zeros) atomicOr(&of_block.has_zeros, 1u);
  }

 private:
  // Whether one of them is smaller than `small` and not zero: zero becomes the largest integer.
  template <int RUNS>
  __device__ __forceinline__ static bool has_small(const float (&numbers)[RUNS][2], float small) {
    uint32_t least = ~0u;
#pragma unroll
    for (int i = 0; i < RUNS * 2; ++i) {
      least = min(least, 2 * __float_as_uint(numbers[i / 2][i % 2]) - 1);
    }
    return least < 2 * __float_as_uint(small) - 1;
  }
};
