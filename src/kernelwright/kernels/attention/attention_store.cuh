#pragma once
// Rows of 16-bit results as runs of 16 bytes.

#include "attention_plain.cuh"

// Word number i of thread number j of four neighbours becomes word j of thread i.
__device__ __forceinline__ void transpose_words(uint32_t (&words)[4], int lane) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool is_upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const uint32_t sent = is_upper ? words[i] : words[i + distance];
      const uint32_t come = __shfl_xor_sync(0xffffffffu, sent, distance);
      (is_upper ? words[i] : words[i + distance]) = come;
    }
  }
}

// Row r of a thread's two, times `inverse`: of four runs, each thread of four takes one. A row that
// is not there has no address.
template <class Config>
__device__ __forceinline__ void store_runs(
    const float (&sums)[AttentionTile<Config>::PARTS][AttentionTile<Config>::PART / 2], int r,
    float inverse, bool is_zero, int width, typename Config::Element* to) {
  using Tile = AttentionTile<Config>;
  using Element = typename Config::Element;
  const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int run = 0; run < Tile::WIDTH / 8; run += 4) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = (run + i) * 8;
      const float* const pair = &sums[column / Tile::PART][column % Tile::PART / 2 + r * 2];
      words[i] = is_zero ? 0 : attention_pair<Element>(pair[0] * inverse, pair[1] * inverse);
    }
    transpose_words(words, lane);
    const int first = (run + lane) * 8;
    if (to != nullptr && first < width) {
      *reinterpret_cast<uint4*>(to + first) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}
