// Loads and stores with cache hints: hints mean nothing here.
#pragma once

#include "kwemu/abi.h"

#define KWEMU_LOAD(name)                  \
  template <class T>                      \
  KWEMU_INLINE T name(const T* address) { \
    return *address;                      \
  }
KWEMU_LOAD(__ldg)
KWEMU_LOAD(__ldca)
KWEMU_LOAD(__ldcg)
KWEMU_LOAD(__ldcs)
KWEMU_LOAD(__ldlu)
KWEMU_LOAD(__ldcv)
#undef KWEMU_LOAD

namespace kwemu {
template <class T>
struct Identity {
  typedef T type;
};
}  // namespace kwemu

#define KWEMU_STORE(name)                                                                \
  template <class T>                                                                     \
  KWEMU_INLINE void name(T* address, const typename ::kwemu::Identity<T>::type& value) { \
    *address = value;                                                                    \
  }
KWEMU_STORE(__stwb)
KWEMU_STORE(__stcg)
KWEMU_STORE(__stcs)
KWEMU_STORE(__stwt)
#undef KWEMU_STORE
