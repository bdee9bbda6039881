#pragma once
// Few rows of 16-bit numbers on the tensor cores: a warp has 16 keys at a time, and as operands
// come from memory, so they are multiplied. Of eight rows each thread has two, of 16 keys two and,
// of v, four.

#include "attention_few_place.cuh"
#include "mma_16x8x16.cuh"

template <class Config>
struct FewProductsTile {
  static_assert(Config::WEIGHING == Weighing::SOFTMAX, "it adds exponentials");
  static constexpr int ROWS = Config::FEW;  // of all heads that have keys in common, at most
  static_assert(ROWS <= 8, "columns of a product");
  static constexpr int DEPTH_BLOCKS = (Config::DEPTH + 31) / 32;  // a run of each of four lanes
  static constexpr int WIDTH_BLOCKS = (Config::WIDTH + 63) / 64;  // a run of each of eight lanes
  static constexpr int COLUMNS =
      32 * DEPTH_BLOCKS > 64 * WIDTH_BLOCKS ? 32 * DEPTH_BLOCKS : 64 * WIDTH_BLOCKS;
  static constexpr int PADDED = 64 * WIDTH_BLOCKS;       // columns of a row's sums
  static constexpr int GROUPS = (WIDTH_BLOCKS + 1) / 2;  // of 16 columns of a product
  static constexpr int KEYS = 16, WARPS = 8, THREADS = 32 * WARPS, STEP = WARPS * KEYS;
  static constexpr bool IS_AHEAD = DEPTH_BLOCKS <= 4;  // keys come a step before they are wanted
  static constexpr int STATE = PADDED + 2;             // of a row: sums, total, largest exponent
  static constexpr int BLOCKS = 1;                     // of a multiprocessor, by registers
};

template <class Config>
struct FewProducts : FewPlace<Config> {
  using Tile = FewProductsTile<Config>;
  using Element = typename Config::Element;
  static constexpr float SLACK = 8.0f;  // how far exponents go above what they are relative to

  uint32_t q[Tile::DEPTH_BLOCKS][4];
  uint4 keys[2][Tile::DEPTH_BLOCKS];
  float sums[Tile::GROUPS][8][4];
  float most[2], total[2];  // of rows 2 t and 2 t + 1

  __device__ __forceinline__ static int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ __forceinline__ static int t() { return static_cast<int>(threadIdx.x) % 4; }
  __device__ __forceinline__ static int first_of_warp(int first) {
    return first + static_cast<int>(threadIdx.x) / 32 * Tile::KEYS;
  }

  __device__ __forceinline__ void begin(int first, int end) {
    const Element* const from = this->q_row(g());
    const int64_t stride = this->p.problem.operands[0].strides[3];
#pragma unroll
    for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 32 * block + 8 * t() + 2 * i;
        Element pair[2] = {};
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (column + c < this->p.problem.depth) pair[c] = from[(column + c) * stride];
        }
        memcpy(&q[block][i], pair, sizeof(pair));
      }
    }
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; ++group) {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums[group][i / 4][i % 4] = 0;
    }
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0;
    if constexpr (Tile::IS_AHEAD) load_keys(first_of_warp(first), end);
  }

  __device__ __forceinline__ void load_keys(int first, int end) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
        keys[half][block] =
            this->load(1, this->p.problem.depth, first + 8 * half + g(), end, 32 * block + 8 * t());
      }
    }
  }

  // Products of the warp's keys and rows: of keys g and g + 8 each two rows.
  __device__ __forceinline__ void multiply(float (&scores)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = 0;
#pragma unroll
    for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
      const uint4 upper = keys[0][block], lower = keys[1][block];
      WarpProduct<Element>::add(scores, {upper.x, lower.x, upper.y, lower.y},
                                {q[block][0], q[block][1]});
      WarpProduct<Element>::add(scores, {upper.z, lower.z, upper.w, lower.w},
                                {q[block][2], q[block][3]});
    }
  }

  // Exponents become exponentials, relative to a large one of the row.
  __device__ __forceinline__ void weigh(float (&scores)[4]) {
    const float largest[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
    const bool grows = largest[0] > most[0] + SLACK || largest[1] > most[1] + SLACK;
    if (__any_sync(0xffffffffu, grows)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) move(r, largest[r]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float origin = FewTotals::origin(most[r]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& score = scores[2 * half + r];
        score = flushed_exp2(score - origin);
        total[r] += score;
      }
    }
  }
  __device__ __forceinline__ void move(int r, float largest) {
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    }
    largest = fmaxf(largest, most[r]);
    const float shrink = flushed_exp2(most[r] - FewTotals::origin(largest));
    most[r] = largest;
    total[r] *= shrink;
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; ++group) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sums[group][i][r] *= shrink;
        sums[group][i][r + 2] *= shrink;
      }
    }
  }

  // The block's keys from `first` on; loads those after them.
  __device__ __forceinline__ void step(int first, int end) {
    const int own = first_of_warp(first);
    if constexpr (!Tile::IS_AHEAD) load_keys(own, end);
    uint4 values[4][Tile::WIDTH_BLOCKS];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int block = 0; block < Tile::WIDTH_BLOCKS; ++block) {
        values[i][block] = this->load(2, this->p.problem.width, own + i / 2 * 8 + 2 * t() + i % 2,
                                      end, 64 * block + 8 * g());
      }
    }
    float scores[4];
    multiply(scores);
    if constexpr (Tile::IS_AHEAD) load_keys(own + Tile::STEP, end);
    const float scale = this->p.problem.scale * this->LOG2_E;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = this->masked(scores[i] * scale, 2 * t() + i % 2, own + i / 2 * 8 + g(), end);
    }
    weigh(scores);
    const uint32_t shares[2] = {transposed_pairs(attention_pair<Element>(scores[0], scores[1])),
                                transposed_pairs(attention_pair<Element>(scores[2], scores[3]))};
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; ++group) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        uint32_t lhs[4] = {};
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int block = 2 * group + side;
          if (block >= Tile::WIDTH_BLOCKS) continue;
          lhs[side] = pair_of(values[0][block], values[1][block], c);
          lhs[side + 2] = pair_of(values[2][block], values[3][block], c);
        }
        WarpProduct<Element>::add(sums[group][c], lhs, shares);
      }
    }
  }
  // Element c of two keys.
  __device__ __forceinline__ static uint32_t pair_of(const uint4& first, const uint4& second,
                                                     int c) {
    const uint32_t one[4] = {first.x, first.y, first.z, first.w};
    const uint32_t other[4] = {second.x, second.y, second.z, second.w};
    return __byte_perm(one[c / 2], other[c / 2], c % 2 == 0 ? 0x5410 : 0x7632);
  }

  // Totals of whole rows.
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) {
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], distance);
      }
    }
  }

  // The warp's state of each row.
  __device__ __forceinline__ void leave(float* states) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * t() + r;
      if (row >= Tile::ROWS) continue;
      float* const state = states + row * Tile::STATE;
#pragma unroll
      for (int block = 0; block < Tile::WIDTH_BLOCKS; ++block) {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          state[64 * block + 8 * g() + c] = sums[block / 2][c][block % 2 * 2 + r];
        }
      }
      if (g() == 0) {
        state[Tile::PADDED] = total[r];
        state[Tile::PADDED + 1] = most[r];
      }
    }
  }
};
