// Sixteen-bit floats: rounding, arithmetic and the functions that half and bfloat16 share.
#pragma once

#include <math.h>
#include <stdint.h>

#include <type_traits>

#include "kwemu/abi.h"
#include "kwemu/intrinsics.h"

namespace kwemu {

enum class Round { kNearest, kZero, kUp, kDown };

// A format of one sign bit, `kExponentBits` and `kMantissaBits`, with IEEE's subnormals.
template <int kExponentBits, int kMantissaBits>
struct SmallFormat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint16_t kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;
  static constexpr uint16_t kNan = 0x7fff;

  static float to_float(uint16_t bits) {
    const int sign = bits >> 15;
    const int exponent = (bits >> kMantissaBits) & ((1 << kExponentBits) - 1);
    const uint32_t mantissa = bits & ((1u << kMantissaBits) - 1);
    if constexpr (kExponentBits == 8) return __uint_as_float(static_cast<uint32_t>(bits) << 16);
    if (exponent == (1 << kExponentBits) - 1) {
      return __uint_as_float((static_cast<uint32_t>(sign) << 31) | 0x7f800000u |
                             (mantissa << (23 - kMantissaBits)));
    }
    if (exponent == 0) {
      const float tiny =
          __uint_as_float(static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits) << 23);
      const float value = static_cast<float>(mantissa) * tiny;
      return sign != 0 ? -value : value;
    }
    return __uint_as_float((static_cast<uint32_t>(sign) << 31) |
                           (static_cast<uint32_t>(exponent - kBias + 127) << 23) |
                           (mantissa << (23 - kMantissaBits)));
  }

  // The integer steps of the format from zero to |x|: whole steps, and what is left of one.
  static uint16_t from_double(double x, Round round = Round::kNearest) {
    if (x != x) return kNan;
    const bool negative = signbit(x);
    const uint16_t sign = negative ? 0x8000 : 0;
    const double magnitude = fabs(x);
    int exponent = -kBias;
    if (magnitude != 0 && magnitude < INFINITY) frexp(magnitude, &exponent);
    --exponent;  // magnitude = 1.m * 2^exponent
    if (exponent < 1 - kBias) exponent = 1 - kBias;
    if (magnitude == INFINITY || exponent > kBias) return overflow(sign, magnitude, round);
    const double steps = ldexp(magnitude, kMantissaBits - exponent);
    const double whole = floor(steps);
    const double rest = steps - whole;
    auto mantissa = static_cast<uint32_t>(whole);
    const bool away = round == (negative ? Round::kDown : Round::kUp);
    const bool nearest_up = rest > 0.5 || (rest == 0.5 && (mantissa & 1) != 0);
    if ((round == Round::kNearest && nearest_up) || (away && rest > 0)) ++mantissa;
    // A carry out of the mantissa runs into the exponent, as it should.
    const uint32_t bits = (static_cast<uint32_t>(exponent + kBias - 1) << kMantissaBits) + mantissa;
    return sign | static_cast<uint16_t>(bits < kInfinity ? bits : kInfinity);
  }

  static uint16_t from_float(float x) {
    if constexpr (kExponentBits == 8) {
      const uint32_t bits = __float_as_uint(x);
      if (x != x) return kNan;
      return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
    } else {
      const uint32_t bits = __float_as_uint(x);
      const uint32_t magnitude = bits & 0x7fffffffu;
      constexpr int kDropped = 23 - kMantissaBits;
      constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
      constexpr uint32_t kTooLarge = static_cast<uint32_t>(127 + 1 + kBias) << 23;
      if (magnitude < kSmallestNormal || magnitude >= kTooLarge) return from_double(x);
      const uint32_t rounded =
          magnitude + ((1u << (kDropped - 1)) - 1) + ((magnitude >> kDropped) & 1);
      const uint32_t result =
          (rounded >> kDropped) - (static_cast<uint32_t>(127 - kBias) << kMantissaBits);
      return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | result);
    }
  }

 private:
  static uint16_t overflow(uint16_t sign, double magnitude, Round round) {
    const bool away = round == Round::kNearest || (round == Round::kUp && sign == 0) ||
                      (round == Round::kDown && sign != 0);
    return sign | static_cast<uint16_t>(magnitude == INFINITY || away ? kInfinity : kInfinity - 1);
  }
};

// a * b + c for sixteen-bit values, such that one more rounding to sixteen bits is the only one:
// the product is exact, and the sum's last bit is set if anything was lost (rounding to odd).
inline double exact_enough_fma(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  if (error == 0 || error != error) return sum;
  long long bits = __double_as_longlong(sum);
  if ((bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return __longlong_as_double(bits);
}

}  // namespace kwemu

// The scalar type, its operators, and those functions whose names do not tell the format.
#define KWEMU_SMALL_SCALAR(Scalar, Format)                                               \
  struct Scalar {                                                                        \
    unsigned short __x;                                                                  \
    Scalar() = default;                                                                  \
    Scalar(float v) : __x(Format::from_float(v)) {}                                      \
    Scalar(double v) : __x(Format::from_double(v)) {}                                    \
    template <class T, class = std::enable_if_t<std::is_integral_v<T>>>                  \
    Scalar(T v) : __x(Format::from_double(static_cast<double>(v))) {}                    \
    operator float() const { return Format::to_float(__x); }                             \
    static Scalar of_bits(unsigned short bits) {                                         \
      Scalar result;                                                                     \
      result.__x = bits;                                                                 \
      return result;                                                                     \
    }                                                                                    \
  };                                                                                     \
  KWEMU_SMALL_OPERATOR(Scalar, +)                                                        \
  KWEMU_SMALL_OPERATOR(Scalar, -)                                                        \
  KWEMU_SMALL_OPERATOR(Scalar, *)                                                        \
  KWEMU_SMALL_OPERATOR(Scalar, /)                                                        \
  inline Scalar operator-(Scalar a) { return Scalar::of_bits(a.__x ^ 0x8000); }          \
  inline Scalar operator+(Scalar a) { return a; }                                        \
  inline Scalar& operator++(Scalar& a) { return a = a + Scalar(1.0f); }                  \
  inline Scalar& operator--(Scalar& a) { return a = a - Scalar(1.0f); }                  \
  KWEMU_SMALL_COMPARISON(Scalar, ==, __heq, __hequ)                                      \
  KWEMU_SMALL_COMPARISON(Scalar, !=, __hne, __hneu)                                      \
  KWEMU_SMALL_COMPARISON(Scalar, <, __hlt, __hltu)                                       \
  KWEMU_SMALL_COMPARISON(Scalar, <=, __hle, __hleu)                                      \
  KWEMU_SMALL_COMPARISON(Scalar, >, __hgt, __hgtu)                                       \
  KWEMU_SMALL_COMPARISON(Scalar, >=, __hge, __hgeu)                                      \
  inline Scalar __hadd(Scalar a, Scalar b) { return a + b; }                             \
  inline Scalar __hsub(Scalar a, Scalar b) { return a - b; }                             \
  inline Scalar __hmul(Scalar a, Scalar b) { return a * b; }                             \
  inline Scalar __hadd_rn(Scalar a, Scalar b) { return a + b; }                          \
  inline Scalar __hsub_rn(Scalar a, Scalar b) { return a - b; }                          \
  inline Scalar __hmul_rn(Scalar a, Scalar b) { return a * b; }                          \
  inline Scalar __hdiv(Scalar a, Scalar b) { return a / b; }                             \
  inline Scalar __hneg(Scalar a) { return -a; }                                          \
  inline Scalar __habs(Scalar a) { return Scalar::of_bits(a.__x & 0x7fff); }             \
  inline Scalar __hfma(Scalar a, Scalar b, Scalar c) {                                   \
    return Scalar(::kwemu::exact_enough_fma(float(a), float(b), float(c)));              \
  }                                                                                      \
  inline bool __hisnan(Scalar a) { return isnan(float(a)); }                             \
  inline int __hisinf(Scalar a) { return isinf(float(a)) ? (a.__x >> 15 ? -1 : 1) : 0; } \
  inline Scalar __hmax(Scalar a, Scalar b) { return Scalar(fmaxf(a, b)); }               \
  inline Scalar __hmin(Scalar a, Scalar b) { return Scalar(fminf(a, b)); }               \
  inline Scalar __hmax_nan(Scalar a, Scalar b) {                                         \
    return __hisnan(a) || __hisnan(b) ? Scalar::of_bits(Format::kNan) : __hmax(a, b);    \
  }                                                                                      \
  inline Scalar __hmin_nan(Scalar a, Scalar b) {                                         \
    return __hisnan(a) || __hisnan(b) ? Scalar::of_bits(Format::kNan) : __hmin(a, b);    \
  }                                                                                      \
  inline Scalar __hfma_relu(Scalar a, Scalar b, Scalar c) {                              \
    return __hmax_nan(__hfma(a, b, c), Scalar(0.0f));                                    \
  }                                                                                      \
  KWEMU_SMALL_FUNCTION(Scalar, exp, exp(x))                                              \
  KWEMU_SMALL_FUNCTION(Scalar, exp2, exp2(x))                                            \
  KWEMU_SMALL_FUNCTION(Scalar, exp10, exp10(x))                                          \
  KWEMU_SMALL_FUNCTION(Scalar, log, log(x))                                              \
  KWEMU_SMALL_FUNCTION(Scalar, log2, log2(x))                                            \
  KWEMU_SMALL_FUNCTION(Scalar, log10, log10(x))                                          \
  KWEMU_SMALL_FUNCTION(Scalar, sqrt, sqrt(x))                                            \
  KWEMU_SMALL_FUNCTION(Scalar, rsqrt, 1.0 / sqrt(x))                                     \
  KWEMU_SMALL_FUNCTION(Scalar, rcp, 1.0 / x)                                             \
  KWEMU_SMALL_FUNCTION(Scalar, sin, sin(x))                                              \
  KWEMU_SMALL_FUNCTION(Scalar, cos, cos(x))                                              \
  KWEMU_SMALL_FUNCTION(Scalar, tanh, tanh(x))                                            \
  KWEMU_SMALL_FUNCTION(Scalar, ceil, ceil(x))                                            \
  KWEMU_SMALL_FUNCTION(Scalar, floor, floor(x))                                          \
  KWEMU_SMALL_FUNCTION(Scalar, trunc, trunc(x))                                          \
  KWEMU_SMALL_FUNCTION(Scalar, rint, rint(x))

// float holds more than twice the bits: rounding twice is rounding once (Figueroa 1995).
#define KWEMU_SMALL_OPERATOR(Scalar, op)                                                 \
  inline Scalar operator op(Scalar a, Scalar b) { return Scalar(float(a) op float(b)); } \
  inline Scalar& operator op## = (Scalar & a, Scalar b) { return a = a op b; }

// The functions whose names end in u are true for NaNs.
#define KWEMU_SMALL_COMPARISON(Scalar, op, name, unordered)                    \
  inline bool operator op(Scalar a, Scalar b) { return float(a) op float(b); } \
  inline bool name(Scalar a, Scalar b) {                                       \
    const bool is_ordered = !isnan(float(a)) && !isnan(float(b));              \
    return is_ordered && float(a) op float(b);                                 \
  }                                                                            \
  inline bool unordered(Scalar a, Scalar b) {                                  \
    return isnan(float(a)) || isnan(float(b)) || float(a) op float(b);         \
  }

#define KWEMU_SMALL_FUNCTION(Scalar, name, expression) \
  inline Scalar h##name(Scalar value) {                \
    const double x = float(value);                     \
    return Scalar(expression);                         \
  }

// The pair, copied by accesses of four bytes, and its functions.
#define KWEMU_SMALL_PAIR(Pair, Scalar)                                                       \
  struct alignas(4) Pair {                                                                   \
    Scalar x, y;                                                                             \
    Pair() = default;                                                                        \
    Pair(Scalar x, Scalar y) : x(x), y(y) {}                                                 \
    __attribute__((always_inline)) Pair(const Pair& o) { ::kwemu::copy_whole<4>(this, &o); } \
    __attribute__((always_inline)) Pair& operator=(const Pair& o) {                          \
      ::kwemu::copy_whole<4>(this, &o);                                                      \
      return *this;                                                                          \
    }                                                                                        \
  };                                                                                         \
  KWEMU_PAIR_OPERATOR(Pair, +, __hadd2)                                                      \
  KWEMU_PAIR_OPERATOR(Pair, -, __hsub2)                                                      \
  KWEMU_PAIR_OPERATOR(Pair, *, __hmul2)                                                      \
  KWEMU_PAIR_OPERATOR(Pair, /, __h2div)                                                      \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, eq, ==)                                                \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, ne, !=)                                                \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, lt, <)                                                 \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, le, <=)                                                \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, gt, >)                                                 \
  KWEMU_PAIR_COMPARISON(Pair, Scalar, ge, >=)                                                \
  inline bool operator==(const Pair& a, const Pair& b) { return a.x == b.x && a.y == b.y; }  \
  inline Pair operator-(const Pair& a) { return Pair(-a.x, -a.y); }                          \
  inline Pair __hneg2(Pair a) { return -a; }                                                 \
  inline Pair __habs2(Pair a) { return Pair(__habs(a.x), __habs(a.y)); }                     \
  inline Pair __hmax2(Pair a, Pair b) { return Pair(__hmax(a.x, b.x), __hmax(a.y, b.y)); }   \
  inline Pair __hmin2(Pair a, Pair b) { return Pair(__hmin(a.x, b.x), __hmin(a.y, b.y)); }   \
  inline Pair __hfma2(Pair a, Pair b, Pair c) {                                              \
    return Pair(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                               \
  }                                                                                          \
  inline float __low2float(Pair a) { return a.x; }                                           \
  inline float __high2float(Pair a) { return a.y; }                                          \
  inline Pair __lowhigh2highlow(Pair a) { return Pair(a.y, a.x); }                           \
  KWEMU_PAIR_FUNCTION(Pair, exp)                                                             \
  KWEMU_PAIR_FUNCTION(Pair, exp2)                                                            \
  KWEMU_PAIR_FUNCTION(Pair, log)                                                             \
  KWEMU_PAIR_FUNCTION(Pair, log2)                                                            \
  KWEMU_PAIR_FUNCTION(Pair, sqrt)                                                            \
  KWEMU_PAIR_FUNCTION(Pair, rsqrt)                                                           \
  KWEMU_PAIR_FUNCTION(Pair, rcp)                                                             \
  KWEMU_PAIR_FUNCTION(Pair, sin)                                                             \
  KWEMU_PAIR_FUNCTION(Pair, cos)                                                             \
  KWEMU_PAIR_FUNCTION(Pair, tanh)                                                            \
  KWEMU_PAIR_FUNCTION(Pair, ceil)                                                            \
  KWEMU_PAIR_FUNCTION(Pair, floor)                                                           \
  KWEMU_PAIR_FUNCTION(Pair, trunc)                                                           \
  KWEMU_PAIR_FUNCTION(Pair, rint)

#define KWEMU_PAIR_OPERATOR(Pair, op, name)                                                      \
  inline Pair operator op(const Pair& a, const Pair& b) { return Pair(a.x op b.x, a.y op b.y); } \
  inline Pair& operator op## = (Pair & a, const Pair& b) { return a = a op b; }                  \
  inline Pair name(Pair a, Pair b) { return a op b; }

#define KWEMU_PAIR_COMPARISON(Pair, Scalar, name, op)                  \
  inline Pair __h##name##2(Pair a, Pair b) {                           \
    return Pair(Scalar(float(a.x op b.x)), Scalar(float(a.y op b.y))); \
  }                                                                    \
  inline bool __hb##name##2(Pair a, Pair b) { return a.x op b.x && a.y op b.y; }

#define KWEMU_PAIR_FUNCTION(Pair, name) \
  inline Pair h2##name(Pair a) { return Pair(h##name(a.x), h##name(a.y)); }
