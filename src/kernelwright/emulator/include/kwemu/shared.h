// Shared memory of a block.
#pragma once

#include "kwemu/abi.h"

namespace kwemu {

// The block's instance of one `__shared__` variable. Nothing is constructed.
template <class T>
KWEMU_INLINE T& shared(SharedSite& site) {
  return *static_cast<T*>(kwemu_shared(&site, sizeof(T), alignof(T)));
}

template <class T>
KWEMU_INLINE T* dynamic_shared() {
  return static_cast<T*>(kwemu_dynamic_shared());
}

// `extern __shared__ T name[];` at namespace scope.
template <class T>
struct DynamicShared {
  KWEMU_INLINE operator T*() const { return dynamic_shared<T>(); }
  KWEMU_INLINE T* operator&() const { return dynamic_shared<T>(); }
};

}  // namespace kwemu

inline size_t __cvta_generic_to_shared(const void* p) { return kwemu_shared_handle(p); }
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
inline void* __cvta_shared_to_generic(size_t p) {
  return kwemu_shared_address(static_cast<unsigned>(p));
}
inline void* __cvta_global_to_generic(size_t p) { return reinterpret_cast<void*>(p); }
inline unsigned __isShared(const void* p) { return kwemu_is_shared(p); }
inline unsigned __isGlobal(const void* p) { return !kwemu_is_shared(p); }
