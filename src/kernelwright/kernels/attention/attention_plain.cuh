#pragma once
// Attention in float32 on the CUDA cores, for numbers that planes do not carry and for rows that
// are wider than a config has room for. Right, and slow.

#include "attention_problem.cuh"

__device__ __forceinline__ float attention_number(float value) { return value; }
__device__ __forceinline__ float attention_number(__half value) { return __half2float(value); }
__device__ __forceinline__ float attention_number(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <class Element>
__device__ __forceinline__ Element attention_element(float value) {
  if constexpr (sizeof(Element) == 4) {
    return value;
  } else if constexpr (std::is_same_v<Element, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// 2^x; results below 2^-126 are 0.
__device__ __forceinline__ float flushed_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Two neighbours, the first in the lower half.
template <class Element>
__device__ __forceinline__ uint32_t attention_pair(float first, float second) {
  if constexpr (std::is_same_v<Element, __half>) {
    const __half2 both = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}

// A score that is masked: -inf where it is not kept.
template <class Config>
__device__ __forceinline__ float masked_score(const AttentionProblem& p, const AttentionPlace& at,
                                              int row, int key, float score) {
  constexpr float NEVER = -INFINITY;
  if (key >= p.keys || (Config::CAUSAL && key > row)) return NEVER;
  if constexpr (Config::MASKING != Masking::NONE) {
    const int64_t place = at.batch % p.mask_batches * p.mask_strides[0] +
                          at.head * p.mask_strides[1] + row * p.mask_strides[2] +
                          key * p.mask_strides[3];
    if constexpr (Config::MASKING == Masking::KEEP) {
      return static_cast<const bool*>(p.mask)[place] ? score : NEVER;
    } else {
      return score + attention_number(static_cast<const typename Config::Element*>(p.mask)[place]);
    }
  }
  return score;
}

// All columns of a row by one warp; the largest score so far, and sums relative to it.
template <class Config>
__device__ __forceinline__ void attend_plainly(const AttentionProblem& p, const AttentionPlace& at,
                                               int row) {
  using Element = typename Config::Element;
  constexpr int COLUMNS = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Element* from[3];
  for (int i = 0; i < 3; ++i) {
    from[i] = static_cast<const Element*>(p.operands[i].data) + p.offset_of(i, at.batch, at.head);
  }
  const int64_t *const qs = p.operands[0].strides, *const ks = p.operands[1].strides;
  const int64_t* const vs = p.operands[2].strides;
  auto* const to = static_cast<Element*>(p.result) + at.batch * p.result_strides[0] +
                   at.head * p.result_strides[1] + row * p.result_strides[2];
  for (int first = 0; first < p.width; first += 32 * COLUMNS) {
    float most = -INFINITY, total = 0, sums[COLUMNS] = {};
    for (int block = 0; block < p.keys; block += 32) {
      const int key = block + lane;
      float score = 0;
      if (key < p.keys) {
        // Sums of few numbers first: more accurate than one chain.
        for (int begin = 0; begin < p.depth; begin += 16) {
          float part = 0;
#pragma unroll 2
          for (int d = begin; d < min(begin + 16, p.depth); ++d) {
            part = fmaf(attention_number(from[0][row * qs[2] + d * qs[3]]),
                        attention_number(from[1][key * ks[2] + d * ks[3]]), part);
          }
          score += part;
        }
      }
      score = masked_score<Config>(p, at, row, key, score * p.scale);
      float share, shrink = 1.0f;
      if constexpr (Config::WEIGHING == Weighing::RELU) {
        share = score <= 0 ? 0.0f : score;
        most = 0;
        total = 1.0f;
      } else {
        float largest = score;
        for (int distance = 16; distance > 0; distance /= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        }
        largest = fmaxf(largest, most);
        const float base = largest == -INFINITY ? 0.0f : largest;
        share = expf(score - base);
        shrink = most == -INFINITY ? 0.0f : expf(most - base);
        most = largest;
        float sum = share;
        for (int distance = 16; distance > 0; distance /= 2) {
          sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        }
        total = total * shrink + sum;
      }
      float parts[COLUMNS] = {};
      for (int i = 0; i < 32 && block + i < p.keys; ++i) {
        const float weight = __shfl_sync(0xffffffffu, share, i);
        for (int c = 0; c < COLUMNS; ++c) {
          const int column = first + c * 32 + lane;
          if (column < p.width) {
            const float value = attention_number(from[2][(block + i) * vs[2] + column * vs[3]]);
            parts[c] = fmaf(weight, value, parts[c]);
          }
        }
      }
      for (int c = 0; c < COLUMNS; ++c) sums[c] = fmaf(sums[c], shrink, parts[c]);
    }
    const bool is_zero = p.keys == 0 || (Config::EMPTY_IS_ZERO && most == -INFINITY && total == 0);
    for (int c = 0; c < COLUMNS; ++c) {
      const int column = first + c * 32 + lane;
      if (column < p.width) {
        to[column * p.result_strides[3]] =
            attention_element<Element>(is_zero ? 0.0f : sums[c] / total);
      }
    }
  }
}
