#pragma once
// The state of a fold that the threads of a warp, a block or a cluster of blocks have in parts.

#include <cstring>

#include "folds.cuh"
#include "mbarrier.cuh"

// Combines what each LANES neighbouring lanes of a warp have, a power of two of them. Lanes in
// order, so that all come to the same bits.
template <int LANES, class Fold>
__device__ __forceinline__ typename Fold::State combine_in_order(Fold, typename Fold::State state) {
  using State = typename Fold::State;
  static_assert(sizeof(State) % 4 == 0, "states are made of words");
  constexpr int WORDS = sizeof(State) / 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int distance = 1; distance < LANES; distance *= 2) {
    const bool is_second = (lane & distance) != 0;
    uint32_t own[WORDS], lower[WORDS], upper[WORDS];
    memcpy(own, &state, sizeof(State));
#pragma unroll
    for (int i = 0; i < WORDS; ++i) {
      const uint32_t other = __shfl_xor_sync(0xffffffff, own[i], distance);
      lower[i] = is_second ? other : own[i];
      upper[i] = is_second ? own[i] : other;
    }
    State first, second;
    memcpy(&first, lower, sizeof(State));
    memcpy(&second, upper, sizeof(State));
    state = Fold::combine(first, second);
  }
  return state;
}

// Sums of exponentials first find what all of them are to be taken from: once, and not at each
// step.
template <int LANES, class T>
__device__ __forceinline__ typename ExpSumFold<T>::State combine_in_order(
    ExpSumFold<T>, typename ExpSumFold<T>::State state) {
  using Fold = ExpSumFold<T>;
  T largest = state.largest;
#pragma unroll
  for (int distance = 1; distance < LANES; distance *= 2) {
    largest = maximum(largest, __shfl_xor_sync(0xffffffff, largest, distance));
  }
  const auto sum = Fold::scaled(state, Fold::origin(largest));
  return {largest, combine_in_order<LANES>(SumFold<T>(), sum)};
}

template <class Fold, int LANES>
__device__ __forceinline__ typename Fold::State combine_lanes(typename Fold::State state) {
  return combine_in_order<LANES>(Fold(), state);
}

template <class Fold>
__device__ __forceinline__ typename Fold::State combine_warp(typename Fold::State state) {
  return combine_lanes<Fold, 32>(state);
}

// What `combine`, for which order does not matter, makes of LANES neighbouring lanes' values.
template <int LANES, class T, class Combine>
__device__ __forceinline__ T reduce_lanes(T value, const Combine& combine) {
#pragma unroll
  for (int distance = 1; distance < LANES; distance *= 2) {
    value = combine(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

// --- Blocks of a cluster -----------------------------------------------------------------------

// Writes to the place in block `rank` of the cluster that `shared` is in this one.
template <class State>
__device__ __forceinline__ void store_at_rank(State* shared, int rank, const State& state) {
  constexpr int WORDS = sizeof(State) / 4;
  uint32_t words[WORDS];
  memcpy(words, &state, sizeof(State));
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(remote)
               : "r"(shared_address(shared)), "r"(rank));
#pragma unroll
  for (int i = 0; i < WORDS; ++i) {
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(remote + 4 * i), "r"(words[i])
                 : "memory");
  }
}

// Shared memory in which the threads of a team exchange states of up to STATE_BYTES. Calls
// alternate between its halves, so that one barrier each is enough: who writes to a half again has
// met everybody since they read it.
template <int WARPS, int CLUSTER, int STATE_BYTES>
struct TeamExchange {
  static_assert(CLUSTER <= 32, "a lane writes to each block");
  static constexpr int HALF_BYTES = (WARPS * CLUSTER * STATE_BYTES + 15) / 16 * 16;
  static constexpr int BYTES = WARPS * CLUSTER > 1 ? 2 * HALF_BYTES : 0;

  // The next power of two, up to a warp.
  static constexpr int lanes_of(int states) {
    int lanes = 1;
    while (lanes < states && lanes < 32) lanes *= 2;
    return lanes;
  }

  char* memory;
  int half = 0;

  // Combines what all threads of the team have.
  template <class Fold>
  __device__ __forceinline__ typename Fold::State combine(typename Fold::State state) {
    using State = typename Fold::State;
    static_assert(sizeof(State) <= STATE_BYTES, "there is room for the states");
    state = combine_warp<Fold>(state);
    if constexpr (BYTES > 0) {
      auto* const states = reinterpret_cast<State*>(memory + half * HALF_BYTES);
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const int warp = static_cast<int>(threadIdx.x) / 32 % WARPS;
      half = 1 - half;
      if constexpr (CLUSTER > 1) {
        if (lane < CLUSTER) store_at_rank(states + cluster_rank() * WARPS + warp, lane, state);
        sync_cluster();
      } else {
        if (lane == 0) states[warp] = state;
        __syncthreads();
      }
      state = Fold::identity();
      // Of few states each group of so many lanes has all.
      constexpr int STATES = WARPS * CLUSTER, LANES = lanes_of(STATES);
#pragma unroll
      for (int first = 0; first < STATES; first += 32) {
        const int own = first + lane % LANES;
        if (own < STATES) state = Fold::combine(state, states[own]);
      }
      state = combine_lanes<Fold, LANES>(state);
    }
    return state;
  }

  // What `combine`, for which order does not matter, makes of all threads' values: those of the
  // warps are few, and each thread combines them for itself.
  template <class T, class Combine>
  __device__ __forceinline__ T reduce(T value, const Combine& combine) {
    static_assert(CLUSTER == 1 && sizeof(T) <= STATE_BYTES, "there is room for the values");
    value = reduce_lanes<32>(value, combine);
    if constexpr (WARPS > 1) {
      auto* const values = reinterpret_cast<T*>(memory + half * HALF_BYTES);
      half = 1 - half;
      if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value;
      __syncthreads();
      T all[WARPS];
#pragma unroll
      for (int i = 0; i < WARPS; ++i) all[i] = values[i];
      value = combine_tree(all, combine);
    }
    return value;
  }
};
