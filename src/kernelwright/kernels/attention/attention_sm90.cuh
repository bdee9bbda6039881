#pragma once
// Attention on the tensor cores of compute capability 9.0a. See attention_problem.cuh.

#include "attention_plain.cuh"
#include "attention_prepare.cuh"
#include "attention_products.cuh"
#include "dependent_launch.cuh"

template <class Tile>
struct AttentionBarriers {
  Barrier q_full;
  Barrier k_full[Tile::STAGES], k_empty[Tile::STAGES];
  Barrier v_full[Tile::STAGES], v_empty[Tile::STAGES];
};

// Two rows of a thread, eight apart, of 64 of a warpgroup: the largest score so far, the exponent
// that is taken off, and this thread's sum of exponentials.
template <class Config>
struct RowState {
  using Tile = AttentionTile<Config>;
  // Exponentials of float32 lie in [0, 2^15]: low planes end at 2^-24.
  static constexpr float TOP = Tile::PLANES == 2 ? 15.0f : 0.0f;
  static constexpr float LOG2_E = 1.44269504088896340736f;

  float most[2] = {-INFINITY, -INFINITY}, offset[2] = {0, 0}, total[2] = {0, 0};

  // Scores become exponentials; `shrink` is what sums so far are multiplied with.
  __device__ __forceinline__ void step(float (&scores)[Tile::SCORES], float factor,
                                       float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = most[r];
#pragma unroll
      for (int i = 0; i < Tile::SCORES / 4; ++i) {
        largest = fmaxf(largest, fmaxf(scores[i * 4 + r * 2], scores[i * 4 + r * 2 + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float base = largest == -INFINITY ? 0.0f : TOP - largest * factor;
      shrink[r] = most[r] == -INFINITY ? 0.0f : exp2f(base - offset[r]);
      most[r] = largest;
      offset[r] = base;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < Tile::SCORES / 4; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i * 4 + r * 2 + c];
          score = exp2f(fmaf(score, factor, base));
          sum += score;
        }
      }
      total[r] = fmaf(total[r], shrink[r], sum);
    }
  }

  // Positive scores, times a power of two that brings the row's largest to [2^14, 2^15): `total` is
  // that power. NaN stays.
  __device__ __forceinline__ void step_positive(float (&scores)[Tile::SCORES], float factor,
                                                float (&shrink)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = fmaxf(most[r], 0.0f);
#pragma unroll
      for (int i = 0; i < Tile::SCORES / 4; ++i) {
        largest = fmaxf(largest, fmaxf(scores[i * 4 + r * 2], scores[i * 4 + r * 2 + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float power = plane_power(plane_exponent(__float_as_uint(largest * factor)));
      shrink[r] = most[r] > 0 ? power / total[r] : 1.0f;
      most[r] = largest;
      total[r] = power;
#pragma unroll
      for (int i = 0; i < Tile::SCORES / 4; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i * 4 + r * 2 + c];
          score = score <= 0 ? 0.0f : score * factor * power;
        }
      }
    }
  }

  // Scores, times `unit`, become what weighs v.
  __device__ __forceinline__ void weigh(float (&scores)[Tile::SCORES], float unit,
                                        float (&shrink)[2]) {
    if constexpr (Config::WEIGHING == Weighing::RELU) {
      step_positive(scores, unit, shrink);
    } else {
      step(scores, unit * LOG2_E, shrink);
    }
  }

  // Sums of whole rows.
  __device__ __forceinline__ void join() {
    if constexpr (Config::WEIGHING == Weighing::RELU) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
      total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
    }
  }
};

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

  __device__ __forceinline__ unsigned char* k_stage(int stage) const {
    return memory + Tile::Q_BYTES + stage * (Tile::K_BYTES + Tile::V_BYTES);
  }
  __device__ __forceinline__ unsigned char* v_stage(int stage) const {
    return k_stage(stage) + Tile::K_BYTES;
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

  __device__ __forceinline__ void produce() const {
    fetch<Tile::DEPTH_BLOCKS, Tile::BLOCK_M>(memory, 0, at.row, &barriers.q_full);
    const int count = steps();
    for (int step = 0; step < count; ++step) {
      const int stage = step % Tile::STAGES, parity = step / Tile::STAGES & 1;
      const int key = step * Tile::BLOCK_N;
      wait(barriers.k_empty + stage, parity ^ 1);
      fetch<Tile::DEPTH_BLOCKS, Tile::BLOCK_N>(k_stage(stage), 1, key, barriers.k_full + stage);
      wait(barriers.v_empty + stage, parity ^ 1);
      fetch<Tile::WIDTH_BLOCKS, Tile::BLOCK_N>(v_stage(stage), 2, key, barriers.v_full + stage);
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

  // Of the keys of a step, from `factor` times the scores on.
  __device__ __forceinline__ void mask(float (&scores)[Tile::SCORES], int step,
                                       float factor) const {
    const int first = step * Tile::BLOCK_N;
    const int last = first + Tile::BLOCK_N - 1;
    const int first_row = at.row + warpgroup() * 64;
    const bool cuts = last >= p.problem.keys || (Config::CAUSAL && last > first_row);
    if (Config::MASKING == Masking::NONE && !cuts) return;
    const int row = own_row();
#pragma unroll
    for (int i = 0; i < Tile::SCORES; ++i) {
      const int own = row + i / 2 % 2 * 8;
      const int key = first + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      if constexpr (Config::MASKING == Masking::ADD) {
        scores[i] = masked_row_score(own, key, scores[i] * factor);
      } else {
        scores[i] = masked_row_score(own, key, scores[i]);
      }
    }
  }
  __device__ __forceinline__ float masked_row_score(int row, int key, float score) const {
    // Rows that are not there have no mask.
    return row < p.problem.rows ? masked_score<Config>(p.problem, at, row, key, score) : score;
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
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = own_row() + r * 8;
      if (row >= problem.rows) continue;
      const bool is_zero = problem.keys == 0 || (Config::EMPTY_IS_ZERO && state.total[r] == 0);
      const float inverse = is_zero ? 0.0f : 1.0f / state.total[r];
      Element* const to = result + row * problem.result_strides[2];
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) {
#pragma unroll
        for (int i = 0; i < Tile::PART / 8; ++i) {
          const int first = part * Tile::PART + i * 8 + column;
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (first + c < problem.width) {
              const float sum = sums[part][i * 4 + r * 2 + c];
              to[(first + c) * problem.result_strides[3]] =
                  attention_element<Element>(is_zero ? 0.0f : sum * inverse * unscale);
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
    wait(&barriers.q_full, 0);
#pragma unroll 1
    for (int step = 0; step < count; ++step) {
      const int stage = step % Tile::STAGES, parity = step / Tile::STAGES & 1;
      float scores[Tile::SCORES], shrink[2];
      wait(barriers.k_full + stage, parity);
      score_products(stage).multiply_pairs(scores);
      release(barriers.k_empty + stage);
      mask(scores, step, factor);
      state.weigh(scores, IS_ADDED ? 1.0f : factor, shrink);
      Shares<Tile> shares;
      shares.set(scores);
      wait(barriers.v_full + stage, parity);
      value_products(stage).add_pairs(sums, shares, shrink);
      release(barriers.v_empty + stage);
    }
  }

  // 16-bit numbers: the scores of a step are multiplied before the sums of the step before, and
  // their exponentials taken while these are.
  __device__ __forceinline__ void consume_plain(Sums& sums, RowState<Config>& state) const {
    const float factor = score_factor();
    constexpr bool IS_ADDED = Config::MASKING == Masking::ADD;
    const float unit = IS_ADDED ? 1.0f : factor;
    const int count = steps();
    wait(&barriers.q_full, 0);
    if (count == 0) return;
    float scores[Tile::SCORES], shrink[2];
    wait(barriers.k_full, 0);
    fence_products();
    score_products(0).multiply_all(scores);
    commit_products();
    wait_products<0>();
    pin(scores);
    release(barriers.k_empty);
    mask(scores, 0, factor);
    state.weigh(scores, unit, shrink);
    Shares<Tile> shares;
    shares.set(scores);
#pragma unroll 1
    for (int step = 1; step < count; ++step) {
      const int stage = step % Tile::STAGES, parity = step / Tile::STAGES & 1;
      const int before = (step - 1) % Tile::STAGES, parity_before = (step - 1) / Tile::STAGES & 1;
      wait(barriers.k_full + stage, parity);
      fence_products();
      score_products(stage).multiply_all(scores);
      commit_products();
      wait(barriers.v_full + before, parity_before);
      value_products(before).issue_all(sums, shares);
      wait_products<1>();
      pin(scores);
      release(barriers.k_empty + stage);
      mask(scores, step, factor);
      state.weigh(scores, unit, shrink);
      wait_products<0>();
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) {
        pin(sums[part]);
#pragma unroll
        for (int i = 0; i < Tile::PART / 2; ++i) sums[part][i] *= shrink[i / 2 % 2];
      }
      release(barriers.v_empty + before);
      shares.set(scores);
    }
    const int last = (count - 1) % Tile::STAGES;
    wait(barriers.v_full + last, (count - 1) / Tile::STAGES & 1);
    value_products(last).issue_all(sums, shares);
    wait_products<0>();
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
  }

  __device__ __forceinline__ void consume() const {
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
      consume_plain(sums, state);
    }
    store(sums, state);
  }

  // Whether planes carry the head's operands.
  __device__ __forceinline__ bool fits() const {
    if constexpr (Tile::PLANES == 1) return true;
    const int exponents = exponent_of(0) + exponent_of(1);
    bool fits = exponents > -100 && exponents < 100;
    for (int i = 0; i < 3; ++i) fits = fits && p.room.unfit[i][head_number(i)] == 0;
    return fits;
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x < 128) {
      if constexpr (Tile::CONSUMERS == 2) give_registers_back<Tile::PRODUCER_REGISTERS>();
      if (threadIdx.x == 0) produce();
    } else {
      if constexpr (Tile::CONSUMERS == 2) take_registers<Tile::CONSUMER_REGISTERS>();
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
  const AttentionBlock<Config> block = {
      p, barriers,
      attention_memory + (Tile::ALIGNMENT - address % Tile::ALIGNMENT) % Tile::ALIGNMENT,
      AttentionPlace::of<Tile>(p, Config::CAUSAL)};
  if (threadIdx.x == 0) {
    init_barrier(&barriers.q_full, 1);
    for (int i = 0; i < Tile::STAGES; ++i) {
      init_barrier(barriers.k_full + i, 1);
      init_barrier(barriers.v_full + i, 1);
      init_barrier(barriers.k_empty + i, Tile::CONSUMER_WARPS);
      init_barrier(barriers.v_empty + i, Tile::CONSUMER_WARPS);
    }
    fence_barrier_init();
  }
  __syncthreads();
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
  using Tile = AttentionTile<Config>;
  attend_block_plainly<Config>(p.problem, AttentionPlace::of<Tile>(p, Config::CAUSAL));
}
