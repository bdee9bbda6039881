#pragma once
// Neighbouring channels of one place, as a thread has them in registers.

#include <cstring>

#include "convert.cuh"
#include "vector.cuh"

// Elements as they are loaded. Short ones stay two in a register: taken apart, each would be chosen
// by itself where it may be outside.
template <class T, int VECTOR>
struct ChannelAccess {
  static constexpr bool IS_PAIRED = sizeof(T) == 2 && VECTOR % 2 == 0;
  using Word = std::conditional_t<IS_PAIRED, unsigned, T>;
  static constexpr int WORDS = IS_PAIRED ? VECTOR / 2 : VECTOR;

  Vector<Word, WORDS> words;

  __device__ __forceinline__ void load(const char* address) {
    words = load_constant_vector<WORDS>(reinterpret_cast<const Word*>(address));
  }
  // One element for all channels.
  __device__ __forceinline__ void repeat(const char* address) {
    Vector<T, VECTOR> all;
    const T value = load_constant(reinterpret_cast<const T*>(address));
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) all.element[c] = value;
    memcpy(&words, &all, sizeof(all));
  }
  __device__ __forceinline__ void clear() { words = {}; }

  // Element i, computed with. One of two numbers in a register is where float has it but for a
  // shift or a mask, if they are bfloat16.
  template <bool IS_UPPER_HALF>
  __device__ __forceinline__ compute_t<T> value(int i) const {
    if constexpr (IS_PAIRED && IS_UPPER_HALF) {
      const unsigned word = words.element[i / 2];
      return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
    } else if constexpr (IS_PAIRED) {
      T pair[2];
      memcpy(pair, &words.element[i / 2], sizeof(pair));
      return widen(pair[i % 2]);
    } else {
      return widen(words.element[i]);
    }
  }
};
