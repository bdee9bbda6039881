// __nv_bfloat16 and __nv_bfloat162.
#pragma once

#include "kwemu/small_float.h"
#include "kwemu/vector_types.h"

namespace kwemu {
typedef SmallFormat<8, 7> Bfloat16Format;
}

KWEMU_SMALL_SCALAR(__nv_bfloat16, ::kwemu::Bfloat16Format)
KWEMU_SMALL_PAIR(__nv_bfloat162, __nv_bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rz(float x) {
  return __nv_bfloat16::of_bits(::kwemu::Bfloat16Format::from_double(x, ::kwemu::Round::kZero));
}
inline __nv_bfloat16 __float2bfloat16_ru(float x) {
  return __nv_bfloat16::of_bits(::kwemu::Bfloat16Format::from_double(x, ::kwemu::Round::kUp));
}
inline __nv_bfloat16 __float2bfloat16_rd(float x) {
  return __nv_bfloat16::of_bits(::kwemu::Bfloat16Format::from_double(x, ::kwemu::Round::kDown));
}
inline __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn(x); }
inline int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz(x); }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16::of_bits(bits);
}
inline __nv_bfloat16 __short_as_bfloat16(short bits) {
  return __nv_bfloat16::of_bits(static_cast<unsigned short>(bits));
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 x) { return static_cast<short>(x.__x); }

inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return __nv_bfloat162(x, y);
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return __nv_bfloat162(x, y);
}
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return __bfloat162bfloat162(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(y));
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return make_float2(v.x, v.y); }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return __bfloat162bfloat162(v.x); }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return __bfloat162bfloat162(v.y); }
