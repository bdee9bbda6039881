#pragma once
// How a block's warpgroups wait for each other.

#include "attention_problem.cuh"
#include "mbarrier.cuh"

template <class Tile>
struct AttentionBarriers {
  Barrier q_full, q_empty;
  Barrier k_full[Tile::STAGES], k_empty[Tile::STAGES];
  Barrier v_full[Tile::STAGES], v_empty[Tile::STAGES];
  Barrier mask_full[2], mask_empty[2];
};

// A stage of the ring, and which time it is filled.
template <int COUNT>
struct AttentionRing {
  int stage = 0, phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == COUNT) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// Turns of the warpgroups at the tensor cores: one multiplies while others take exponentials.
template <class Tile>
struct AttentionTurns {
  static constexpr int FIRST = 1, THREADS = 256;  // barriers of a warpgroup and the one before

  __device__ __forceinline__ static void wait_for(int warpgroup) {
    if constexpr (Tile::IN_TURNS) sync_warps(FIRST + warpgroup, THREADS);
  }
  __device__ __forceinline__ static void give_on(int warpgroup) {
    if constexpr (Tile::IN_TURNS) {
      const int next = warpgroup + 1 == Tile::CONSUMERS ? 0 : warpgroup + 1;
      asm volatile("bar.arrive %0, %1;" ::"r"(FIRST + next), "r"(THREADS) : "memory");
    }
  }
};
