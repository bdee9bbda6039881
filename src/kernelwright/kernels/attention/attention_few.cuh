#pragma once
// Attention of few rows and many keys, as when one token after the other is made: it takes as long
// as keys and values take to come from memory.
//
// The rows of all heads of q that have keys in common are one block's, so that keys and values are
// read once. The blocks of a cluster have a part of the keys each; the first of them adds what all
// found, in order. float32 is multiplied as float32.

#include "attention_few_products.cuh"
#include "attention_few_rows.cuh"
#include "dependent_launch.cuh"
#include "mbarrier.cuh"

// How a config's rows are multiplied.
template <class Config>
using FewWork =
    std::conditional_t<sizeof(typename Config::Element) == 4, FewRows<Config>, FewProducts<Config>>;

template <class Config>
struct FewTile : FewWork<Config>::Tile {
  using Base = typename FewWork<Config>::Tile;
  static constexpr int MOST_SPLITS = 16;

  // Keys and values under way, and where these were, states.
  static constexpr int shared_bytes(int splits) {
    const int states =
        (Base::WARPS + splits) * Base::ROWS * Base::STATE * static_cast<int>(sizeof(float));
    return states > Base::RING_BYTES ? states : Base::RING_BYTES;
  }
};

// Element `place` of a row's state, of `count` states together.
template <class Config>
__device__ __forceinline__ float few_together(const float* states, int count, int row, int place,
                                              float most) {
  using Tile = FewTile<Config>;
  float sum = 0;
  for (int i = 0; i < count; ++i) {
    const float* const state = states + (i * Tile::ROWS + row) * Tile::STATE;
    sum = fmaf(state[place], exp2f(state[Tile::PADDED + 1] - FewTotals::origin(most)), sum);
  }
  return sum;
}
template <class Config>
__device__ __forceinline__ float few_most(const float* states, int count, int row) {
  using Tile = FewTile<Config>;
  float most = -INFINITY;
  for (int i = 0; i < count; ++i) {
    most = fmaxf(most, states[(i * Tile::ROWS + row) * Tile::STATE + Tile::PADDED + 1]);
  }
  return most;
}

template <class Config>
__device__ __forceinline__ void store_few(const FewWork<Config>& rows, const float* states,
                                          int count) {
  using Tile = FewTile<Config>;
  const AttentionProblem& problem = rows.p.problem;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::ROWS * Tile::PADDED; i += Tile::THREADS) {
    const int row = i / Tile::PADDED, column = i % Tile::PADDED;
    if (!rows.is_there(row) || column >= problem.width) continue;
    const float most = few_most<Config>(states, count, row);
    const float total = few_together<Config>(states, count, row, Tile::PADDED, most);
    const float sum = few_together<Config>(states, count, row, column, most);
    const bool is_zero = problem.keys == 0 || (Config::EMPTY_IS_ZERO && total == 0);
    const int64_t* const strides = problem.result_strides;
    static_cast<typename Config::Element*>(
        problem.result)[rows.batch * strides[0] + rows.head_of(row) * strides[1] +
                        rows.row_of(row) * strides[2] + column * strides[3]] =
        attention_element<typename Config::Element>(is_zero ? 0.0f : sum / total);
  }
}

// The body of a kernel of THREADS threads and shared_bytes(splits) of dynamic shared memory, in
// clusters of `splits` blocks.
template <class Config>
__device__ __forceinline__ void attention_few(const FewParameters& p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Tile = FewTile<Config>;
  extern __shared__ __align__(16) unsigned char attention_few_memory[];
  auto* const states = reinterpret_cast<float*>(attention_few_memory);
  auto* const parts = states + Tile::WARPS * Tile::ROWS * Tile::STATE;  // of the cluster's blocks
  const int number = static_cast<int>(blockIdx.x) / p.splits;
  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const int groups = p.problem.heads / p.group;
  FewWork<Config> rows{{p, number / groups, number % groups * p.group}};
  rows.take_room(attention_few_memory);
  const int first = split * p.keys_each;
  const int end = min(first + p.keys_each, p.problem.keys);
  rows.ask_for(first, first + min(end - first, Tile::ASKED), Tile::THREADS);
  wait_for_previous_kernel();
  rows.begin(first, end);
  for (int key = first; key < end; key += Tile::STEP) rows.step(key, end);
  let_next_kernel_start();
  rows.join();
  if constexpr (Tile::RING_BYTES > 0) __syncthreads();  // all have read what was under way
  rows.leave(states + static_cast<int>(threadIdx.x) / 32 * Tile::ROWS * Tile::STATE);
  __syncthreads();
  if (p.splits == 1) {
    store_few<Config>(rows, states, Tile::WARPS);
    return;
  }
  sync_cluster();  // all have begun
  for (int i = static_cast<int>(threadIdx.x); i < Tile::ROWS * Tile::STATE; i += Tile::THREADS) {
    const int row = i / Tile::STATE, place = i % Tile::STATE;
    const float most = few_most<Config>(states, Tile::WARPS, row);
    const float value =
        place > Tile::PADDED ? most : few_together<Config>(states, Tile::WARPS, row, place, most);
    store_word_at_rank(
        reinterpret_cast<uint32_t*>(parts + (split * Tile::ROWS + row) * Tile::STATE + place), 0,
        __float_as_uint(value));
  }
  sync_cluster();
  if (split == 0) store_few<Config>(rows, parts, p.splits);
#endif
}
