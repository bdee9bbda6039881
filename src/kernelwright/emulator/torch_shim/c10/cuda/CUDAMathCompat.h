// The C library's functions under one name for float and double.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

namespace c10::cuda::compat {
using std::abs;
using std::ceil;
using std::copysign;
using std::exp;
using std::floor;
using std::log;
using std::max;
using std::min;
using std::pow;
using std::sqrt;
using std::tan;
using std::tanh;
template <class T>
inline T rsqrt(T x) {
  return T(1) / std::sqrt(x);
}
}  // namespace c10::cuda::compat
