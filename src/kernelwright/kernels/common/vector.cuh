#pragma once
// Several neighbouring elements moved at once: one access of up to 16 bytes, the widest there is.

#include <type_traits>

constexpr int MAX_ACCESS_BYTES = 16;

constexpr int access_bytes(int bytes) {
  return bytes < MAX_ACCESS_BYTES ? bytes : MAX_ACCESS_BYTES;
}

// The alignment is what makes the compiler move it in 16-byte accesses.
template <class T, int WIDTH>
struct alignas(access_bytes(WIDTH * sizeof(T))) Vector {
  static_assert(WIDTH > 0 && (WIDTH & (WIDTH - 1)) == 0, "a vector has a power of two of elements");
  T element[WIDTH];
};

// `address` must be a multiple of the vector's alignment.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_vector(const T* address) {
  return *reinterpret_cast<const Vector<T, WIDTH>*>(address);
}

// What tells the second-level cache to let go of the data of an access first.
__device__ __forceinline__ uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  return policy;
}

// The same of data that nobody reads again: it leaves the caches before what else is there. Single
// words are loaded as ever: with a policy for each, ptxas puts all loads of a loop before the first
// addition.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_vector_once(const T* address) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  constexpr bool HAS_POLICIES = true;
#else
  constexpr bool HAS_POLICIES = false;
#endif
  constexpr int WORDS = WIDTH * sizeof(T) / 4;
  if constexpr (WORDS < 2 || !HAS_POLICIES) {
    return load_vector<WIDTH>(address);
  } else {
    struct alignas(alignof(Vector<T, WIDTH>)) Words {
      unsigned word[WORDS];
    } words;
    const auto* const from = reinterpret_cast<const unsigned*>(address);
    unsigned* const to = words.word;
    if constexpr (WORDS == 2) {
      asm volatile("ld.global.L1::evict_first.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;"
                   : "=r"(to[0]), "=r"(to[1])
                   : "l"(from), "l"(evict_first()));
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; i += 4) {
        asm volatile("ld.global.L1::evict_first.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3])
                     : "l"(from + i), "l"(evict_first()));
      }
    }
    return reinterpret_cast<const Vector<T, WIDTH>&>(words);
  }
}

template <class T, int WIDTH>
__device__ __forceinline__ void store_vector(T* address, const Vector<T, WIDTH>& value) {
  *reinterpret_cast<Vector<T, WIDTH>*>(address) = value;
}

// The vector at `address`, or, if it is not `is_run`, WIDTH times the element there. Short elements
// stay two in a register wherever they come from: taken apart, each would be chosen by itself.
template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_run_or_repeat(const T* address, bool is_run) {
  if constexpr (sizeof(T) == 2 && WIDTH % 2 == 0) {
    struct alignas(alignof(Vector<T, WIDTH>)) Words {
      unsigned word[WIDTH / 2];
    } words;
    if (is_run) {
      words = *reinterpret_cast<const Words*>(address);
    } else {
      const unsigned both = *reinterpret_cast<const unsigned short*>(address) * 0x10001u;
#pragma unroll
      for (int i = 0; i < WIDTH / 2; ++i) words.word[i] = both;
    }
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) asm volatile("" : "+r"(words.word[i]));
    return reinterpret_cast<const Vector<T, WIDTH>&>(words);
  } else {
    if (is_run) return load_vector<WIDTH>(address);
    Vector<T, WIDTH> repeated;
    const T value = *address;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) repeated.element[i] = value;
    return repeated;
  }
}

// Of data that nobody writes while the kernel runs: such loads may move before stores.
template <class T>
__device__ __forceinline__ T load_constant(const T* address) {
  static_assert(sizeof(T) <= 8, "see load_constant_vector");
  if constexpr (sizeof(T) == 8) {
    const long long bits = __ldg(reinterpret_cast<const long long*>(address));
    return reinterpret_cast<const T&>(bits);
  } else if constexpr (sizeof(T) == 4) {
    const int bits = __ldg(reinterpret_cast<const int*>(address));
    return reinterpret_cast<const T&>(bits);
  } else if constexpr (sizeof(T) == 2) {
    const short bits = __ldg(reinterpret_cast<const short*>(address));
    return reinterpret_cast<const T&>(bits);
  } else {
    const signed char bits = __ldg(reinterpret_cast<const signed char*>(address));
    return reinterpret_cast<const T&>(bits);
  }
}

template <int WIDTH, class T>
__device__ __forceinline__ Vector<T, WIDTH> load_constant_vector(const T* address) {
  constexpr int BYTES = WIDTH * sizeof(T);
  if constexpr (BYTES >= 16) {
    struct Words {
      int4 part[BYTES / 16];
    } words;
#pragma unroll
    for (int i = 0; i < BYTES / 16; ++i) {
      words.part[i] = __ldg(reinterpret_cast<const int4*>(address) + i);
    }
    return reinterpret_cast<const Vector<T, WIDTH>&>(words);
  } else if constexpr (BYTES == 1) {
    return {{load_constant(address)}};
  } else {
    using Word =
        std::conditional_t<BYTES == 8, long long, std::conditional_t<BYTES == 4, int, short>>;
    const Word word = load_constant(reinterpret_cast<const Word*>(address));
    return reinterpret_cast<const Vector<T, WIDTH>&>(word);
  }
}

// Brings the line of this address, which must be readable, to the second-level cache.
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// The lines of `count` rows of `length` elements, as thread number `thread` of `threads` asks for.
// All multiprocessors share that cache, so it may be before what others write there is complete.
template <class T>
__device__ __forceinline__ void prefetch_lines(const T* first, int64_t stride, int count,
                                               int64_t length, int thread, int threads) {
  constexpr int LINE = 128 / sizeof(T);
  const int lines = static_cast<int>((length + LINE - 1) / LINE);
#pragma unroll 1
  for (int i = thread; i < count * lines; i += threads) {
    prefetch(first + i / lines * stride + i % lines * LINE);
  }
}
