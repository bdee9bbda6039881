#pragma once
// What surrounds the products of a warpgroup (128 threads, compute capability 9.0a).
//
// A product is asynchronous: issue several, commit them as a group, wait for groups. Between a
// write to the registers of the sums and the first product into them stands fence_products.

#include <cstdint>

#include "shared_address.cuh"

__device__ __forceinline__ void fence_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Returns once at most PENDING of this warpgroup's youngest groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Keeps the compiler from moving reads of the sums above the wait before it.
template <int COUNT>
__device__ __forceinline__ void pin(float (&sums)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Registers of each thread of the calling warpgroup, a multiple of 8. A block gives back before it
// takes.
template <int COUNT>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// A 16-bit matrix in shared memory, written by the tensor memory accelerator as boxes with rows of
// 128 bytes, swizzled over 128 bytes, 1024-byte aligned (PTX ISA, "Shared memory matrix layout").
// The upper half is the same for all; the lower one is known to be the same in a whole warp.
struct MatrixDescriptor {
  uint32_t low;

  __device__ __forceinline__ operator uint64_t() const {
    constexpr uint64_t EIGHT_ROWS = 1024;
    constexpr uint64_t SWIZZLE_128_BYTES = 1;
    return (EIGHT_ROWS >> 4) << 32 | SWIZZLE_128_BYTES << 62 | low;
  }
};

// `group_bytes`: from one group of 64 elements along M or N to the next, where those lie inside the
// rows.
__device__ __forceinline__ MatrixDescriptor describe_matrix(const void* shared, int group_bytes) {
  const uint32_t low = (shared_address(shared) & 0x3ffff) >> 4 | (group_bytes >> 4) << 16;
  return {__shfl_sync(0xffffffffu, low, 0)};
}

// The same matrix, `bytes` further: descriptors count in units of 16 bytes.
__device__ __forceinline__ MatrixDescriptor advance_matrix(MatrixDescriptor matrix, int bytes) {
  return {matrix.low + (bytes >> 4)};
}
