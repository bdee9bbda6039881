// The pipeline primitives: cp.async by other names.
#pragma once

#include "cuda_runtime.h"

KWEMU_DEVICE inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes,
                                                 size_t zero_fill = 0) {
  kwemu_async_copy(shared, global, static_cast<unsigned>(bytes),
                   static_cast<unsigned>(bytes - zero_fill), KWEMU_CALLER);
}
inline void __pipeline_commit() { kwemu_async_commit(); }
inline void __pipeline_wait_prior(size_t groups) {
  kwemu_async_wait(static_cast<unsigned>(groups));
}
