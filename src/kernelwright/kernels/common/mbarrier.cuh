#pragma once
// Barriers in shared memory (mbarrier, compute capability 9.0) and blocks that form a cluster.
//
// A barrier completes a phase when as many threads as it was initialised for have arrived and all
// bytes that were announced have come. Waiting names the parity of the phase: 0 for the first.

#include <cstdint>

#include "shared_address.cuh"

using Barrier = uint64_t;

__device__ __forceinline__ void init_barrier(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the other blocks of the cluster and to asynchronous copies.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Arrives, and announces `bytes` that asynchronous copies will bring.
__device__ __forceinline__ void arrive_expecting(Barrier* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}

// Of the same place in block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_at_rank(uint32_t address, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// Arrives at the barrier that lies at the same place in block `rank` of the cluster. Orders nothing
// but this thread's reads of shared memory: enough to hand a buffer back.
__device__ __forceinline__ void arrive_at_rank(Barrier* barrier, int rank) {
  const uint32_t remote = address_at_rank(shared_address(barrier), rank);
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// Whether the phase of this parity is complete; may wait a little.
__device__ __forceinline__ bool try_wait(Barrier* barrier, int parity) {
  uint32_t complete;
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
      "selp.u32 %0, 1, 0, complete;\n"
      "}\n"
      : "=r"(complete)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return complete != 0;
}

__device__ __forceinline__ void wait(Barrier* barrier, int parity) {
  while (!try_wait(barrier, parity)) {
  }
}

// A word to the same place in block `rank` of the cluster.
__device__ __forceinline__ void store_word_at_rank(uint32_t* shared, int rank, uint32_t word) {
  asm volatile(
      "st.shared::cluster.b32 [%0], %1;" ::"r"(address_at_rank(shared_address(shared), rank)),
      "r"(word)
      : "memory");
}

// The same of four words, asynchronously: their bytes arrive at a barrier of that block, at the
// place of `barrier`. The block that sends may end. A fault in a cluster of one block.
__device__ __forceinline__ void store_quad_at_rank(float4* shared, int rank, const float4& words,
                                                   Barrier* barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address_at_rank(shared_address(shared), rank)),
      "r"(__float_as_uint(words.x)), "r"(__float_as_uint(words.y)), "r"(__float_as_uint(words.z)),
      "r"(__float_as_uint(words.w)), "r"(address_at_rank(shared_address(barrier), rank))
      : "memory");
}

// This block's place in its cluster.
__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same in two parts. What is written before an arrival is not ordered, barriers that were
// initialised and fenced are.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// All `threads` threads that use barrier `id` (1 to 15) of the block: some warps of it.
__device__ __forceinline__ void sync_warps(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives there without waiting for the others.
__device__ __forceinline__ void arrive_warps(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
