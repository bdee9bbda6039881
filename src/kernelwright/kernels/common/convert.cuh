#pragma once
// Conversions between what is stored and what is computed with. The 16-bit types are stored only:
// they compute in float. half.cuh and bfloat16.cuh add them.

template <class T>
struct Element {
  using compute = T;
  __device__ __forceinline__ static T widen(T value) { return value; }
  template <class From>
  __device__ __forceinline__ static T narrow(From value) {
    return static_cast<T>(value);
  }
};

// The type in which an element of type T takes part in arithmetic.
template <class T>
using compute_t = typename Element<T>::compute;

// Stored to computed: exact.
template <class T>
__device__ __forceinline__ compute_t<T> widen(T value) {
  return Element<T>::widen(value);
}

// Computed to stored: floating types round to nearest, ties to even.
template <class To, class From>
__device__ __forceinline__ To narrow(From value) {
  return Element<To>::narrow(value);
}

// Computed, rounded as if it were stored.
template <class To, class From>
__device__ __forceinline__ compute_t<To> rounded(From value) {
  return Element<To>::rounded(value);
}
