#pragma once
// Running totals of float, double and int64_t: how two are combined, along a warp and along a row.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

enum class Running { SUM, PRODUCT };

// The type of the total of some elements in the middle of a row. A product of floats may leave the
// range of a float where what comes before it brings the whole back, so it is kept in double.
template <Running OP, class T>
using Partial = std::conditional_t<OP == Running::PRODUCT && std::is_same_v<T, float>, double, T>;

template <Running OP, class T>
__device__ __forceinline__ T neutral_total() {
  return OP == Running::SUM ? T(0) : T(1);
}

// The product of two parts of a row. Without a zero or an infinity in them it is neither: what
// comes before may be one, and 0 * infinity is for elements alone to cause.
__device__ __forceinline__ double product_of_parts(double a, double b) {
  const double product = a * b;
  constexpr unsigned EXPONENT = 0x7ff00000, SMALLEST_NORMAL = 0x00100000;
  const unsigned exponent = static_cast<unsigned>(__double2hiint(product)) & EXPONENT;
  if (exponent - SMALLEST_NORMAL < EXPONENT - SMALLEST_NORMAL) return product;
  using Limits = std::numeric_limits<double>;
  constexpr double LEAST = Limits::min(), GREATEST = Limits::max();
  const double size = std::fabs(product), low = std::fabs(a), high = std::fabs(b);
  if (size < LEAST && low > 0.0 && high > 0.0) return std::copysign(LEAST, product);
  if (size > GREATEST && low <= GREATEST && high <= GREATEST) {
    return std::copysign(GREATEST, product);
  }
  return product;
}

// Integers wrap around, as in PyTorch.
template <Running OP, class T>
__device__ __forceinline__ T combine(T a, T b) {
  if constexpr (OP == Running::PRODUCT && std::is_same_v<T, double>) {
    return product_of_parts(a, b);
  } else if constexpr (std::is_integral_v<T>) {
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

// The total of everything before a part of a row. A sum of floats is kept in two numbers, so that
// thousands of chunks lose no more than one does: Knuth, "The Art of Computer Programming", volume
// 2, section 4.2.2, theorem B. A product of floats is kept in double: one that became zero stays
// so, as it does element by element, but one too large for a float may come back.
template <Running OP, class T>
struct RunningTotal {
  using Part = Partial<OP, T>;
  static constexpr bool IS_PAIR = OP == Running::SUM && std::is_floating_point_v<T>;
  static constexpr bool IS_PRODUCT = OP == Running::PRODUCT && std::is_floating_point_v<T>;
  Part high = neutral_total<OP, Part>();
  T low = T(0);

  __device__ __forceinline__ void add(Part total) {
    if constexpr (IS_PRODUCT) {
      high *= total;
      if constexpr (!std::is_same_v<T, Part>) {
        // From 2^-126 on a product needs no rounding.
        constexpr unsigned EXPONENT = 0x7ff00000, LEAST = 897u << 20;
        const unsigned exponent = static_cast<unsigned>(__double2hiint(high)) & EXPONENT;
        if (exponent < LEAST) high = static_cast<T>(high);
      }
    } else {
      const T sum = combine<OP>(high, total);
      if constexpr (IS_PAIR) {
        const T part = sum - high;
        const T lost = (high - (sum - part)) + (total - part);
        // Infinite sums have no rest.
        low += lost == lost ? lost : T(0);
      }
      high = sum;
    }
  }

  // The total after more that sums to `local`.
  __device__ __forceinline__ T with(Part local) const {
    if constexpr (IS_PRODUCT) return static_cast<T>(high * local);
    if constexpr (IS_PAIR) return high + (local + low);
    return combine<OP>(high, local);
  }
};
