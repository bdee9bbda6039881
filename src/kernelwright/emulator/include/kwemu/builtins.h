// threadIdx, blockIdx, blockDim, gridDim, warpSize. The dimensions are plain triples here, too: the
// compiler takes a constant of a class with constructors for memory that may change.
#pragma once

#include "kwemu/abi.h"

KWEMU_THREAD_LOCAL uint3 threadIdx __asm__("kwemu_thread_index");
KWEMU_THREAD_LOCAL uint3 blockIdx __asm__("kwemu_block_index");
KWEMU_THREAD_LOCAL uint3 blockDim __asm__("kwemu_block_dim");
KWEMU_THREAD_LOCAL uint3 gridDim __asm__("kwemu_grid_dim");
constexpr int warpSize = 32;

inline long long clock64() { return static_cast<long long>(kwemu_clock()); }
inline unsigned long long globaltimer() { return kwemu_clock(); }
inline void __nanosleep(unsigned) { kwemu_fence(); }
[[noreturn]] inline void __trap() { kwemu_trap(719 /* cudaErrorLaunchFailure */); }
inline void __brkpt() {}
