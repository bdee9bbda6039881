#pragma once
// Neighbouring lanes write neighbouring vectors of a row that may begin anywhere.

#include <cstdint>
#include <cstring>

#include "vector.cuh"

// The value that the lane below has.
template <class T>
__device__ __forceinline__ T from_lane_below(T value) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
  Word word = 0;
  memcpy(&word, &value, sizeof(T));
  word = __shfl_up_sync(0xffffffff, word, 1);
  memcpy(&value, &word, sizeof(T));
  return value;
}

// Writes the first `count` elements of `own` to `address`, those of lanes in the middle of a row in
// whole aligned vectors, for which each lane takes some elements of the lane below. All lanes of a
// warp call it, with a count of 0 where there is nothing to write. `has_left` and `has_right`: the
// lane below or above, if there is one, writes the vector before or after in the same row.
template <class T, int N>
__device__ __forceinline__ void store_run(T* address, const Vector<T, N>& own, int64_t count,
                                          bool has_left, bool has_right) {
  const int ahead = static_cast<int>(reinterpret_cast<uintptr_t>(address) / sizeof(T) % N);
  const bool is_plain = count == 0 || (ahead == 0 && count >= N);
  if (__all_sync(0xffffffff, is_plain)) {
    if (count > 0) store_vector(address, own);
    return;
  }
  const int lane = threadIdx.x % 32;
  T both[2 * N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    // The first is never taken: no lane is N elements ahead.
    both[i] = i == 0 ? T() : from_lane_below(own.element[i]);
    both[N + i] = own.element[i];
  }
  // Moves everything up by `ahead` places.
#pragma unroll
  for (int bit = 1; bit < N; bit *= 2) {
    if (ahead & bit) {
#pragma unroll
      for (int i = 2 * N - 1; i >= bit; --i) both[i] = both[i - bit];
    }
  }
  const bool takes_left = has_left && lane > 0 && count > 0;
  if ((takes_left || ahead == 0) && count >= N - ahead) {
    Vector<T, N> whole;
#pragma unroll
    for (int i = 0; i < N; ++i) whole.element[i] = both[N + i];
    store_vector(address - ahead, whole);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const bool is_there = i < ahead ? takes_left : i - ahead < count;
      if (is_there) address[i - ahead] = both[N + i];
    }
  }
  // The rest is the lane above's.
  if (has_right && lane < 31) return;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (i >= N - ahead && i < count) address[i] = own.element[i];
  }
}
