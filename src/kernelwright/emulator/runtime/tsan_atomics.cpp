// The compiler's own atomic operations (std::atomic, __atomic_*), on the host and on the device.
#include "export.h"
#include "kwemu/abi.h"

#define KWEMU_CHECK(p)                                                                   \
  kwemu_atomic(const_cast<const void*>(static_cast<const volatile void*>(p)), sizeof *p, \
               KWEMU_CALLER)

// The memory order is ignored: all are sequentially consistent.
#define KWEMU_ATOMICS(bits, T)                                                                   \
  extern "C" KWEMU_EXPORT T __tsan_atomic##bits##_load(const volatile T* p, int) {               \
    KWEMU_CHECK(p);                                                                              \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                              \
  extern "C" KWEMU_EXPORT void __tsan_atomic##bits##_store(volatile T* p, T v, int) {            \
    KWEMU_CHECK(p);                                                                              \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                    \
  }                                                                                              \
  extern "C" KWEMU_EXPORT T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {            \
    KWEMU_CHECK(p);                                                                              \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                          \
  }                                                                                              \
  extern "C" KWEMU_EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, \
                                                                            T v, int, int) {     \
    KWEMU_CHECK(p);                                                                              \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                              \
  extern "C" KWEMU_EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e,   \
                                                                          T v, int, int) {       \
    KWEMU_CHECK(p);                                                                              \
    return __atomic_compare_exchange_n(p, e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                              \
  extern "C" KWEMU_EXPORT T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T e, T v,  \
                                                                       int, int) {               \
    KWEMU_CHECK(p);                                                                              \
    __atomic_compare_exchange_n(p, &e, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
    return e;                                                                                    \
  }                                                                                              \
  KWEMU_FETCH(bits, T, add)                                                                      \
  KWEMU_FETCH(bits, T, sub)                                                                      \
  KWEMU_FETCH(bits, T, and)                                                                      \
  KWEMU_FETCH(bits, T, or)                                                                       \
  KWEMU_FETCH(bits, T, xor)                                                                      \
  KWEMU_FETCH(bits, T, nand)

#define KWEMU_FETCH(bits, T, op)                                                        \
  extern "C" KWEMU_EXPORT T __tsan_atomic##bits##_fetch_##op(volatile T* p, T v, int) { \
    KWEMU_CHECK(p);                                                                     \
    return __atomic_fetch_##op(p, v, __ATOMIC_SEQ_CST);                                 \
  }

KWEMU_ATOMICS(8, unsigned char)
KWEMU_ATOMICS(16, unsigned short)
KWEMU_ATOMICS(32, unsigned int)
KWEMU_ATOMICS(64, unsigned long long)

extern "C" KWEMU_EXPORT void __tsan_atomic_thread_fence(int) { kwemu_fence(); }
extern "C" KWEMU_EXPORT void __tsan_atomic_signal_fence(int) {}
