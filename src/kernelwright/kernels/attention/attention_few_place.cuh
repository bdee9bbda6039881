#pragma once
// Attention of few rows and many keys, as when one token after the other is made: what of it does
// not tell how it is multiplied.

#include "attention_plain.cuh"
#include "vector.cuh"

struct FewParameters {
  AttentionProblem problem;
  int group;            // heads of q that have keys in common
  int splits;           // blocks of a cluster
  int keys_each;        // of a block
  bool has_vectors[2];  // runs of 16 bytes of k and v are aligned
};

// The rows of all heads of q that have keys in common, and how k and v are read for them. Rows that
// are not there are the first.
template <class Config>
struct FewPlace {
  using Element = typename Config::Element;
  static constexpr int RUN = 16 / sizeof(Element);
  static constexpr float LOG2_E = 1.44269504088896340736f;

  const FewParameters& p;
  int batch, first_head;  // of q

  __device__ __forceinline__ bool is_there(int row) const { return row < p.group * p.problem.rows; }
  __device__ __forceinline__ int head_of(int row) const {
    return is_there(row) ? first_head + row / p.problem.rows : first_head;
  }
  __device__ __forceinline__ int row_of(int row) const {
    return is_there(row) ? row % p.problem.rows : 0;
  }
  __device__ __forceinline__ const Element* q_row(int row) const {
    return static_cast<const Element*>(p.problem.operands[0].data) +
           p.problem.offset_of(0, batch, head_of(row)) +
           row_of(row) * p.problem.operands[0].strides[2];
  }

  // Keys and values, of which nearly all were there long ago, on their way while the kernel before
  // ends.
  __device__ __forceinline__ void ask_for(int first, int end, int threads) const {
#pragma unroll
    for (int number = 1; number < 3; ++number) {
      const AttentionOperand& operand = p.problem.operands[number];
      if (!p.has_vectors[number - 1]) continue;
      const auto* const from = static_cast<const Element*>(operand.data) +
                               p.problem.offset_of(number, batch, first_head);
      prefetch_lines(from + first * operand.strides[2], operand.strides[2], end - first,
                     operand.columns, static_cast<int>(threadIdx.x), threads);
    }
  }

  // The run of a row of k or v, operand 1 or 2, from a column on; zeros where there is nothing.
  __device__ __forceinline__ uint4 load(int number, int columns, int key, int end,
                                        int first) const {
    if (key >= end || first >= columns) return make_uint4(0, 0, 0, 0);
    const AttentionOperand& operand = p.problem.operands[number];
    const auto* const from = static_cast<const Element*>(operand.data) +
                             p.problem.offset_of(number, batch, first_head) +
                             key * operand.strides[2];
    if (p.has_vectors[number - 1]) return __ldg(reinterpret_cast<const uint4*>(from + first));
    alignas(16) Element elements[RUN] = {};
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      if (first + i < columns) elements[i] = from[(first + i) * operand.strides[3]];
    }
    return *reinterpret_cast<const uint4*>(elements);
  }

  // An exponent of 2 with its mask.
  __device__ __forceinline__ float masked(float score, int row, int key, int end) const {
    if (key >= end || (Config::CAUSAL && key > row_of(row))) return -INFINITY;
    if constexpr (Config::MASKING != Masking::NONE) {
      const int64_t* const strides = p.problem.mask_strides;
      const int64_t place = batch % p.problem.mask_batches * strides[0] +
                            head_of(row) * strides[1] + row_of(row) * strides[2] + key * strides[3];
      if constexpr (Config::MASKING == Masking::KEEP) {
        return static_cast<const bool*>(p.problem.mask)[place] ? score : -INFINITY;
      } else {
        // What people write for -inf stays finite.
        constexpr float LEAST = -3.4e38f;
        const float added = attention_number(static_cast<const Element*>(p.problem.mask)[place]);
        const float sum = fmaf(added, LOG2_E, score);
        return sum < LEAST && added > -INFINITY ? LEAST : sum;
      }
    }
    return score;
  }
};

// Sums of exponentials of `count` parts, each relative to its own largest exponent, and what they
// are relative to together.
struct FewTotals {
  float most = -INFINITY, total = 0;

  __device__ __forceinline__ static float origin(float most) {
    return most == -INFINITY ? 0.0f : most;
  }
};
