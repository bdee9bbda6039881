// __half and __half2.
#pragma once

#include "kwemu/small_float.h"
#include "kwemu/vector_types.h"

namespace kwemu {
typedef SmallFormat<5, 10> HalfFormat;
}

KWEMU_SMALL_SCALAR(__half, ::kwemu::HalfFormat)
KWEMU_SMALL_PAIR(__half2, __half)
typedef __half half;
typedef __half2 half2;

inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half __float2half_rz(float x) {
  return __half::of_bits(::kwemu::HalfFormat::from_double(x, ::kwemu::Round::kZero));
}
inline __half __float2half_ru(float x) {
  return __half::of_bits(::kwemu::HalfFormat::from_double(x, ::kwemu::Round::kUp));
}
inline __half __float2half_rd(float x) {
  return __half::of_bits(::kwemu::HalfFormat::from_double(x, ::kwemu::Round::kDown));
}
inline __half __double2half(double x) { return __half(x); }
inline __half __int2half_rn(int x) { return __half(x); }
inline __half __uint2half_rn(unsigned x) { return __half(x); }
inline __half __ll2half_rn(long long x) { return __half(x); }
inline float __half2float(__half x) { return x; }
inline int __half2int_rn(__half x) { return __float2int_rn(x); }
inline int __half2int_rz(__half x) { return __float2int_rz(x); }
inline int __half2int_ru(__half x) { return __float2int_ru(x); }
inline int __half2int_rd(__half x) { return __float2int_rd(x); }
inline unsigned __half2uint_rn(__half x) { return __float2uint_rn(x); }
inline unsigned __half2uint_rz(__half x) { return __float2uint_rz(x); }
inline __half __ushort_as_half(unsigned short bits) { return __half::of_bits(bits); }
inline __half __short_as_half(short bits) {
  return __half::of_bits(static_cast<unsigned short>(bits));
}
inline unsigned short __half_as_ushort(__half x) { return x.__x; }
inline short __half_as_short(__half x) { return static_cast<short>(x.__x); }

inline __half2 make_half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __half2half2(__half x) { return __half2(x, x); }
inline __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
inline __half2 __float2half2_rn(float x) { return __half2(__half(x), __half(x)); }
inline __half2 __floats2half2_rn(float x, float y) { return __half2(__half(x), __half(y)); }
inline __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
inline float2 __half22float2(__half2 v) { return make_float2(v.x, v.y); }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline __half2 __low2half2(__half2 v) { return __half2(v.x, v.x); }
inline __half2 __high2half2(__half2 v) { return __half2(v.y, v.y); }
inline __half2 __lows2half2(__half2 a, __half2 b) { return __half2(a.x, b.x); }
inline __half2 __highs2half2(__half2 a, __half2 b) { return __half2(a.y, b.y); }
