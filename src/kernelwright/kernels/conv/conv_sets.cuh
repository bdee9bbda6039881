#pragma once
// Sets of fp16 planes, and what the kernel that writes the first set leaves for a second one.
//
// The first set holds numbers as gemm_guard.cuh has them: what is small at the scale loses bits. A
// second set holds those bits, times 2^REST_EXPONENT, so that both together keep numbers down to
// 2^-51 of the largest. It is written, and multiplied, only where the first one does not carry the
// numbers (conv_wide.cuh).

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

// What a block of the kernel that writes the first set has met.
struct PlaneRange {
  uint32_t largest;   // magnitude, as bits
  uint32_t has_gaps;  // a filter has zeros, or small elements
};

// Work that the blocks of a launch divide (conv_wide.cuh).
struct DividedWork {
  uint32_t taken, done;  // shares
  uint32_t lost;         // what no set carries
};

// Beginning of the workspace.
struct ConvHeader : GemmHeader {
  PlaneRange ranges[MAX_GUARD_WORDS];  // by block, as the guard
  DividedWork work;                    // zeros
};

// What one thread of that kernel has met.
struct PlaneGuard {
  Guard<2> guard;
  PlaneRange range = {};

  // Of the input: see Guard.
  template <int RUNS>
  __device__ __forceinline__ void see_block(const float (&numbers)[RUNS][2], float scale,
                                            float small) {
    const float largest = guard.see_block(numbers, scale, small);
    range.largest = max(range.largest, __float_as_uint(largest));
  }

  // To what the block has met, in shared memory; for all threads of a warp.
  __device__ __forceinline__ void add_to(GuardWord& word, PlaneRange& of_block) const {
    word.add(guard.word());
    const uint32_t largest = __reduce_max_sync(0xffffffffu, range.largest);
    if (threadIdx.x % 32 == 0) atomicMax(&of_block.largest, largest);
    if (range.has_gaps) atomicOr(&of_block.has_gaps, 1u);
  }
};
