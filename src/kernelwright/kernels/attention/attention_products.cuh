#pragma once
// The two products of a step: scores of 64 rows, and their exponentials times v.

#include "attention_problem.cuh"
#include "wgmma.cuh"
#include "wgmma_bf16.cuh"
#include "wgmma_bf16_registers.cuh"
#include "wgmma_f16.cuh"

// Instructions by what planes are made of and their columns.
template <class Plane, int N>
struct AttentionInstruction;
template <>
struct AttentionInstruction<__half, 64> {
  using FromShared = Wgmma64F16;
  using FromRegisters = Wgmma64F16;
};
template <>
struct AttentionInstruction<__half, 128> {
  using FromShared = Wgmma128F16;
  using FromRegisters = Wgmma128F16;
};
template <>
struct AttentionInstruction<__nv_bfloat16, 64> {
  using FromShared = Wgmma64Bf16;
  using FromRegisters = WgmmaRegistersBf16<64>;
};
template <>
struct AttentionInstruction<__nv_bfloat16, 128> {
  using FromShared = Wgmma128Bf16;
  using FromRegisters = WgmmaRegistersBf16<128>;
};

// Scores of a warpgroup's rows and the keys of a stage, which lie in shared memory as planes.
template <class Tile>
struct ScoreProducts {
  using Instruction =
      typename AttentionInstruction<typename Tile::Plane, Tile::BLOCK_N>::FromShared;
  using Scores = float[Tile::SCORES];

  MatrixDescriptor q, k;

  template <int Q_PLANE, int K_PLANE, int STEP>
  __device__ __forceinline__ void multiply(Scores& scores, int accumulate) const {
    constexpr int BLOCK = STEP / 4, BYTES = STEP % 4 * 32;
    Instruction::template multiply<0, 0>(
        scores, advance_matrix(q, Q_PLANE * Tile::Q_PLANE + BLOCK * Tile::Q_BLOCK + BYTES),
        advance_matrix(k, K_PLANE * Tile::K_PLANE + BLOCK * Tile::KEY_BLOCK + BYTES), accumulate);
  }

  // All of the depth in one chain.
  template <int STEP = 0>
  __device__ __forceinline__ void multiply_all(Scores& scores) const {
    if constexpr (STEP < Tile::STEPS) {
      multiply<0, 0, STEP>(scores, STEP > 0);
      multiply_all<STEP + 1>(scores);
    }
  }

  // A window of pairs, small products first.
  template <int STEP, int END>
  __device__ __forceinline__ void multiply_low(Scores& scores, int accumulate) const {
    if constexpr (STEP < END) {
      multiply<1, 0, STEP>(scores, accumulate);
      multiply<0, 1, STEP>(scores, 1);
      multiply_low<STEP + 1, END>(scores, 1);
    }
  }
  template <int STEP, int END>
  __device__ __forceinline__ void multiply_high(Scores& scores) const {
    if constexpr (STEP < END) {
      multiply<0, 0, STEP>(scores, 1);
      multiply_high<STEP + 1, END>(scores);
    }
  }
  template <int WINDOW>
  __device__ __forceinline__ void issue_window(Scores& scores) const {
    constexpr int FIRST = WINDOW * Tile::WINDOW;
    constexpr int END = FIRST + Tile::WINDOW < Tile::STEPS ? FIRST + Tile::WINDOW : Tile::STEPS;
    fence_products();
    multiply_low<FIRST, END>(scores, 0);
    multiply_high<FIRST, END>(scores);
    commit_products();
  }

  // Adds window number WINDOW, which is under way in `now`, and all after it.
  template <int WINDOW, int WINDOWS>
  __device__ __forceinline__ void add_windows(Scores& scores, Scores& now, Scores& next) const {
    if constexpr (WINDOW < WINDOWS) {
      if constexpr (WINDOW + 1 < WINDOWS) {
        issue_window<WINDOW + 1>(next);
        wait_products<1>();
      } else {
        wait_products<0>();
      }
      if constexpr (WINDOW == 1) pin(scores);
      pin(now);
#pragma unroll
      for (int i = 0; i < Tile::SCORES; ++i) scores[i] += now[i];
      add_windows<WINDOW + 1, WINDOWS>(scores, next, now);
    }
  }
  // The same one after the other, with fewer registers.
  template <int WINDOW, int WINDOWS>
  __device__ __forceinline__ void add_windows_slowly(Scores& scores, Scores& now) const {
    if constexpr (WINDOW < WINDOWS) {
      issue_window<WINDOW>(now);
      wait_products<0>();
      if constexpr (WINDOW == 1) pin(scores);
      pin(now);
#pragma unroll
      for (int i = 0; i < Tile::SCORES; ++i) scores[i] += now[i];
      add_windows_slowly<WINDOW + 1, WINDOWS>(scores, now);
    }
  }

  // Scores of pairs, complete on return.
  __device__ __forceinline__ void multiply_pairs(Scores& scores) const {
    constexpr int WINDOWS = (Tile::STEPS + Tile::WINDOW - 1) / Tile::WINDOW;
    issue_window<0>(scores);
    if constexpr (WINDOWS == 1) {
      wait_products<0>();
      pin(scores);
    } else if constexpr (Tile::WIDTH <= 128 && Tile::DEPTH <= 128) {
      Scores now, next;
      issue_window<1>(now);
      add_windows<1, WINDOWS>(scores, now, next);
    } else {
      Scores now;
      add_windows_slowly<1, WINDOWS>(scores, now);
    }
  }
};

// Operand A of the second product: of each thread and 16 keys four pairs, in each plane.
template <class Tile>
struct Shares {
  uint32_t pairs[Tile::PLANES][Tile::KEY_STEPS][4];

  __device__ __forceinline__ void set(const float (&scores)[Tile::SCORES]) {
#pragma unroll
    for (int step = 0; step < Tile::KEY_STEPS; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = scores[step * 8 + i * 2], y = scores[step * 8 + i * 2 + 1];
        if constexpr (Tile::PLANES == 2) {
          const __half2 high = __floats2half2_rn(x, y);
          const float2 wide = __half22float2(high);
          const __half2 low = __floats2half2_rn(x - wide.x, y - wide.y);
          pairs[0][step][i] = *reinterpret_cast<const uint32_t*>(&high);
          pairs[1][step][i] = *reinterpret_cast<const uint32_t*>(&low);
        } else if constexpr (std::is_same_v<typename Tile::Plane, __half>) {
          const __half2 both = __floats2half2_rn(x, y);
          pairs[0][step][i] = *reinterpret_cast<const uint32_t*>(&both);
        } else {
          const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
          pairs[0][step][i] = *reinterpret_cast<const uint32_t*>(&both);
        }
      }
    }
  }
};

// Sums of a warpgroup's rows over keys, by parts of the columns of v.
template <class Tile>
struct ValueProducts {
  using Instruction =
      typename AttentionInstruction<typename Tile::Plane, Tile::PART>::FromRegisters;
  using Part = float[Tile::PART / 2];

  MatrixDescriptor v;

  template <int P_PLANE, int V_PLANE>
  __device__ __forceinline__ void multiply(Part& sums, const Shares<Tile>& shares, int step,
                                           int part, int accumulate) const {
    constexpr int PART_BYTES = Tile::PART / 64 * Tile::KEY_BLOCK;
    Instruction::template multiply_registers<1>(
        sums, shares.pairs[P_PLANE][step],
        advance_matrix(v,
                       V_PLANE * Tile::V_PLANE + part * PART_BYTES + step * 16 * Tile::ROW_BYTES),
        accumulate);
  }

  // Adds to sums, in one chain.
  __device__ __forceinline__ void issue_all(Part (&sums)[Tile::PARTS],
                                            const Shares<Tile>& shares) const {
    fence_products();
#pragma unroll
    for (int step = 0; step < Tile::KEY_STEPS; ++step) {
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) {
        multiply<0, 0>(sums[part], shares, step, part, 1);
      }
    }
    commit_products();
  }

  // Window number `piece` of pairs: a part of the columns and KEY_WINDOW steps of keys.
  __device__ __forceinline__ void issue_pairs(Part& sums, const Shares<Tile>& shares,
                                              int piece) const {
    constexpr int WINDOWS = Tile::KEY_STEPS / Tile::KEY_WINDOW;
    const int part = piece / WINDOWS, first = piece % WINDOWS * Tile::KEY_WINDOW;
    fence_products();
#pragma unroll
    for (int step = first; step < first + Tile::KEY_WINDOW; ++step) {
      multiply<1, 0>(sums, shares, step, part, step > first);
      multiply<0, 1>(sums, shares, step, part, 1);
    }
#pragma unroll
    for (int step = first; step < first + Tile::KEY_WINDOW; ++step) {
      multiply<0, 0>(sums, shares, step, part, 1);
    }
    commit_products();
  }

  // sums = sums * shrink + products, complete on return. The shrinks are those of a thread's rows.
  __device__ __forceinline__ void add_pairs(Part (&sums)[Tile::PARTS], const Shares<Tile>& shares,
                                            const float (&shrink)[2]) const {
    constexpr int WINDOWS = Tile::KEY_STEPS / Tile::KEY_WINDOW, PIECES = Tile::PARTS * WINDOWS;
    Part pieces[2];
    issue_pairs(pieces[0], shares, 0);
#pragma unroll
    for (int i = 0; i < PIECES; ++i) {
      if (i + 1 < PIECES) {
        issue_pairs(pieces[(i + 1) % 2], shares, i + 1);
        wait_products<1>();
      } else {
        wait_products<0>();
      }
      Part& now = pieces[i % 2];
      Part& own = sums[i / WINDOWS];
      pin(now);
#pragma unroll
      for (int j = 0; j < Tile::PART / 2; ++j) {
        own[j] = i % WINDOWS == 0 ? fmaf(own[j], shrink[j / 2 % 2], now[j]) : own[j] + now[j];
      }
    }
  }
};
