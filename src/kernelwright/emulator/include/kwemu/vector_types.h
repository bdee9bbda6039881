// int2, float4, dim3 and their kin: what device code calls vector types.
//
// A whole vector is copied by one access of its own size (the empty asm keeps the compiler from
// splitting the load), so that a misaligned or overrunning vector access is seen as what it is.
#pragma once

#include <cstring>

namespace kwemu {

template <unsigned kBytes>
struct Carrier;
template <>
struct Carrier<2> {
  typedef unsigned short __attribute__((may_alias)) type;
};
template <>
struct Carrier<4> {
  typedef unsigned int __attribute__((may_alias)) type;
};
template <>
struct Carrier<8> {
  typedef unsigned long long __attribute__((may_alias)) type;
};
template <>
struct Carrier<16> {
  typedef float __attribute__((vector_size(16), may_alias)) type;
};

#if defined(__x86_64__)
#define KWEMU_KEEP_WHOLE(value) asm("" : "+x"(value))
#elif defined(__aarch64__)
#define KWEMU_KEEP_WHOLE(value) asm("" : "+w"(value))
#else
#define KWEMU_KEEP_WHOLE(value) asm("" : "+m"(value))
#endif

template <unsigned kBytes>
inline __attribute__((always_inline)) void copy_whole(void* to, const void* from) {
  typedef typename Carrier<kBytes>::type Whole;
  Whole value = *static_cast<const Whole*>(from);
  if constexpr (kBytes == 16) KWEMU_KEEP_WHOLE(value);
  *static_cast<Whole*>(to) = value;
}

}  // namespace kwemu

#define KWEMU_WHOLE_COPY(name, bytes)                                       \
  constexpr __attribute__((always_inline)) name(const name& o) {            \
    if (__builtin_is_constant_evaluated()) {                                \
      assign(o);                                                            \
    } else {                                                                \
      ::kwemu::copy_whole<bytes>(this, &o);                                 \
    }                                                                       \
  }                                                                         \
  constexpr __attribute__((always_inline)) name& operator=(const name& o) { \
    if (__builtin_is_constant_evaluated()) {                                \
      assign(o);                                                            \
    } else {                                                                \
      ::kwemu::copy_whole<bytes>(this, &o);                                 \
    }                                                                       \
    return *this;                                                           \
  }

#define KWEMU_VECTOR1(name, type) \
  struct name {                   \
    type x;                       \
  };                              \
  constexpr name make_##name(type x) { return name{x}; }

#define KWEMU_VECTOR2(name, type)                              \
  struct alignas(2 * sizeof(type)) name {                      \
    type x, y;                                                 \
    name() = default;                                          \
    constexpr name(type x, type y) : x(x), y(y) {}             \
    constexpr explicit name(type x) : x(x), y() {}             \
    constexpr void assign(const name& o) { x = o.x, y = o.y; } \
    KWEMU_WHOLE_COPY(name, 2 * sizeof(type))                   \
  };                                                           \
  constexpr name make_##name(type x, type y) { return name(x, y); }

// Three members have no vector access on the device either: plain structs.
#define KWEMU_VECTOR3(name, type) \
  struct name {                   \
    type x, y, z;                 \
  };                              \
  constexpr name make_##name(type x, type y, type z) { return name{x, y, z}; }

#define KWEMU_VECTOR4(name, type)                                                      \
  struct alignas(4 * sizeof(type)) name {                                              \
    type x, y, z, w;                                                                   \
    name() = default;                                                                  \
    constexpr name(type x, type y, type z = 0, type w = 0) : x(x), y(y), z(z), w(w) {} \
    constexpr explicit name(type x) : x(x), y(), z(), w() {}                           \
    constexpr void assign(const name& o) { x = o.x, y = o.y, z = o.z, w = o.w; }       \
    KWEMU_WHOLE_COPY(name, 4 * sizeof(type))                                           \
  };                                                                                   \
  constexpr name make_##name(type x, type y, type z, type w) { return name(x, y, z, w); }

// Four 8-byte members: two 16-byte accesses on the device.
#define KWEMU_WIDE_VECTOR4(name, type) \
  struct alignas(16) name {            \
    type x, y, z, w;                   \
  };                                   \
  constexpr name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }

#define KWEMU_VECTORS(base, type) \
  KWEMU_VECTOR1(base##1, type)    \
  KWEMU_VECTOR2(base##2, type)    \
  KWEMU_VECTOR3(base##3, type)    \
  KWEMU_VECTOR4(base##4, type)

#define KWEMU_WIDE_VECTORS(base, type) \
  KWEMU_VECTOR1(base##1, type)         \
  KWEMU_VECTOR2(base##2, type)         \
  KWEMU_VECTOR3(base##3, type)         \
  KWEMU_WIDE_VECTOR4(base##4, type)

KWEMU_VECTORS(char, signed char)
KWEMU_VECTORS(uchar, unsigned char)
KWEMU_VECTORS(short, short)
KWEMU_VECTORS(ushort, unsigned short)
KWEMU_VECTORS(int, int)
KWEMU_VECTORS(uint, unsigned int)
KWEMU_VECTORS(float, float)
KWEMU_WIDE_VECTORS(long, long)
KWEMU_WIDE_VECTORS(ulong, unsigned long)
KWEMU_WIDE_VECTORS(longlong, long long)
KWEMU_WIDE_VECTORS(ulonglong, unsigned long long)
KWEMU_WIDE_VECTORS(double, double)

#undef KWEMU_WIDE_VECTORS
#undef KWEMU_VECTORS
#undef KWEMU_WIDE_VECTOR4
#undef KWEMU_VECTOR4
#undef KWEMU_VECTOR3
#undef KWEMU_VECTOR2
#undef KWEMU_VECTOR1

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
