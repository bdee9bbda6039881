// Block-wide barriers and memory fences.
#pragma once

#include "kwemu/abi.h"

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  kwemu_barrier(::kwemu::BarrierOp::kPlain, 0, file, line);
}

inline int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  return kwemu_barrier(::kwemu::BarrierOp::kCount, predicate != 0, file, line);
}

inline int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return kwemu_barrier(::kwemu::BarrierOp::kAnd, predicate != 0, file, line);
}

inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return kwemu_barrier(::kwemu::BarrierOp::kOr, predicate != 0, file, line);
}

inline void __barrier_sync(unsigned, const char* file = __builtin_FILE(),
                           int line = __builtin_LINE()) {
  kwemu_barrier(::kwemu::BarrierOp::kPlain, 0, file, line);
}

inline void __threadfence() { kwemu_fence(); }
inline void __threadfence_block() { kwemu_fence(); }
inline void __threadfence_system() { kwemu_fence(); }
