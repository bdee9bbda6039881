#pragma once
// Runs of memory to shared memory and back, asynchronously (cp.async.bulk, compute capability 9.0):
// one thread asks. Addresses and sizes are multiples of 16 bytes.

#include "mbarrier.cuh"
#include "shared_address.cuh"

// To shared memory; the bytes arrive at a barrier.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes,
                                          Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// To the second-level cache, where all writes meet: it may be before what others write is complete.
__device__ __forceinline__ void prefetch_bulk(const void* global, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// Orders what this thread wrote to shared memory, and read from it, before asynchronous copies from
// there and to there.
__device__ __forceinline__ void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A warp hands memory that it has read to the next asynchronous copy. Without the fence its loads
// may be under way when it arrives, and find what the copy brings (docs/measured/attention.md).
__device__ __forceinline__ void hand_to_copies(Barrier* read) {
  fence_shared_for_async();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(read);
}

// Back, once ordinary writes to that memory are fenced. The thread that asks is the one that can
// wait.
__device__ __forceinline__ void store_bulk(void* global, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}

// Closes the group of the stores asked for since the last commit.
__device__ __forceinline__ void commit_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Returns once at most PENDING of this thread's youngest groups still read shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_bulk_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
