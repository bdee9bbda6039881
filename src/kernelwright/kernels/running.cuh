#pragma once
// Running totals of float, double and int64_t: how two are combined, along a warp and along a row.

#include <cstdint>
#include <type_traits>

enum class Running { SUM, PRODUCT };

template <Running OP, class T>
__device__ __forceinline__ T neutral_total() {
  return OP == Running::SUM ? T(0) : T(1);
}

// Integers wrap around, as in PyTorch.
template <Running OP, class T>
__device__ __forceinline__ T combine(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;
    const Bits x = static_cast<Bits>(a), y = static_cast<Bits>(b);
    return static_cast<T>(OP == Running::SUM ? x + y : x * y);
  } else {
    return OP == Running::SUM ? a + b : a * b;
  }
}

// The total of this lane and of those below it.
template <Running OP, class T>
__device__ __forceinline__ T warp_running_total(T value, int lane) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T below = __shfl_up_sync(0xffffffff, value, distance);
    if (lane >= distance) value = combine<OP>(below, value);
  }
  return value;
}

// The total of all lanes, in all of them.
template <Running OP, class T>
__device__ __forceinline__ T warp_total(T value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value = combine<OP>(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

// The total of everything before a chunk of a row. A sum of floats is kept in two numbers, so that
// thousands of chunks lose no more than one does: Knuth, "The Art of Computer Programming", volume
// 2, section 4.2.2, theorem B.
template <Running OP, class T>
struct RunningTotal {
  static constexpr bool IS_PAIR = OP == Running::SUM && std::is_floating_point_v<T>;
  T high = neutral_total<OP, T>();
  T low = T(0);

  __device__ __forceinline__ void add(T total) {
    const T sum = combine<OP>(high, total);
    if constexpr (IS_PAIR) {
      const T part = sum - high;
      const T lost = (high - (sum - part)) + (total - part);
      // Infinite sums have no rest.
      low += lost == lost ? lost : T(0);
    }
    high = sum;
  }

  // The total after more that sums to `local`.
  __device__ __forceinline__ T with(T local) const {
    if constexpr (IS_PAIR) return high + (local + low);
    return combine<OP>(high, local);
  }
};
