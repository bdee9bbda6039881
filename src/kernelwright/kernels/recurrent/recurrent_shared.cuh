#pragma once
// What the blocks of a cluster share: barriers, and stores that count at another block's.

#include "mbarrier.cuh"

template <class Tile>
struct RecurrentShared {
  Barrier x_full[Tile::STAGES], x_empty[Tile::STAGES];
  Barrier h_full[2];           // the other blocks' units have come
  Barrier staged[2], kept[2];  // this block's own are written; the courier has read them
  uint32_t lane;
};

// 16 bytes to the same place in block `rank` of the cluster, and at its barrier.
__device__ __forceinline__ void store_async(const void* shared, const uint32_t (&words)[4],
                                            Barrier* barrier, int rank) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
      " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address_at_rank(shared_address(shared), rank)),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]),
      "r"(address_at_rank(shared_address(barrier), rank))
      : "memory");
}
