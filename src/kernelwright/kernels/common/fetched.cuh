#pragma once
// Elements that are asked for long before they are needed, in whole registers: as numbers of 16
// bits they would be taken apart where they arrive, and a warp would wait for them there.

#include <cstdint>

#include "vector.cuh"

// WIDTH neighbours in memory, a power of two. Nobody writes them while the kernel runs.
template <class T, int WIDTH>
struct Fetched {
  static constexpr int BYTES = WIDTH * sizeof(T), WORDS = (BYTES + 3) / 4;
  Vector<uint32_t, WORDS> words;

  // `address` is a multiple of the elements' bytes, or of 16.
  __device__ __forceinline__ static Fetched of(const T* address) {
    using Word = std::conditional_t<BYTES == 1, unsigned char,
                                    std::conditional_t<BYTES == 2, unsigned short, uint32_t>>;
    const auto* const from = reinterpret_cast<const Word*>(address);
    if constexpr (BYTES < 4) {
      return {{{load_constant(from)}}};
    } else {
      return {load_constant_vector<WORDS>(from)};
    }
  }
  // WIDTH times the element at `address`.
  __device__ __forceinline__ static Fetched repeated(const T* address) {
    constexpr uint32_t COPIES = sizeof(T) == 1 ? 0x01010101u : sizeof(T) == 2 ? 0x00010001u : 1;
    const auto one = Fetched<T, 1>::of(address);
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < WORDS; ++i)
      fetched.words.element[i] = one.words.element[i % one.WORDS] * COPIES;
    return fetched;
  }

  __device__ __forceinline__ T at(int i) const {
    if constexpr (sizeof(T) >= 4) {
      constexpr int OF_ELEMENT = sizeof(T) / 4;
      return *reinterpret_cast<const T*>(&words.element[i * OF_ELEMENT]);
    } else {
      constexpr int IN_WORD = 4 / sizeof(T);
      using Bits = std::conditional_t<sizeof(T) == 2, unsigned short, unsigned char>;
      const auto bits =
          static_cast<Bits>(words.element[i / IN_WORD] >> i % IN_WORD * (32 / IN_WORD));
      return reinterpret_cast<const T&>(bits);
    }
  }
  // As they were in memory, or COUNT times the one that there is.
  template <int COUNT>
  __device__ __forceinline__ Vector<T, COUNT> all() const {
    Vector<T, COUNT> values;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) values.element[i] = at(WIDTH == 1 ? 0 : i);
    return values;
  }
};
