// Atomic operations on global and shared memory. All are sequentially consistent here.
#pragma once

#include <cstring>
#include <type_traits>

#include "kwemu/abi.h"

namespace kwemu {

template <class T>
struct AtomicOperand {
  typedef T type;
};

template <unsigned kBytes>
struct AtomicBits;
template <>
struct AtomicBits<2> {
  typedef unsigned short type;
};
template <>
struct AtomicBits<4> {
  typedef unsigned int type;
};
template <>
struct AtomicBits<8> {
  typedef unsigned long long type;
};

// old = *address; *address = change(old); as one step. Any type of 2, 4 or 8 bytes.
template <class T, class Change>
KWEMU_UNCHECKED inline T update(T* address, Change change) {
  typedef typename AtomicBits<sizeof(T)>::type Bits;
  auto* bits = reinterpret_cast<Bits*>(address);
  Bits seen = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
  while (true) {
    T old;
    __builtin_memcpy(static_cast<void*>(&old), &seen, sizeof(T));
    const T fresh = change(old);
    Bits wanted;
    __builtin_memcpy(&wanted, static_cast<const void*>(&fresh), sizeof(T));
    if (__atomic_compare_exchange_n(bits, &seen, wanted, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
      return old;
    }
  }
}

}  // namespace kwemu

#define KWEMU_ATOMIC(name, expression)                                                       \
  template <class T>                                                                         \
  KWEMU_DEVICE T name(T* address, typename ::kwemu::AtomicOperand<T>::type value) {          \
    kwemu_atomic(address, sizeof(T), KWEMU_CALLER);                                          \
    return ::kwemu::update(address, [value](T old) KWEMU_UNCHECKED { return expression; });  \
  }                                                                                          \
  template <class T>                                                                         \
  KWEMU_DEVICE T name##_block(T* address, typename ::kwemu::AtomicOperand<T>::type value) {  \
    kwemu_atomic(address, sizeof(T), KWEMU_CALLER);                                          \
    return ::kwemu::update(address, [value](T old) KWEMU_UNCHECKED { return expression; });  \
  }                                                                                          \
  template <class T>                                                                         \
  KWEMU_DEVICE T name##_system(T* address, typename ::kwemu::AtomicOperand<T>::type value) { \
    kwemu_atomic(address, sizeof(T), KWEMU_CALLER);                                          \
    return ::kwemu::update(address, [value](T old) KWEMU_UNCHECKED { return expression; });  \
  }

KWEMU_ATOMIC(atomicAdd, static_cast<T>(old + value))
KWEMU_ATOMIC(atomicSub, static_cast<T>(old - value))
KWEMU_ATOMIC(atomicExch, ((void)old, value))
KWEMU_ATOMIC(atomicMin, value < old ? value : old)
KWEMU_ATOMIC(atomicMax, old < value ? value : old)
KWEMU_ATOMIC(atomicAnd, static_cast<T>(old& value))
KWEMU_ATOMIC(atomicOr, static_cast<T>(old | value))
KWEMU_ATOMIC(atomicXor, static_cast<T>(old ^ value))
KWEMU_ATOMIC(atomicInc, old >= value ? T(0) : static_cast<T>(old + 1))
KWEMU_ATOMIC(atomicDec, old == 0 || old > value ? value : static_cast<T>(old - 1))
#undef KWEMU_ATOMIC

#define KWEMU_ATOMIC_CAS(name)                                                       \
  template <class T>                                                                 \
  KWEMU_DEVICE T name(T* address, typename ::kwemu::AtomicOperand<T>::type expected, \
                      typename ::kwemu::AtomicOperand<T>::type value) {              \
    kwemu_atomic(address, sizeof(T), KWEMU_CALLER);                                  \
    return ::kwemu::update(address, [expected, value](T old) KWEMU_UNCHECKED {       \
      return old == expected ? value : old;                                          \
    });                                                                              \
  }
KWEMU_ATOMIC_CAS(atomicCAS)
KWEMU_ATOMIC_CAS(atomicCAS_block)
KWEMU_ATOMIC_CAS(atomicCAS_system)
#undef KWEMU_ATOMIC_CAS
