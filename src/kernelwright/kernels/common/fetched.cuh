#pragma once
// Elements that are asked for long before they are needed, in whole registers: as numbers of 16
// bits they would be taken apart where they arrive, and a warp would wait for them there.

#include <cstdint>

// WIDTH neighbours in memory. Nobody writes them while the kernel runs.
template <class T, int WIDTH>
struct Fetched {
  static constexpr int BYTES = WIDTH * sizeof(T), WORDS = (BYTES + 3) / 4;
  uint32_t words[WORDS];

  // `address` is a multiple of the elements' bytes, or of 16.
  __device__ __forceinline__ static Fetched of(const T* address) {
    Fetched fetched;
    if constexpr (BYTES == 1) {
      fetched.words[0] = __ldg(reinterpret_cast<const unsigned char*>(address));
    } else if constexpr (BYTES == 2) {
      fetched.words[0] = __ldg(reinterpret_cast<const unsigned short*>(address));
    } else if constexpr (BYTES == 4) {
      fetched.words[0] = __ldg(reinterpret_cast<const unsigned*>(address));
    } else if constexpr (BYTES == 8) {
      const uint2 both = __ldg(reinterpret_cast<const uint2*>(address));
      fetched.words[0] = both.x;
      fetched.words[1] = both.y;
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; i += 4) {
        const uint4 four = __ldg(reinterpret_cast<const uint4*>(address) + i / 4);
        fetched.words[i] = four.x;
        fetched.words[i + 1] = four.y;
        fetched.words[i + 2] = four.z;
        fetched.words[i + 3] = four.w;
      }
    }
    return fetched;
  }

  // WIDTH times the element at `address`.
  __device__ __forceinline__ static Fetched repeated(const T* address) {
    using One = Fetched<T, 1>;
    constexpr uint32_t COPIES = sizeof(T) == 1 ? 0x01010101u : sizeof(T) == 2 ? 0x00010001u : 1;
    const One one = One::of(address);
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < WORDS; ++i) fetched.words[i] = one.words[i % One::WORDS] * COPIES;
    return fetched;
  }

  __device__ __forceinline__ T at(int i) const {
    if constexpr (sizeof(T) == 8) {
      const uint64_t bits = uint64_t{words[2 * i + 1]} << 32 | words[2 * i];
      return reinterpret_cast<const T&>(bits);
    } else if constexpr (sizeof(T) == 4) {
      return reinterpret_cast<const T&>(words[i]);
    } else if constexpr (sizeof(T) == 2) {
      const auto bits = static_cast<unsigned short>(words[i / 2] >> i % 2 * 16);
      return reinterpret_cast<const T&>(bits);
    } else {
      const auto bits = static_cast<unsigned char>(words[i / 4] >> i % 4 * 8);
      return reinterpret_cast<const T&>(bits);
    }
  }
};
