#pragma once
// A tuple for kernels and their parameters: one member for each of a list of types, found by its
// index.

#include <cstddef>
#include <utility>

template <size_t INDEX, class T>
struct PackItem {
  T value;
};

template <class Indices, class... Ts>
struct PackItems;
template <size_t... INDEX, class... Ts>
struct PackItems<std::index_sequence<INDEX...>, Ts...> : PackItem<INDEX, Ts>... {};

template <class... Ts>
struct Pack : PackItems<std::index_sequence_for<Ts...>, Ts...> {};

template <size_t INDEX, class T>
__host__ __device__ __forceinline__ T& get(PackItem<INDEX, T>& item) {
  return item.value;
}
template <size_t INDEX, class T>
__host__ __device__ __forceinline__ const T& get(const PackItem<INDEX, T>& item) {
  return item.value;
}
