// Device intrinsics on floats and integers: fast math, directed rounding, bits, casts.
// Fast math is computed accurately: how far the device's is off is nothing to rely on.
#pragma once

#include <fenv.h>
#include <math.h>
#include <stdint.h>

#include <limits>

#include "kwemu/abi.h"

inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __tanhf(float x) { return tanhf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

// Arithmetic with a rounding of its own: nearest, toward zero, up, down.
namespace kwemu {

// The empty asm keeps the compiler from computing before the mode is set, or after it is reset.
template <class T, class Operation, class... Operands>
KWEMU_DEVICE T rounded(int mode, Operation operation, Operands... operands) {
  const int before = fegetround();
  fesetround(mode);
  const auto hide = [](auto& value) KWEMU_UNCHECKED { asm volatile("" : "+m"(value)); };
  (hide(operands), ...);
  T result = operation(operands...);
  hide(result);
  fesetround(before);
  return result;
}

}  // namespace kwemu

#define KWEMU_ROUNDED2(name, type, mode, expression)                                         \
  inline type name##_##mode(type a, type b) {                                                \
    return ::kwemu::rounded<type>(                                                           \
        KWEMU_MODE_##mode, [](type a, type b) KWEMU_UNCHECKED { return expression; }, a, b); \
  }
#define KWEMU_ROUNDED1(name, type, mode, expression)                              \
  inline type name##_##mode(type a) {                                             \
    return ::kwemu::rounded<type>(                                                \
        KWEMU_MODE_##mode, [](type a) KWEMU_UNCHECKED { return expression; }, a); \
  }
#define KWEMU_ROUNDED3(name, type, mode, expression)                                             \
  inline type name##_##mode(type a, type b, type c) {                                            \
    return ::kwemu::rounded<type>(                                                               \
        KWEMU_MODE_##mode, [](type a, type b, type c) KWEMU_UNCHECKED { return expression; }, a, \
        b, c);                                                                                   \
  }
#define KWEMU_ROUNDED(mode)                          \
  KWEMU_ROUNDED2(__fadd, float, mode, a + b)         \
  KWEMU_ROUNDED2(__fsub, float, mode, a - b)         \
  KWEMU_ROUNDED2(__fmul, float, mode, a* b)          \
  KWEMU_ROUNDED2(__fdiv, float, mode, a / b)         \
  KWEMU_ROUNDED1(__frcp, float, mode, 1 / a)         \
  KWEMU_ROUNDED1(__fsqrt, float, mode, sqrtf(a))     \
  KWEMU_ROUNDED3(__fmaf, float, mode, fmaf(a, b, c)) \
  KWEMU_ROUNDED2(__dadd, double, mode, a + b)        \
  KWEMU_ROUNDED2(__dsub, double, mode, a - b)        \
  KWEMU_ROUNDED2(__dmul, double, mode, a* b)         \
  KWEMU_ROUNDED2(__ddiv, double, mode, a / b)        \
  KWEMU_ROUNDED1(__drcp, double, mode, 1 / a)        \
  KWEMU_ROUNDED1(__dsqrt, double, mode, sqrt(a))     \
  KWEMU_ROUNDED3(__fma, double, mode, fma(a, b, c))
#define KWEMU_MODE_rz FE_TOWARDZERO
#define KWEMU_MODE_ru FE_UPWARD
#define KWEMU_MODE_rd FE_DOWNWARD
KWEMU_ROUNDED(rz)
KWEMU_ROUNDED(ru)
KWEMU_ROUNDED(rd)
#undef KWEMU_ROUNDED
#undef KWEMU_ROUNDED3
#undef KWEMU_ROUNDED2
#undef KWEMU_ROUNDED1

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / sqrt(double{a})); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Reinterpretation.
#define KWEMU_AS(name, from, to)                      \
  inline to name(from value) {                        \
    to result;                                        \
    __builtin_memcpy(&result, &value, sizeof result); \
    return result;                                    \
  }
KWEMU_AS(__float_as_int, float, int)
KWEMU_AS(__float_as_uint, float, unsigned)
KWEMU_AS(__int_as_float, int, float)
KWEMU_AS(__uint_as_float, unsigned, float)
KWEMU_AS(__double_as_longlong, double, long long)
KWEMU_AS(__longlong_as_double, long long, double)
#undef KWEMU_AS

inline int __double2hiint(double x) { return static_cast<int>(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(__double_as_longlong(x)); }
inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((static_cast<long long>(high) << 32) | static_cast<unsigned>(low));
}

// Conversions to integers saturate, and turn NaN into zero (into the smallest for 64 bits).
namespace kwemu {

template <class T>
inline T saturate(double x) {
  constexpr bool kWide = sizeof(T) == 8;
  if (x != x) return kWide ? static_cast<T>(uint64_t{1} << 63) : T(0);
  if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

}  // namespace kwemu

#define KWEMU_TO_INTEGER(name, from, to)                                                   \
  inline to __##from##2##name##_rn(from x) { return ::kwemu::saturate<to>(nearbyint(x)); } \
  inline to __##from##2##name##_rz(from x) { return ::kwemu::saturate<to>(trunc(x)); }     \
  inline to __##from##2##name##_ru(from x) { return ::kwemu::saturate<to>(ceil(x)); }      \
  inline to __##from##2##name##_rd(from x) { return ::kwemu::saturate<to>(floor(x)); }
KWEMU_TO_INTEGER(int, float, int)
KWEMU_TO_INTEGER(uint, float, unsigned)
KWEMU_TO_INTEGER(ll, float, long long)
KWEMU_TO_INTEGER(ull, float, unsigned long long)
KWEMU_TO_INTEGER(int, double, int)
KWEMU_TO_INTEGER(uint, double, unsigned)
KWEMU_TO_INTEGER(ll, double, long long)
KWEMU_TO_INTEGER(ull, double, unsigned long long)
#undef KWEMU_TO_INTEGER

inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline double __ull2double_rn(unsigned long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Bits and integers.
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned __brev(unsigned x) {
  x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
  return (static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32) |
         __brev(static_cast<unsigned>(x >> 32));
}

inline int __mul24(int a, int b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<long long>(a) * b) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>((static_cast<__int128>(a) * b) >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline unsigned __sad(int a, int b, unsigned c) {
  return (a < b ? static_cast<unsigned>(b) - a : static_cast<unsigned>(a) - b) + c;
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1);
}

inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = (static_cast<unsigned long long>(b) << 32) | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = (selector >> (4 * i)) & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (choice & 7))) & 0xff;
    if ((choice & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// Two 16-bit integers in a word, each by itself.
template <class T, class Function>
inline unsigned __kwemu_halves(const Function& function, unsigned a, unsigned b) {
  const auto low = static_cast<unsigned short>(function(static_cast<T>(a), static_cast<T>(b)));
  const auto high =
      static_cast<unsigned short>(function(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return low | static_cast<unsigned>(high) << 16;
}

#define KWEMU_HALVES(name, T, expression)                                \
  inline unsigned name(unsigned a, unsigned b) {                         \
    return __kwemu_halves<T>([](T x, T y) { return expression; }, a, b); \
  }
KWEMU_HALVES(__vadd2, unsigned short, x + y)
KWEMU_HALVES(__vsub2, unsigned short, x - y)
KWEMU_HALVES(__vmaxu2, unsigned short, x > y ? x : y)
KWEMU_HALVES(__vminu2, unsigned short, x < y ? x : y)
KWEMU_HALVES(__vmaxs2, short, x > y ? x : y)
KWEMU_HALVES(__vmins2, short, x < y ? x : y)
#undef KWEMU_HALVES
inline unsigned __viaddmin_u16x2(unsigned a, unsigned b, unsigned c) {
  return __vminu2(__vadd2(a, b), c);
}
inline unsigned __viaddmax_u16x2(unsigned a, unsigned b, unsigned c) {
  return __vmaxu2(__vadd2(a, b), c);
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>((both << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>(both >> (shift & 31));
}

inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) {
    c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
  }
  return c;
}
