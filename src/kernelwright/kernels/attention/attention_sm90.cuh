#pragma once
// Attention on the tensor cores of compute capability 9.0a. See attention_problem.cuh.

#include "attention_mask.cuh"
#include "attention_plain.cuh"
#include "attention_prepare.cuh"
#include "attention_products.cuh"
#include "attention_ring.cuh"
#include "attention_rows.cuh"
#include "attention_store.cuh"
#include "bulk_copy.cuh"
#include "dependent_launch.cuh"

template <class Config>
struct AttentionBlock {
  using Tile = AttentionTile<Config>;
  using Element = typename Config::Element;
  using Plane = typename Tile::Plane;
  using Sums = float[Tile::PARTS][Tile::PART / 2];

  const AttentionParameters& p;
  AttentionBarriers<Tile>& barriers;
  unsigned char* memory;
  AttentionPlace at;
  using Ring = AttentionRing<Tile::STAGES>;
  using MaskRing = AttentionRing<Tile::MASK_STAGES>;
  using Turns = AttentionTurns<Tile>;

  __device__ __forceinline__ unsigned char* k_stage(int stage) const {
    return memory + Tile::Q_BYTES + stage * (Tile::K_BYTES + Tile::V_BYTES);
  }
  __device__ __forceinline__ unsigned char* v_stage(int stage) const {
    return k_stage(stage) + Tile::K_BYTES;
  }

  __device__ __forceinline__ unsigned char* mask_stage(int stage) const {
    return memory + Tile::OPERAND_BYTES + stage * Tile::MASK_BYTES;
  }

  // Steps over keys of the block's rows.
  __device__ __forceinline__ int steps() const {
    const int rows = min(at.row + Tile::BLOCK_M, p.problem.rows);
    const int keys = Config::CAUSAL ? min(p.problem.keys, rows) : p.problem.keys;
    return (keys + Tile::BLOCK_N - 1) / Tile::BLOCK_N;
  }

  // --- The producer's thread ---

  template <int BLOCKS, int ROWS>
  __device__ __forceinline__ void fetch(unsigned char* to, int operand, int row,
                                        Barrier* full) const {
    const AttentionProblem& problem = p.problem;
    const int batch = problem.batch_of(operand, at.batch), head = problem.head_of(operand, at.head);
    arrive_expecting(full, Tile::PLANES * BLOCKS * ROWS * Tile::ROW_BYTES);
#pragma unroll
    for (int plane = 0; plane < Tile::PLANES; ++plane) {
#pragma unroll
      for (int block = 0; block < BLOCKS; ++block) {
        copy_box_of_four(to + (plane * BLOCKS + block) * ROWS * Tile::ROW_BYTES, p.maps + operand,
                         block * Tile::BLOCK_COLUMNS, row, head * Tile::PLANES + plane, batch,
                         full);
      }
    }
  }

  __device__ __forceinline__ void fetch_mask(int key, MaskRing& ring) const {
    if constexpr (Tile::HAS_MASK) {
      wait(barriers.mask_empty + ring.stage, ring.phase ^ 1);
      Barrier* const full = barriers.mask_full + ring.stage;
      arrive_expecting(full, Tile::MASK_BLOCKS * p.mask_rows * Tile::ROW_BYTES);
      const int64_t* const strides = p.problem.mask_strides;
#pragma unroll
      for (int block = 0; block < Tile::MASK_BLOCKS; ++block) {
        copy_box_of_four(mask_stage(ring.stage) + block * Tile::MASK_BLOCK, p.maps + 3,
                         key + block * (Tile::ROW_BYTES / Tile::MASK_SIZE),
                         p.mask_rows == 1 ? 0 : at.row, strides[1] == 0 ? 0 : at.head,
                         strides[0] == 0 ? 0 : at.batch % p.problem.mask_batches, full);
      }
      ring.advance();
    }
  }

  __device__ __forceinline__ void produce() {
    Ring ring;
    MaskRing masks;
    int q_phase = 0;
    for (int turn = 0; AttentionPlace::find<Config>(p, turn, at); ++turn) {
      if (at.row < 0) continue;
      wait(&barriers.q_empty, q_phase ^ 1);
      q_phase ^= 1;
      fetch<Tile::DEPTH_BLOCKS, Tile::BLOCK_M>(memory, 0, at.row, &barriers.q_full);
      const int count = steps();
      for (int step = 0; step < count; ++step) {
        const int key = step * Tile::BLOCK_N;
        wait(barriers.k_empty + ring.stage, ring.phase ^ 1);
        fetch<Tile::DEPTH_BLOCKS, Tile::BLOCK_N>(k_stage(ring.stage), 1, key,
                                                 barriers.k_full + ring.stage);
        fetch_mask(key, masks);
        wait(barriers.v_empty + ring.stage, ring.phase ^ 1);
        fetch<Tile::WIDTH_BLOCKS, Tile::BLOCK_N>(v_stage(ring.stage), 2, key,
                                                 barriers.v_full + ring.stage);
        ring.advance();
      }
    }
  }

  // --- The warpgroups that multiply ---

  __device__ __forceinline__ static int warpgroup() {
    return static_cast<int>(threadIdx.x) / 128 - 1;
  }
  // The first of this thread's rows; the other is eight further.
  __device__ __forceinline__ int own_row() const {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    return at.row + warpgroup() * 64 + thread / 32 * 16 + thread % 32 / 4;
  }

  __device__ __forceinline__ static void release(Barrier* empty) {
    if (threadIdx.x % 32 == 0) arrive(empty);
  }

  __device__ __forceinline__ ScoreProducts<Tile> score_products(int stage) const {
    return {describe_matrix(memory + warpgroup() * 64 * Tile::ROW_BYTES, 64 * Tile::ROW_BYTES),
            describe_matrix(k_stage(stage), Tile::KEY_BLOCK)};
  }
  __device__ __forceinline__ ValueProducts<Tile> value_products(int stage) const {
    return {describe_matrix(v_stage(stage), Tile::KEY_BLOCK)};
  }

  // Of the keys of a step; scores are multiplied with `factor` where a mask is added to them.
  __device__ __forceinline__ void mask(float (&scores)[Tile::SCORES], int step, float factor,
                                       MaskRing& ring) const {
    const int first = step * Tile::BLOCK_N, row = own_row();
    if constexpr (Tile::HAS_MASK) {
      const bool is_same = p.mask_rows == 1;
      wait(barriers.mask_full + ring.stage, ring.phase);
      AttentionMask<Config>{factor}.apply(scores, mask_stage(ring.stage),
                                          is_same ? 0 : row - at.row, is_same ? 0 : 8);
      hand_to_copies(barriers.mask_empty + ring.stage);
      ring.advance();
    }
    const int last = first + Tile::BLOCK_N - 1;
    const int first_row = at.row + warpgroup() * 64;
    if (last < p.problem.keys && !(Config::CAUSAL && last > first_row)) return;
#pragma unroll
    for (int i = 0; i < Tile::SCORES; ++i) {
      const int key = first + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      const bool cuts = key >= p.problem.keys || (Config::CAUSAL && key > row + i / 2 % 2 * 8);
      if (cuts) scores[i] = -INFINITY;
    }
  }

  // What scores are multiplied with before exponentials of 2 are taken.
  __device__ __forceinline__ float score_factor() const {
    float factor = p.problem.scale;
    if constexpr (Tile::PLANES == 2) {
      factor = factor * plane_power(-exponent_of(0)) * plane_power(-exponent_of(1));
    }
    return factor;
  }
  __device__ __forceinline__ int64_t head_number(int operand) const {
    return int64_t{p.problem.batch_of(operand, at.batch)} * p.problem.operands[operand].heads +
           p.problem.head_of(operand, at.head);
  }
  __device__ __forceinline__ int exponent_of(int operand) const {
    return plane_exponent(p.room.largest[operand][head_number(operand)]);
  }

  __device__ __forceinline__ void store(Sums& sums, RowState<Config>& state) const {
    state.join();
    const AttentionProblem& problem = p.problem;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    auto* const result = static_cast<Element*>(problem.result) +
                         at.batch * problem.result_strides[0] + at.head * problem.result_strides[1];
    const float unscale = Tile::PLANES == 2 ? plane_power(-exponent_of(2)) : 1.0f;
    const bool is_packed = p.packs_results;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = own_row() + r * 8;
      const bool is_zero = problem.keys == 0 || (Config::EMPTY_IS_ZERO && state.total[r] == 0);
      const float inverse = is_zero ? 0.0f : 1.0f / state.total[r];
      Element* const to = result + row * problem.result_strides[2];
      if constexpr (Tile::PLANES == 1) {
        if (is_packed) {
          store_runs<Config>(sums, r, inverse, is_zero, problem.width,
                             row < problem.rows ? to : nullptr);
          continue;
        }
      }
      if (row >= problem.rows) continue;
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) {
#pragma unroll
        for (int i = 0; i < Tile::PART / 8; ++i) {
          const int first = part * Tile::PART + i * 8 + column;
          const float pair[2] = {sums[part][i * 4 + r * 2], sums[part][i * 4 + r * 2 + 1]};
          float out[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) out[c] = is_zero ? 0.0f : pair[c] * inverse * unscale;
          if constexpr (Tile::PLANES == 2) {
            if (is_packed) {
              if (first < problem.width) *reinterpret_cast<float2*>(to + first) = {out[0], out[1]};
              continue;
            }
          }
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (first + c < problem.width) {
              to[(first + c) * problem.result_strides[3]] = attention_element<Element>(out[c]);
            }
          }
        }
      }
    }
  }

  // Pairs: scores, exponentials and sums of a step, then the next; the warpgroups overlap.
  __device__ __forceinline__ void consume_pairs(Sums& sums, RowState<Config>& state) const {
    const float factor = score_factor();
    constexpr bool IS_ADDED = Config::MASKING == Masking::ADD;
    const int count = steps();
    MaskRing masks;
    wait(&barriers.q_full, 0);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const int stage = step % Tile::STAGES, parity = step / Tile::STAGES & 1;
      float scores[Tile::SCORES], shrink[2];
      wait(barriers.k_full + stage, parity);
      score_products(stage).multiply_pairs(scores);
      release(barriers.k_empty + stage);
      mask(scores, step, factor, masks);
      state.weigh(scores, IS_ADDED ? 1.0f : factor, shrink);
      Shares<Tile> shares;
      shares.set(scores);
      wait(barriers.v_full + stage, parity);
      value_products(stage).add_pairs(sums, shares, shrink);
      release(barriers.v_empty + stage);
    }
  }

  // 16-bit numbers: the scores of a step are multiplied before the sums of the step before, and
  // their exponentials taken while these are, and while other warpgroups multiply.
  __device__ __forceinline__ void consume_plain(Sums& sums, RowState<Config>& state, Ring& k,
                                                Ring& v, MaskRing& masks, int q_phase) const {
    const float factor = score_factor();
    constexpr bool IS_ADDED = Config::MASKING == Masking::ADD;
    const float unit = IS_ADDED ? 1.0f : factor;
    const int count = steps(), own = warpgroup();
    wait(&barriers.q_full, q_phase);
    float scores[Tile::SCORES], shrink[2];
    wait(barriers.k_full + k.stage, k.phase);
    fence_products();
    score_products(k.stage).multiply_all(scores);
    commit_products();
    wait_products<0>();
    pin(scores);
    release(barriers.k_empty + k.stage);
    k.advance();
    if (count == 1) release(&barriers.q_empty);
    mask(scores, 0, factor, masks);
    state.weigh(scores, unit, shrink);
    Shares<Tile> shares;
    shares.set(scores);
#pragma unroll 1
    for (int step = 1; step < count; ++step) {
      wait(barriers.k_full + k.stage, k.phase);
      Turns::wait_for(own);
      fence_products();
      score_products(k.stage).multiply_all(scores);
      commit_products();
      wait(barriers.v_full + v.stage, v.phase);
      value_products(v.stage).issue_all(sums, shares);
      Turns::give_on(own);
      wait_products<1>();
      pin(scores);
      release(barriers.k_empty + k.stage);
      k.advance();
      if (step + 1 == count) release(&barriers.q_empty);
      mask(scores, step, factor, masks);
      const bool shrinks = state.weigh(scores, unit, shrink);
      wait_products<0>();
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
      release(barriers.v_empty + v.stage);
      v.advance();
      shares.set(scores);
      if (shrinks) {
#pragma unroll
        for (int part = 0; part < Tile::PARTS; ++part) {
#pragma unroll
          for (int i = 0; i < Tile::PART / 2; ++i) sums[part][i] *= shrink[i / 2 % 2];
        }
      }
    }
    wait(barriers.v_full + v.stage, v.phase);
    value_products(v.stage).issue_all(sums, shares);
    wait_products<0>();
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
    release(barriers.v_empty + v.stage);
    v.advance();
  }

  // The rows of a place, by a warpgroup.
  __device__ __forceinline__ void attend(Ring& k, Ring& v, MaskRing& masks, int q_phase) const {
    Sums sums;
    RowState<Config> state;
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
#pragma unroll
      for (int i = 0; i < Tile::PART / 2; ++i) sums[part][i] = 0;
    }
    if constexpr (Tile::PLANES == 2) {
      consume_pairs(sums, state);
    } else {
      consume_plain(sums, state, k, v, masks, q_phase);
    }
    store(sums, state);
  }

  __device__ __forceinline__ void consume() {
    Ring k, v;
    MaskRing masks;
    int q_phase = 0;
    const int own = warpgroup();
    if (own == Tile::CONSUMERS - 1) Turns::give_on(own);
    for (int turn = 0; AttentionPlace::find<Config>(p, turn, at); ++turn) {
      if (at.row < 0) continue;
      attend(k, v, masks, q_phase);
      q_phase ^= 1;
    }
    if (own == 0) Turns::wait_for(own);
  }

  // Whether planes carry the head's operands.
  __device__ __forceinline__ bool fits() const {
    if constexpr (Tile::PLANES == 1) return true;
    const int exponents = exponent_of(0) + exponent_of(1);
    bool fits = exponents > -100 && exponents < 100;
    for (int i = 0; i < 3; ++i) fits = fits && p.room.unfit[i][head_number(i)] == 0;
    return fits;
  }

  __device__ __forceinline__ void run() {
    if (threadIdx.x < 128) {
      if constexpr (Tile::MOVES_REGISTERS) give_registers_back<Tile::PRODUCER_REGISTERS>();
      if (threadIdx.x == 0) produce();
    } else {
      if constexpr (Tile::MOVES_REGISTERS) take_registers<Tile::CONSUMER_REGISTERS>();
      consume();
    }
  }
};

// The rows of a block on the CUDA cores.
template <class Config>
__device__ __forceinline__ void attend_block_plainly(const AttentionProblem& p,
                                                     const AttentionPlace& at) {
  using Tile = AttentionTile<Config>;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < Tile::BLOCK_M; i += Tile::THREADS / 32) {
    if (at.row + i < p.rows) attend_plainly<Config>(p, at, at.row + i);
  }
}

// The body of a kernel of THREADS threads and SHARED_BYTES of dynamic shared memory.
template <class Config>
__device__ __forceinline__ void attention_sm90(const AttentionParameters& p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Tile = AttentionTile<Config>;
  extern __shared__ unsigned char attention_memory[];
  __shared__ AttentionBarriers<Tile> barriers;
  const uint32_t address = shared_address(attention_memory);
  AttentionBlock<Config> block = {
      p, barriers,
      attention_memory + (Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT,
      AttentionPlace::of<Tile>(p, Config::CAUSAL)};
  if (threadIdx.x == 0) {
    init_barrier(&barriers.q_full, 1);
    init_barrier(&barriers.q_empty, Tile::CONSUMER_WARPS);
    for (int i = 0; i < Tile::STAGES; ++i) {
      init_barrier(barriers.k_full + i, 1);
      init_barrier(barriers.v_full + i, 1);
      init_barrier(barriers.k_empty + i, Tile::CONSUMER_WARPS);
      init_barrier(barriers.v_empty + i, Tile::CONSUMER_WARPS);
    }
    for (int i = 0; i < Tile::MASK_STAGES; ++i) {
      init_barrier(barriers.mask_full + i, 1);
      init_barrier(barriers.mask_empty + i, Tile::CONSUMER_WARPS);
    }
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous_kernel();
  if (block.fits()) {
    block.run();
  } else {
    attend_block_plainly<Config>(p.problem, block.at);
  }
#endif
}

// The body of the kernel for rows that are wider than the config's.
template <class Config>
__device__ __forceinline__ void attention_wide(const AttentionParameters& p) {
  wait_for_previous_kernel();
  using Tile = AttentionTile<Config>;
  attend_block_plainly<Config>(p.problem, AttentionPlace::of<Tile>(p, Config::CAUSAL));
}
