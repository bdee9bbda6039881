// Mathematical functions of the device beyond <math.h>, and its min and max.
#pragma once

#include <math.h>
#include <stdlib.h>

#include <cmath>
#include <type_traits>

// The C library has float and double versions under the names of C; these are C++'s overloads.
using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#define KWEMU_MIN_MAX(type)                                    \
  constexpr type min(type a, type b) { return b < a ? b : a; } \
  constexpr type max(type a, type b) { return a < b ? b : a; }
KWEMU_MIN_MAX(int)
KWEMU_MIN_MAX(unsigned int)
KWEMU_MIN_MAX(long)
KWEMU_MIN_MAX(unsigned long)
KWEMU_MIN_MAX(long long)
KWEMU_MIN_MAX(unsigned long long)
#undef KWEMU_MIN_MAX

// A NaN loses, as on the device.
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

namespace kwemu {
template <class A, class B>
using Mixed =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>,
                     std::common_type_t<A, B>>;
}  // namespace kwemu

template <class A, class B>
constexpr ::kwemu::Mixed<A, B> min(A a, B b) {
  typedef ::kwemu::Mixed<A, B> T;
  return min(static_cast<T>(a), static_cast<T>(b));
}

template <class A, class B>
constexpr ::kwemu::Mixed<A, B> max(A a, B b) {
  typedef ::kwemu::Mixed<A, B> T;
  return max(static_cast<T>(a), static_cast<T>(b));
}

inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }

// Computed in double: the device's are correct to an ulp or two, these to half of one.
#define KWEMU_VIA_DOUBLE(name, expression)            \
  inline double name(double x) { return expression; } \
  inline float name##f(float value) { return static_cast<float>(name(static_cast<double>(value))); }
KWEMU_VIA_DOUBLE(rsqrt, 1.0 / sqrt(x))
KWEMU_VIA_DOUBLE(rcbrt, 1.0 / cbrt(x))
KWEMU_VIA_DOUBLE(sinpi, sin(M_PI* fmod(x, 2.0)))
KWEMU_VIA_DOUBLE(cospi, cos(M_PI* fmod(x, 2.0)))
KWEMU_VIA_DOUBLE(normcdf, 0.5 * erfc(-x * M_SQRT1_2))
KWEMU_VIA_DOUBLE(erfcx, exp(x* x) * erfc(x))
#undef KWEMU_VIA_DOUBLE

namespace kwemu {

// Newton's method on erf, from Winitzki's approximation (2008).
inline double inverse_erf(double x) {
  if (x != x || x < -1 || x > 1) return NAN;
  if (x == 1 || x == -1) return x * INFINITY;
  const double a = 0.147, logarithm = log1p(-x * x);
  const double b = 2 / (M_PI * a) + logarithm / 2;
  double y = copysign(sqrt(sqrt(b * b - logarithm / a) - b), x);
  for (int i = 0; i < 4; ++i) y -= (erf(y) - x) / (M_2_SQRTPI * exp(-y * y));
  return y;
}

}  // namespace kwemu

inline double erfinv(double x) { return ::kwemu::inverse_erf(x); }
inline float erfinvf(float x) { return static_cast<float>(::kwemu::inverse_erf(x)); }
inline double normcdfinv(double x) { return M_SQRT2 * ::kwemu::inverse_erf(2 * x - 1); }
inline float normcdfinvf(float x) { return static_cast<float>(normcdfinv(x)); }

inline float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
inline float norm3df(float x, float y, float z) {
  return static_cast<float>(sqrt(double{x} * x + double{y} * y + double{z} * z));
}
inline float norm4df(float x, float y, float z, float w) {
  return static_cast<float>(sqrt(double{x} * x + double{y} * y + double{z} * z + double{w} * w));
}
inline float fdividef(float x, float y) { return x / y; }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
