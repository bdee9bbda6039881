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

// Writes what a lane has to write of a row whose vectors are AHEAD elements past aligned addresses:
// the vector that begins with the last AHEAD elements of the lane below, if both have all of it.
template <int AHEAD, class T, int N>
__device__ __forceinline__ void store_ahead(T* address, const Vector<T, N>& own,
                                            const Vector<T, N>& below, int remaining,
                                            bool takes_below, bool is_last) {
  const bool is_whole = remaining >= N - AHEAD && (AHEAD == 0 || takes_below);
  if (is_whole) {
    Vector<T, N> whole;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      whole.element[i] = i < AHEAD ? below.element[N - AHEAD + i] : own.element[i - AHEAD];
    }
    store_vector(address - AHEAD, whole);
  }
  const bool keeps_rest = is_last || remaining - N < N - AHEAD;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const bool is_own = i < N - AHEAD ? !is_whole : keeps_rest;
    if (is_own && i < remaining) address[i] = own.element[i];
  }
}

template <int AHEAD, class T, int N>
__device__ __forceinline__ void store_some_ahead(int ahead, T* address, const Vector<T, N>& own,
                                                 const Vector<T, N>& below, int remaining,
                                                 bool takes_below, bool is_last) {
  if (ahead == AHEAD) {
    store_ahead<AHEAD>(address, own, below, remaining, takes_below, is_last);
  } else if constexpr (AHEAD + 1 < N) {
    store_some_ahead<AHEAD + 1>(ahead, address, own, below, remaining, takes_below, is_last);
  }
}

// Writes `own` to `address`, from where the row has `remaining` elements (0: there is nothing to
// write), in whole aligned vectors where neighbouring lanes have them. All lanes of a warp call it.
// `has_left`: the lane below, if there is one, writes the vector before in the same row; the lane
// above does the one after, as long as the row goes on.
template <class T, int N>
__device__ __forceinline__ void store_run(T* address, const Vector<T, N>& own, int remaining,
                                          bool has_left) {
  const int ahead = static_cast<int>(reinterpret_cast<uintptr_t>(address) / sizeof(T) % N);
  if (__all_sync(0xffffffff, remaining == 0 || (ahead == 0 && remaining >= N))) {
    if (remaining > 0) store_vector(address, own);
    return;
  }
  Vector<T, N> below;
  // The first is never taken: no lane is N elements ahead.
#pragma unroll
  for (int i = 1; i < N; ++i) below.element[i] = from_lane_below(own.element[i]);
  const int lane = threadIdx.x % 32;
  store_some_ahead<0>(ahead, address, own, below, remaining, has_left && lane > 0, lane == 31);
}
