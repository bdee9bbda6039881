#pragma once
// Masks of scores, as a thread of a warpgroup has these: two rows eight apart, and of each eight
// keys two neighbours.

#include "attention_plain.cuh"

template <class Config>
struct AttentionMask {
  using Tile = AttentionTile<Config>;
  using Stored = typename Tile::Stored;

  float factor;  // of scores that a mask is added to

  __device__ __forceinline__ void change(float& score, Stored element) const {
    if constexpr (Config::MASKING == Masking::ADD) {
      score = fmaf(score, factor, attention_number(element));
    } else {
      score = element ? score : -INFINITY;
    }
  }

  // From boxes in shared memory, swizzled over 128 bytes; the first of the thread's rows there, and
  // how far the second is.
  __device__ __forceinline__ void apply(float (&scores)[Tile::SCORES], const unsigned char* box,
                                        int row, int next_row) const {
    struct alignas(2 * sizeof(Stored)) Pair {
      Stored elements[2];
    };
    const int own = static_cast<int>(threadIdx.x) % 4 * 2 * Tile::MASK_SIZE, turned = row % 8 * 16;
    const unsigned char* const rows = box + row * Tile::ROW_BYTES;
#pragma unroll
    for (int i = 0; i < Tile::SCORES / 4; ++i) {
      const int first = i * 8 * Tile::MASK_SIZE, block = first / Tile::ROW_BYTES;
      const int column = (first % Tile::ROW_BYTES + own) ^ turned;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const Pair pair = *reinterpret_cast<const Pair*>(rows + block * Tile::MASK_BLOCK +
                                                         r * next_row * Tile::ROW_BYTES + column);
#pragma unroll
        for (int c = 0; c < 2; ++c) change(scores[i * 4 + r * 2 + c], pair.elements[c]);
      }
    }
  }
};
