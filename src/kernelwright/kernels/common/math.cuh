#pragma once
// PyTorch's functions of one element whose CUDA spelling is more than one token, for float and
// double (16-bit types arrive here as float). Formulas: PyTorch's documentation of each; where a
// function has a cancelling and a safe form, the safe one, so that results are at least as
// accurate.

#include <cmath>
#include <type_traits>

#include "extremes.cuh"

// What the usual conversions make of two operands, so that literals need no suffix.
template <class A, class B>
using common_t = std::common_type_t<A, B>;

// A parameter that takes its type from the others.
template <class T>
struct SameAs {
  using type = T;
};
template <class T>
using same_t = typename SameAs<T>::type;

// --- Comparisons: NaN goes through all but sign, where PyTorch makes it 0 --------------------

template <class A, class B>
__device__ __forceinline__ common_t<A, B> maximum(A a, B b) {
  const common_t<A, B> x = a, y = b;
  return x > y || x != x ? x : y;
}

template <class A, class B>
__device__ __forceinline__ common_t<A, B> minimum(A a, B b) {
  const common_t<A, B> x = a, y = b;
  return x < y || x != x ? x : y;
}

// Where low > high every result is high.
template <class T, class Low, class High>
__device__ __forceinline__ auto clamp(T x, Low low, High high) {
  return minimum(maximum(x, low), high);
}

template <class T>
__device__ __forceinline__ T relu(T x) {
  return x < T(0) ? T(0) : x;
}

template <class T>
__device__ __forceinline__ T sign(T x) {
  return static_cast<T>((T(0) < x) - (x < T(0)));
}

// Of integers; floats have fabs. The least integer is its own, as in PyTorch.
template <class T>
__device__ __forceinline__ T absolute(T x) {
  return x < T(0) ? static_cast<T>(T(0) - x) : x;
}

// --- Division and powers -------------------------------------------------------------------------

// Remainder with the sign of the divisor: Python's %. An integer divisor of 0 is undefined.
template <class A, class B>
__device__ __forceinline__ common_t<A, B> floor_remainder(A a, B b) {
  using T = common_t<A, B>;
  const T x = a, y = b;
  T rest;
  if constexpr (std::is_floating_point_v<T>) {
    rest = std::fmod(x, y);
  } else {
    rest = x % y;
  }
  return rest != T(0) && (rest < T(0)) != (y < T(0)) ? rest + y : rest;
}

// Quotient rounded toward minus infinity: Python's //. For floats it is not floor(a / b), because
// a / b may itself round up to a whole number.
template <class A, class B>
__device__ __forceinline__ common_t<A, B> floor_divide(A a, B b) {
  using T = common_t<A, B>;
  const T x = a, y = b;
  if constexpr (std::is_floating_point_v<T>) {
    if (y == T(0)) return x / y;
    const T rest = std::fmod(x, y);
    T quotient = (x - rest) / y;
    if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return std::copysign(T(0), x / y);
    const T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  } else {
    const T quotient = x / y;
    return x % y != T(0) && (x < T(0)) != (y < T(0)) ? quotient - T(1) : quotient;
  }
}

// x / divisor from r, which is 1 / divisor rounded: in three instructions the quotient that
// division rounds to. Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990; Brisebarre, Muller and Raina, "Accelerating correctly rounded floating-point
// division when the divisor is known in advance", 2004.
//
// Let x and the divisor d be in [1, 2), and u the last place of the quotient. The first quotient q
// is off by e: at most u / 2 for its own rounding and x 2^-25 for that of r, which is at most u
// where x >= d, and less than (x + 1) u / 2 otherwise. If |e| <= u, the remainder has 24 bits: it
// is exact, and the sum is off by |e| |1 - d r| <= |e| d 2^-25. It matters only near the middle
// between two neighbours, where |e| is u / 2 and what is off less than u d 2^-26. But the quotient
// is u 2^-24 / d or more from there (x - d middle is a multiple of u 2^-24, and not 0), and
// d < 2. If |e| > u, the sum is off by less than u 2^-22, the middle is 3 u / 2 from q and at least
// u (1 - x / 2) from the quotient: that decides it for all x but the four largest ones, which
// test_host.py tries.
//
// All of that where no exponent is out of range: the remainder needs |x| >= 2^-101.
__device__ __forceinline__ float refined_quotient(float x, float divisor, float reciprocal) {
  const float quotient = x * reciprocal;
  return fmaf(fmaf(-quotient, divisor, x), reciprocal, quotient);
}

// x / divisor by what is the same for many x: the compiler takes all but seven instructions out of
// their loop, and leaves no branch in it. The quotient that division rounds to, where it and
// |x| 2^-25 are not below 2^-126; otherwise within 3 / 2 of its last place, which for what is
// exactly or nearly too large may make an infinity of it.
__device__ __forceinline__ float divide_by_row(float x, float divisor) {
  const float size = fabsf(divisor);
  const float scale = size < 0x1p-124f ? 0x1p+24f : size > 0x1p+124f ? 0x1p-24f : 1.0f;
  const float scaled = divisor * scale;
  const float reciprocal = 1.0f / scaled;
  // An infinite divisor leaves no remainder of 0.
  const float multiplied = size == INFINITY ? 0.0f : scaled;
  const float quotient = x * reciprocal;
  const float refined = fmaf(fmaf(-quotient, multiplied, x), reciprocal, quotient);
  // Refined, 0 would lose its sign, and infinity become NaN.
  const bool is_refined = (fabsf(quotient) > 0.0f) & (fabsf(quotient) < INFINITY);
  return (is_refined ? refined : quotient) * scale;
}

// The same of a number from 0 to 1 that is part of a sum from 1 to 2^60, or with NaN: without a
// branch. Quotients below 2^-101 are within half a last place and 2^-150 of the exact ones.
__device__ __forceinline__ float share_of_sum(float x, float sum) {
  return refined_quotient(x, sum, 1.0f / sum);
}

__device__ __forceinline__ double divide_by_row(double x, double divisor) { return x / divisor; }
__device__ __forceinline__ double share_of_sum(double x, double sum) { return x / sum; }

// Of floats: the exponents that PyTorch does not leave to pow; a literal exponent picks its branch
// when the kernel is compiled. Of integers: by squaring; a negative exponent gives 0, but for
// bases 1 and -1.
template <class A, class B>
__device__ __forceinline__ common_t<A, B> power(A base, B exponent) {
  using T = common_t<A, B>;
  T x = base, e = exponent;
  if constexpr (std::is_floating_point_v<T>) {
    if (e == T(2)) return x * x;
    if (e == T(3)) return x * x * x;
    if (e == T(0.5)) return std::sqrt(x);
    if (e == T(-0.5)) return T(1) / std::sqrt(x);
    if (e == T(-1)) return T(1) / x;
    if (e == T(-2)) return T(1) / (x * x);
    return std::pow(x, e);
  } else {
    if (e < T(0)) {
      if (x == T(1)) return T(1);
      if (x == T(-1)) return e % T(2) == T(0) ? T(1) : T(-1);
      return T(0);
    }
    T result = 1;
    for (; e > T(0); e /= T(2)) {
      if (e % T(2) != T(0)) result *= x;
      x *= x;
    }
    return result;
  }
}

// --- Logarithms and the gamma function -----------------------------------------------------------

// x log(y), and 0 where x is 0, whatever y is but NaN.
template <class A, class B>
__device__ __forceinline__ common_t<A, B> xlogy(A a, B b) {
  const common_t<A, B> x = a, y = b;
  // No branch: what is done for neighbours overlaps.
  const common_t<A, B> product = x * std::log(y);
  return (x == 0) & (y == y) ? common_t<A, B>(0) : product;
}

// log(1 + x) of numbers from 0 to 1 and NaN, within two last places: x - x^2 / 2 + ..., the rest by
// the polynomial whose relative error is the least. std::log1p takes twice as long, and branches.
__device__ __forceinline__ float log1p_of_part(float x) {
  float rest = -0.00331846974f;
  rest = fmaf(rest, x, 0.020204572f);
  rest = fmaf(rest, x, -0.0576644205f);
  rest = fmaf(rest, x, 0.106805533f);
  rest = fmaf(rest, x, -0.153553948f);
  rest = fmaf(rest, x, 0.196953997f);
  rest = fmaf(rest, x, -0.249585867f);
  rest = fmaf(rest, x, 0.33330512f);
  rest = fmaf(rest, x, -0.499999315f);
  return fmaf(x * x, rest, x);
}
__device__ __forceinline__ double log1p_of_part(double x) { return std::log1p(x); }

// log(exp(x) + exp(y)) from the larger of the two, so that no exponential overflows.
template <class A, class B>
__device__ __forceinline__ common_t<A, B> logaddexp(A a, B b) {
  const common_t<A, B> x = a, y = b;
  if (x == y && std::isinf(x)) return x;
  return maximum(x, y) + log1p_of_part(std::exp(-std::abs(x - y)));
}

// log2(2^x + 2^y).
template <class A, class B>
__device__ __forceinline__ common_t<A, B> logaddexp2(A a, B b) {
  using T = common_t<A, B>;
  constexpr T ONE_OVER_LOG_2 = T(1.44269504088896340736);
  const T x = a, y = b;
  if (x == y && std::isinf(x)) return x;
  return maximum(x, y) + log1p_of_part(std::exp2(-std::abs(x - y))) * ONE_OVER_LOG_2;
}

// The derivative of lgamma: by reflection below 0, by its recurrence up to 10 and by its asymptotic
// series from there, as in cephes' psi; in double, since reflection cancels. -inf at 0, +inf at -0,
// NaN at negative whole numbers.
template <class T>
__device__ __forceinline__ T digamma(T value) {
  constexpr double PI = 3.14159265358979323846;
  double x = value, shift = 0;
  if (x == 0) return std::copysign(static_cast<T>(INFINITY), -value);
  if (x < 0) {
    if (x == std::trunc(x)) return static_cast<T>(NAN);
    shift = -PI / std::tan(PI * (x - std::trunc(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) shift -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z * (1.0 / 12 -
           z * (1.0 / 120 -
                z * (1.0 / 252 -
                     z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
  return static_cast<T>(shift + std::log(x) - 0.5 / x - series);
}

// --- Shifts: by a negative count or by all bits, everything goes ---------------------------------

template <class T>
__device__ __forceinline__ T shift_left(same_t<T> x, same_t<T> count) {
  if (count < T(0) || count >= T(8 * sizeof(T))) return T(0);
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << count);
}

// Of a signed number the sign stays.
template <class T>
__device__ __forceinline__ T shift_right(same_t<T> x, same_t<T> count) {
  constexpr int MOST = 8 * sizeof(T) - std::is_signed_v<T>;
  static_assert(MOST < 64, "a number of 64 bits without a sign cannot be shifted by all of them");
  return static_cast<T>(count < T(0) || count >= T(MOST) ? x >> MOST : x >> count);
}

// --- Activations ---------------------------------------------------------------------------------

// 1 / x of a number from 1 on, nearly: within 2^-22, 0 from 2^126 on.
__device__ __forceinline__ float first_of_one_over(float x) {
#if defined(__CUDA_ARCH__)
  float first;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(first) : "f"(x));
  return first;
#else
  return 1.0f / x;
#endif
}
__device__ __forceinline__ double first_of_one_over(double x) { return 1.0 / x; }

// 1 / x of a number from 1 to 2^60, or NaN, within one last place and without a branch: an
// approximation, and a step of Newton's.
__device__ __forceinline__ float one_over_sum(float x) {
  const float first = first_of_one_over(x);
  return fmaf(fmaf(-x, first, 1.0f), first, first);
}
__device__ __forceinline__ double one_over_sum(double x) { return 1.0 / x; }

// 1 / (1 + exp(-x)). The exponential is taken of what is not above 0: no sum is infinite.
template <class T>
__device__ __forceinline__ T sigmoid(T x) {
  const T e = std::exp(-std::abs(x));
  const T share = one_over_sum(T(1) + e);
  return x < T(0) ? e * share : share;
}

template <class T>
__device__ __forceinline__ T silu(T x) {
  return x * sigmoid(x);
}

// x * P(a standard normal variable <= x).
template <class T>
__device__ __forceinline__ T gelu(T x) {
  constexpr T SQRT_HALF = T(0.70710678118654752440);
  return x * T(0.5) * (T(1) + std::erf(x * SQRT_HALF));
}

// gelu(approximate="tanh").
template <class T>
__device__ __forceinline__ T gelu_tanh(T x) {
  constexpr T SQRT_TWO_OVER_PI = T(0.79788456080286535588);
  const T inner = SQRT_TWO_OVER_PI * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + std::tanh(inner));
}

// log(1 + exp(beta x)) / beta; the identity where beta x > threshold. The exponential is taken of
// what is not above 0.
template <class T>
__device__ __forceinline__ T softplus(T x, same_t<T> beta, same_t<T> threshold) {
  const T y = x * beta;
  const T result = (maximum(y, T(0)) + log1p_of_part(std::exp(-std::abs(y)))) / beta;
  return y > threshold ? x : result;
}

// x tanh(log(1 + exp(x))); with e = exp(x) the factor is ((1 + e)^2 - 1) / ((1 + e)^2 + 1). From 20
// on it is 1. No branch: what is done for neighbours overlaps.
template <class T>
__device__ __forceinline__ T mish(T x) {
  const T e = std::exp(std::fmin(x, T(20)));
  const T n = e * (e + T(2));
  return x * (n * one_over_sum(n + T(2)));
}

template <class T>
__device__ __forceinline__ T log_sigmoid(T x) {
  return minimum(T(0), x) - log1p_of_part(std::exp(-std::abs(x)));
}

template <class T>
__device__ __forceinline__ T softsign(T x) {
  return x / (T(1) + std::abs(x));
}

template <class T>
__device__ __forceinline__ T hardtanh(T x, same_t<T> low, same_t<T> high) {
  return clamp(x, low, high);
}

template <class T>
__device__ __forceinline__ T hardsigmoid(T x) {
  return divide_by_row(clamp(x + T(3), T(0), T(6)), T(6));
}

template <class T>
__device__ __forceinline__ T hardswish(T x) {
  return divide_by_row(x * clamp(x + T(3), T(0), T(6)), T(6));
}

template <class T>
__device__ __forceinline__ T leaky_relu(T x, same_t<T> slope) {
  return x > T(0) ? x : x * slope;
}

// scale * x above 0, scale * alpha * (exp(input_scale * x) - 1) below. elu, selu and celu are this
// with other constants.
template <class T>
__device__ __forceinline__ T elu(T x, same_t<T> alpha, same_t<T> scale, same_t<T> input_scale) {
  const T below = std::expm1(std::fmin(x, T(0)) * input_scale) * (alpha * scale);
  return x <= T(0) ? below : x * scale;
}
