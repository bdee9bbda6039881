#pragma once
// Rows of scores in registers: what they become before they weigh v, and the sums of it.

#include "attention_plain.cuh"

// Two rows of a thread, eight apart, of 64 of a warpgroup: the score that exponents are relative
// to, the exponent that is taken off, and this thread's sum of exponentials.
template <class Config>
struct RowState {
  using Tile = AttentionTile<Config>;
  // Exponentials of float32 lie in [0, 2^15]: low planes end at 2^-24.
  static constexpr float TOP = Tile::PLANES == 2 ? 15.0f : 0.0f;
  // How far exponents of 16-bit numbers go above before they are taken relative to a larger score.
  static constexpr float SLACK = Tile::PLANES == 2 ? 0.0f : 8.0f;
  static constexpr float LOG2_E = 1.44269504088896340736f;

  float most[2] = {-INFINITY, -INFINITY}, bound[2] = {-INFINITY, -INFINITY};
  float offset[2] = {0, 0}, total[2] = {0, 0};
  // Whether a row's exponents are so far from 0, as of scores that a mask has made small, that they
  // are taken of differences; and whether one of the warp's rows is such.
  bool is_far[2] = {false, false}, are_far = false;
  static constexpr float FAR = 1 << 20;

  // Scores become exponentials. True, for all of a warp, where sums so far are multiplied with
  // `shrink`.
  __device__ __forceinline__ bool step(float (&scores)[Tile::SCORES], float factor,
                                       float (&shrink)[2]) {
    float largest[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(scores[r * 2], scores[r * 2 + 1]);
#pragma unroll
      for (int i = 1; i < Tile::SCORES / 4; ++i) {
        largest[r] = fmaxf(largest[r], fmaxf(scores[i * 4 + r * 2], scores[i * 4 + r * 2 + 1]));
      }
    }
    const bool grows = largest[0] > bound[0] || largest[1] > bound[1];
    const bool moves = __any_sync(0xffffffffu, grows);
    shrink[0] = shrink[1] = 1;
    if (moves) {
#pragma unroll
      for (int r = 0; r < 2; ++r) move(r, largest[r], factor, shrink[r]);
      are_far = __any_sync(0xffffffffu, is_far[0] || is_far[1]);
    }
    if (are_far) {
#pragma unroll
      for (int i = 0; i < Tile::SCORES; ++i) {
        const int r = i / 2 % 2;
        if (is_far[r]) scores[i] -= most[r];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < Tile::SCORES / 4; ++i) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& score = scores[i * 4 + r * 2 + c];
          score = flushed_exp2(fmaf(score, factor, offset[r]));
          sum[c] += score;
        }
      }
      total[r] += sum[0] + sum[1];
    }
    return moves;
  }

  // Takes exponents relative to a row's largest score so far.
  __device__ __forceinline__ void move(int r, float largest, float factor, float& shrink) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    largest = fmaxf(largest, most[r]);
    const bool is_none = largest == -INFINITY;
    const bool far = !is_none && fabsf(largest * factor) > FAR;
    const float base = is_none ? 0.0f : far ? TOP : TOP - largest * factor;
    float exponent = base - offset[r];
    if (far || is_far[r]) {
      exponent = far && is_far[r] ? (most[r] - largest) * factor
                 : far            ? TOP - fmaf(largest, factor, offset[r])
                                  : fmaf(most[r], factor, base) - TOP;
    }
    shrink = most[r] == -INFINITY ? 0.0f : flushed_exp2(exponent);
    is_far[r] = far;
    most[r] = largest;
    bound[r] = is_none ? largest : largest + SLACK / factor;
    offset[r] = base;
    total[r] *= shrink;
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

  // Scores, times `unit`, become what weighs v. True, for all of a warp, where sums so far are
  // multiplied with `shrink`.
  __device__ __forceinline__ bool weigh(float (&scores)[Tile::SCORES], float unit,
                                        float (&shrink)[2]) {
    if constexpr (Config::WEIGHING == Weighing::RELU) {
      step_positive(scores, unit, shrink);
      return true;
    } else {
      return step(scores, unit * LOG2_E, shrink);
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
