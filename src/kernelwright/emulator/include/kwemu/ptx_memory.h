// Loads and stores by inline PTX: one, two or four values by one access of their whole size.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kwemu/abi.h"

namespace kwemu::ptx {

template <class Address>
KWEMU_UNCHECKED inline const void* global_address(Address address) {
  if constexpr (std::is_pointer_v<Address>) {
    return const_cast<const void*>(static_cast<const volatile void*>(address));
  } else {
    return reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
  }
}

template <class Address>
KWEMU_UNCHECKED inline void* shared_address(Address address) {
  if constexpr (std::is_pointer_v<Address>) {
    return const_cast<void*>(static_cast<const volatile void*>(address));
  } else {
    return kwemu_shared_address(static_cast<unsigned>(address));
  }
}

template <class T, class Address>
KWEMU_DEVICE void load_global(T& a, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, sizeof(T), 0, KWEMU_CALLER);
  a = from[0];
}

template <class T, class Address>
KWEMU_DEVICE void load_global(T& a, T& b, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, 2 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1];
}

template <class T, class Address>
KWEMU_DEVICE void load_global(T& a, T& b, T& c, T& d, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, 4 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1], c = from[2], d = from[3];
}

template <class T, class Address>
KWEMU_DEVICE void load_shared(T& a, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, sizeof(T), 0, KWEMU_CALLER);
  a = from[0];
}

template <class T, class Address>
KWEMU_DEVICE void load_shared(T& a, T& b, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, 2 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1];
}

template <class T, class Address>
KWEMU_DEVICE void load_shared(T& a, T& b, T& c, T& d, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, 4 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1], c = from[2], d = from[3];
}

template <class Address, class T>
KWEMU_DEVICE void store_global(Address address, T a) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(global_address(address))));
  kwemu_access(to, sizeof(T), 1, KWEMU_CALLER);
  to[0] = a;
}

template <class Address, class T>
KWEMU_DEVICE void store_global(Address address, T a, T b) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(global_address(address))));
  kwemu_access(to, 2 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b;
}

template <class Address, class T>
KWEMU_DEVICE void store_global(Address address, T a, T b, T c, T d) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(global_address(address))));
  kwemu_access(to, 4 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

template <class Address, class T>
KWEMU_DEVICE void store_shared(Address address, T a) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(shared_address(address))));
  kwemu_access(to, sizeof(T), 1, KWEMU_CALLER);
  to[0] = a;
}

template <class Address, class T>
KWEMU_DEVICE void store_shared(Address address, T a, T b) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(shared_address(address))));
  kwemu_access(to, 2 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b;
}

template <class Address, class T>
KWEMU_DEVICE void store_shared(Address address, T a, T b, T c, T d) {
  auto* to = static_cast<T*>(const_cast<void*>(static_cast<const void*>(shared_address(address))));
  kwemu_access(to, 4 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

}  // namespace kwemu::ptx
