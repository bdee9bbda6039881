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
  static constexpr int MOST_SPLITS = 16, MOST_BYTES = 226 << 10;

  // Keys and values under way, and where these were, states of warps; and those of blocks.
  static constexpr int room_bytes(int stages) {
    const int ring = (stages < Base::STAGES ? stages : Base::STAGES) * Base::STAGE_BYTES;
    const int states = FewStates<Base>::bytes(Base::WARPS);
    return ring > states ? ring : states;
  }
  static constexpr int shared_bytes(int stages, int splits) {
    return room_bytes(stages) + FewStates<Base>::bytes(splits);
  }
};

// Results of a block's rows, of `count` states each.
template <class Config>
__device__ __forceinline__ void store_few(const FewWork<Config>& rows,
                                          FewStates<typename FewTile<Config>::Base> states,
                                          int count) {
  using Tile = FewTile<Config>;
  const AttentionProblem& problem = rows.p.problem;
  const int64_t* const strides = problem.result_strides;
  auto* const result =
      static_cast<typename Config::Element*>(problem.result) + rows.batch * strides[0];
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tile::ROWS * Tile::PADDED / 4;
       i += Tile::THREADS) {
    const int row = i / (Tile::PADDED / 4), quad = i % (Tile::PADDED / 4);
    if (!rows.is_there(row)) continue;
    const float4 sum = states.together(row, quad, count);
    const float total = states.together(row, states.QUADS - 1, count).x;
    const bool is_zero = problem.keys == 0 || (Config::EMPTY_IS_ZERO && total == 0);
    const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
    auto* const to = result + rows.head_of(row) * strides[1] + rows.row_of(row) * strides[2];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (4 * quad + c >= problem.width) continue;
      to[(4 * quad + c) * strides[3]] =
          attention_element<typename Config::Element>(is_zero ? 0.0f : sums[c] / total);
    }
  }
}

// The body of a kernel of THREADS threads and shared_bytes(stages, splits) of dynamic shared
// memory, in clusters of `splits` blocks.
template <class Config>
__device__ __forceinline__ void attention_few(const FewParameters& p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Tile = FewTile<Config>;
  using States = FewStates<typename Tile::Base>;
  extern __shared__ __align__(16) unsigned char attention_few_memory[];
  __shared__ Barrier have_come;  // the states of all blocks, at the first
  const int number = static_cast<int>(blockIdx.x) / p.splits;
  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const int groups = p.problem.heads / p.group;
  FewWork<Config> rows{{p, number / groups, number % groups * p.group}};
  rows.take_room(attention_few_memory);
  const int first = split * p.keys_each;
  const int end = min(first + p.keys_each, p.problem.keys);
  rows.ask_for(first, min(end - first, Tile::ASKED), Tile::THREADS);
  // A block alone has no asynchronous stores: its cluster would need another one.
  if (split == 0 && threadIdx.x == 0 && p.splits > 1) {
    init_barrier(&have_come, 1);
    fence_barrier_init();
    arrive_expecting(&have_come, States::bytes(p.splits));
  }
  arrive_at_cluster();
  wait_for_previous_kernel();
  let_next_kernel_start();
  rows.begin(first);
#pragma unroll 1
  for (int key = first - Tile::LEAD; key < end; key += Tile::STEP) rows.step(key, first, end);
  rows.join();
  if constexpr (Tile::LEAD > 0) __syncthreads();  // all have read what was under way
  const States own{reinterpret_cast<float4*>(attention_few_memory)};
  rows.leave(own);
  __syncthreads();
  const States parts{reinterpret_cast<float4*>(attention_few_memory + p.room_bytes)};
  wait_for_cluster();  // all blocks have begun
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tile::ROWS * States::QUADS; i += Tile::THREADS) {
    const int row = i / States::QUADS, quad = i % States::QUADS;
    float4* const to = parts.of(split, row) + quad;
    const float4 words = own.together(row, quad, Tile::WARPS);
    if (p.splits > 1) {
      store_quad_at_rank(to, 0, words, &have_come);
    } else {
      *to = words;
    }
  }
  if (split != 0) return;
  if (p.splits > 1) {
    wait(&have_come, 0);
  } else {
    __syncthreads();
  }
  store_few<Config>(rows, parts, p.splits);
#endif
}
