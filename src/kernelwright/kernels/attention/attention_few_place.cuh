#pragma once
// Attention of few rows and many keys, as when one token after the other is made: what of it does
// not tell how it is multiplied.

#include "attention_plain.cuh"
#include "bulk_copy.cuh"
#include "vector.cuh"

struct FewParameters {
  AttentionProblem problem;
  int group;            // heads of q that have keys in common
  int splits;           // blocks of a cluster
  int keys_each;        // of a block
  int room_bytes;       // before the states of a cluster's blocks
  bool has_vectors[3];  // runs of 16 bytes of q, k and v are aligned
};

// The rows of all heads of q that have keys in common, and how k and v are read for them. Rows that
// are not there are the first.
template <class Config>
struct FewPlace {
  using Element = typename Config::Element;
  static constexpr int RUN = 16 / sizeof(Element);
  static constexpr float LOG2_E = 1.44269504088896340736f;

  const FewParameters& p;
  int batch, first_head;     // of q
  const Element* starts[3];  // of the first head of q, and of its k and v

  __device__ __forceinline__ FewPlace(const FewParameters& p, int batch, int first_head)
      : p(p), batch(batch), first_head(first_head) {
#pragma unroll
    for (int number = 0; number < 3; ++number) {
      starts[number] = static_cast<const Element*>(p.problem.operands[number].data) +
                       p.problem.offset_of(number, batch, first_head);
    }
  }

  __device__ __forceinline__ bool is_there(int row) const { return row < p.group * p.problem.rows; }
  __device__ __forceinline__ int head_of(int row) const {
    return is_there(row) ? first_head + row / p.problem.rows : first_head;
  }
  __device__ __forceinline__ int row_of(int row) const {
    return is_there(row) ? row % p.problem.rows : 0;
  }
  __device__ __forceinline__ const Element* q_row(int row) const {
    const int64_t* const strides = p.problem.operands[0].strides;
    return starts[0] + (head_of(row) - first_head) * strides[1] + row_of(row) * strides[2];
  }

  // Keys and values, of which nearly all were there long ago, on their way while the kernel before
  // ends.
  __device__ __forceinline__ void ask_for(int first, int count, int threads) const {
#pragma unroll
    for (int number = 1; number < 3; ++number) {
      const AttentionOperand& operand = p.problem.operands[number];
      if (!p.has_vectors[number] || count <= 0) continue;
      const Element* const from = key_row(number, first);
      if (operand.strides[2] == operand.columns) {
        if (threadIdx.x == 0)
          prefetch_bulk(from, count * operand.columns * static_cast<int>(sizeof(Element)));
      } else {
        prefetch_lines(from, operand.strides[2], count, operand.columns,
                       static_cast<int>(threadIdx.x), threads);
      }
    }
  }

  // The row of k or v, operand 1 or 2, of a key.
  __device__ __forceinline__ const Element* key_row(int number, int key) const {
    return starts[number] + key * p.problem.operands[number].strides[2];
  }
  // The run of a row of k or v from a column on; zeros where there is nothing.
  __device__ __forceinline__ uint4 load(int number, int columns, int key, int end,
                                        int first) const {
    if (key >= end) return make_uint4(0, 0, 0, 0);
    return run_of(number, columns, key_row(number, key), first);
  }
  // The run of a row of an operand from a column on.
  __device__ __forceinline__ uint4 run_of(int number, int columns, const Element* row,
                                          int first) const {
    if (first >= columns) return make_uint4(0, 0, 0, 0);
    if (p.has_vectors[number]) return __ldg(reinterpret_cast<const uint4*>(row + first));
    alignas(16) Element elements[RUN] = {};
#pragma unroll
    for (int i = 0; i < RUN; ++i) {
      if (first + i < columns)
        elements[i] = row[(first + i) * p.problem.operands[number].strides[3]];
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

// What exponents are relative to where this is the largest.
struct FewTotals {
  __device__ __forceinline__ static float origin(float most) {
    return most == -INFINITY ? 0.0f : most;
  }
};

// States of rows in shared memory, of several parts of their keys each: sums of columns, and after
// them their total and the largest exponent, which all of these are relative to.
template <class Tile>
struct FewStates {
  static constexpr int QUADS = Tile::PADDED / 4 + 1;

  float4* data;

  __host__ __device__ static constexpr int bytes(int parts) {
    return parts * Tile::ROWS * QUADS * static_cast<int>(sizeof(float4));
  }
  __device__ __forceinline__ float4* of(int part, int row) const {
    return data + (part * Tile::ROWS + row) * QUADS;
  }
  __device__ __forceinline__ float4& totals(int part, int row) const {
    return of(part, row)[QUADS - 1];
  }

  __device__ __forceinline__ float most_of(int row, int parts) const {
    float most = -INFINITY;
#pragma unroll 4
    for (int i = 0; i < parts; ++i) most = fmaxf(most, totals(i, row).y);
    return most;
  }
  // How a part counts beside one with the largest exponent.
  __device__ __forceinline__ float weight(int part, int row, float most) const {
    return exp2f(totals(part, row).y - FewTotals::origin(most));
  }
  // Four neighbours of all parts together.
  __device__ __forceinline__ float4 together(int row, int quad, int parts) const {
    const float most = most_of(row, parts);
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
    for (int i = 0; i < parts; ++i) {
      const float share = weight(i, row, most);
      const float4 own = of(i, row)[quad];
      sum.x = fmaf(own.x, share, sum.x);
      sum.y = fmaf(own.y, share, sum.y);
      sum.z = fmaf(own.z, share, sum.z);
      sum.w = fmaf(own.w, share, sum.w);
    }
    if (quad == QUADS - 1) sum.y = most;
    return sum;
  }
};
