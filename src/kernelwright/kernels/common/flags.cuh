#pragma once
// Words by which blocks of one launch tell each other how far they are.

#include <cstdint>

// What was written before the flag that this reads is visible after it.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* flag) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Everything that this thread has seen or written is visible to whoever reads the flag.
__device__ __forceinline__ void store_release(uint32_t* flag, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

// Orders what this thread knows of memory before asynchronous copies that it asks for.
__device__ __forceinline__ void fence_for_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
