#pragma once
// fp32 numbers as pairs of fp16 numbers, and the check that the pairs carry them.
//
//   x = (high + low / 2^11) / scale      high = fp16(x * scale), low = fp16((x * scale - high)
//   2^11)
//
// The scale is a power of two, so only the two roundings lose anything: at most 2^-23 |x| where
// |x * scale| >= 2^-13, and 2^-36 / scale below. It is set for one whole factor from a sample of
// its elements, and each kernel that makes pairs reports what the scale does not fit: see Guard.

#include <cuda_fp16.h>

#include <cstdint>

#include "gemm_rest.cuh"

// The largest sampled |x| is scaled into [2^SAMPLED_EXPONENT, 2^(SAMPLED_EXPONENT + 1)): elements
// 2^5 times larger still fit fp16, and elements down to 2^-23 of it keep their accuracy.
constexpr int SAMPLED_EXPONENT = 10;
constexpr int LOW_BITS = 11;
constexpr int SAMPLES = 512;
// Scaled elements below are small: their pairs have fewer good bits than fp32.
constexpr float SMALL = 1.0f / (1 << 13);
// A kernel that makes pairs leaves one word per block: the number of small elements it met, or BAD
// when there was one that no pair carries (infinite, NaN, too large) or when small ones meet in one
// place, as in a row of small numbers. Scattered ones do no harm: a product of many numbers rounds
// by more than their pairs lose. Of normal numbers one in 2^22 is small, of silu(x) * y of two of
// them one in 2^17.
constexpr uint32_t BAD = 0x80000000u;
constexpr int64_t SMALL_ELEMENTS = 32;  // always allowed
constexpr int SMALL_SHARE_BITS = 15;    // and one in 2^15

// 2^exponent; the exponent is that of a normal number.
__device__ __forceinline__ float power_of_two(int exponent) {
  return __int_as_float((exponent + 127) << 23);
}

// The exponent of the scale for numbers of which `bits`, as an integer, is the largest |x|. The
// scale and its inverse are normal numbers.
__device__ __forceinline__ int scale_exponent(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const int wanted = SAMPLED_EXPONENT - exponent;
  if (bits == 0) return 0;
  return wanted > 126 ? 126 : wanted;
}

// Undoes both scales: 2^-(lhs + rhs), in two steps so that neither leaves the range of fp32 where
// the result does not.
struct Unscale {
  float first, second;

  // `exponent`: the sum of both scales'.
  __device__ __forceinline__ static Unscale of(int exponent) {
    const int half = -exponent / 2;
    return {power_of_two(half), power_of_two(-exponent - half)};
  }
  __device__ __forceinline__ float operator()(float sum) const { return sum * first * second; }
};

// Pairs of two neighbouring numbers, which are scaled already.
struct Halves {
  __half2 high, low;
};

__device__ __forceinline__ Halves split(float scaled_x, float scaled_y) {
  constexpr float LOW = 1 << LOW_BITS;
  Halves halves;
  halves.high = __floats2half2_rn(scaled_x, scaled_y);
  const float2 high = __half22float2(halves.high);
  halves.low = __floats2half2_rn((scaled_x - high.x) * LOW, (scaled_y - high.y) * LOW);
  return halves;
}

// What one thread has seen: blocks of several runs of RUN neighbours each, one below the other.
// MEETING small ones in a run or below each other, 2 or 3, are too many.
template <int RUN, int MEETING = 2>
class Guard {
 public:
  // The numbers of one run, as they are and scaled. NaN compares as not small and not fitting.
  __device__ __forceinline__ void see(const float (&numbers)[RUN], const float (&scaled)[RUN]) {
    float smallest = 65504;
    bool fits = true;
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      const float magnitude = fabsf(scaled[i]);
      fits = fits && magnitude <= 65504;
      smallest = fminf(smallest, magnitude);
    }
    if (!fits) word_ |= BAD;
    // Zeros come here too, and need no more than this.
    if (smallest < SMALL) count_small(numbers, scaled);
  }

  // The next run is the first of another block.
  __device__ __forceinline__ void end_block() { once_ = twice_ = 0; }

  __device__ __forceinline__ uint32_t word() const { return (word_ & BAD) == 0 ? word_ : BAD; }

 protected:
  // What is not zero may be when it is scaled.
  __device__ __forceinline__ void count_small(const float (&numbers)[RUN],
                                              const float (&scaled)[RUN]) {
    uint32_t columns = 0;
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      if (numbers[i] != 0 && fabsf(scaled[i]) < SMALL) columns |= 1u << i;
    }
    word_ += __popc(columns);
    const uint32_t met = columns & (MEETING == 2 ? once_ : twice_);
    if (met != 0 || __popc(columns) >= MEETING) word_ |= BAD;
    twice_ |= once_ & columns;
    once_ |= columns;
  }

  uint32_t word_ = 0;  // the count, and BAD as soon as it is so

 private:
  uint32_t once_ = 0, twice_ = 0;  // columns of the block with a small one, and with two
};

// The words of a block's threads as one, in shared memory.
struct GuardWord {
  uint32_t small, bad;

  __device__ __forceinline__ void clear() { small = bad = 0; }
  __device__ __forceinline__ void add(uint32_t word) {
    if (word & BAD) {
      atomicOr(&bad, BAD);
    } else if (word != 0) {
      atomicAdd(&small, word);
    }
  }
  __device__ __forceinline__ uint32_t word() const { return bad | (small & ~BAD); }
};

// Whether the pairs carried the factors; for all threads of the block.
__device__ __forceinline__ bool pairs_were_exact(const GemmRest& rest) {
  constexpr int UNDER_WAY = 4;  // loads of a thread: each by itself would take as long as all
  __shared__ unsigned long long small;
  if (threadIdx.x == 0) small = 0;
  uint32_t bad = 0;
  unsigned long long own = 0;
  const int threads = static_cast<int>(blockDim.x);
  for (int first = threadIdx.x; first < rest.guard_words; first += UNDER_WAY * threads) {
    uint32_t words[UNDER_WAY];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) {
      const int at = first + i * threads;
      words[i] = at < rest.guard_words ? rest.header->guard[at] : 0;
    }
#pragma unroll
    for (const uint32_t word : words) {
      bad |= word & BAD;
      own += word & ~BAD;
    }
  }
  bad = __syncthreads_or(static_cast<int>(bad));
  if (own != 0) atomicAdd(&small, own);
  __syncthreads();
  return bad == 0 && small <= static_cast<unsigned long long>(rest.small_elements);
}
