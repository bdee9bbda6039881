#pragma once
// Few rows of 16-bit numbers on the tensor cores: a warp has 16 keys at a time, and as operands
// come from memory, so they are multiplied. Of eight rows each thread has two, of 16 keys two and,
// of v, four.
//
// What is under way fills a ring in shared memory, not registers: so there is enough of it to keep
// memory busy. Each thread reads only what it sent for, and no warp waits for another.

#include "async_copy.cuh"
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
  static constexpr int STATE = PADDED + 2;  // of a row: sums, total, largest exponent

  // Runs of 16 bytes that a thread has of a step, and steps under way. Two blocks of a
  // multiprocessor have registers for narrow rows.
  static constexpr int BLOCKS = DEPTH_BLOCKS <= 2 && WIDTH_BLOCKS == 1 ? 2 : 1;
  static constexpr int KEY_RUNS = 2 * DEPTH_BLOCKS, RUNS = KEY_RUNS + 4 * WIDTH_BLOCKS;
  static constexpr int STAGE_BYTES = RUNS * THREADS * 16, ROOM = (192 << 10) / BLOCKS;
  static constexpr int FITTING = ROOM / STAGE_BYTES;
  static constexpr int STAGES = FITTING > 3 ? 3 : FITTING;
  static constexpr int RING_BYTES = STAGES * STAGE_BYTES;
  static constexpr int ASKED = STAGES * STEP;  // keys that come as soon as they may be read
};

template <class Config>
struct FewProducts : FewPlace<Config> {
  using Tile = FewProductsTile<Config>;
  using Element = typename Config::Element;
  static constexpr float SLACK = 8.0f;  // how far exponents go above what they are relative to

  uint4* slots;  // this thread's first one
  int stage;     // of the ring, whose turn it is
  uint4 q[Tile::DEPTH_BLOCKS];
  float sums[Tile::GROUPS][8][4];
  float most[2], total[2];  // of rows 2 t and 2 t + 1

  __device__ __forceinline__ static int g() { return static_cast<int>(threadIdx.x) % 32 / 4; }
  __device__ __forceinline__ static int t() { return static_cast<int>(threadIdx.x) % 4; }
  __device__ __forceinline__ static int first_of_warp(int first) {
    return first + static_cast<int>(threadIdx.x) / 32 * Tile::KEYS;
  }

  __device__ __forceinline__ void take_room(unsigned char* room) {
    slots = reinterpret_cast<uint4*>(room) + threadIdx.x;
  }
  __device__ __forceinline__ uint4* slot(int run) const {
    return slots + (stage * Tile::RUNS + run) * Tile::THREADS;
  }

  __device__ __forceinline__ void begin(int first, int end) {
#pragma unroll 1
    for (stage = 0; stage < Tile::STAGES; ++stage) {
      fetch(first_of_warp(first + stage * Tile::STEP), end);
    }
    stage = 0;
    const Element* const row = this->q_row(g());
#pragma unroll
    for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
      q[block] = this->run_of(0, this->p.problem.depth, row, 32 * block + 8 * t());
    }
#pragma unroll
    for (int group = 0; group < Tile::GROUPS; ++group) {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums[group][i / 4][i % 4] = 0;
    }
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0;
  }

  // Of this thread's runs of k and of v: the key after its first one, and the column. Its first
  // keys of a step are those of first_key(), after the warp's first.
  struct Place {
    int key, column;
  };
  template <int NUMBER>
  __device__ __forceinline__ static int first_key() {
    return NUMBER == 1 ? g() : 2 * t();
  }
  template <int NUMBER>
  __device__ __forceinline__ static Place place_of(int run) {
    if (NUMBER == 1) return {run % 2 * 8, run / 2 * 32 + 8 * t()};
    return {run % 4 / 2 * 8 + run % 2, run / 4 * 64 + 8 * g()};
  }

  // Sends for the warp's keys from `first` on, zeros where there are none.
  __device__ __forceinline__ void fetch(int first, int end) const {
    if (first < end) {
      fetch_of<1>(first, end, this->p.problem.depth, slot(0));
      fetch_of<2>(first, end, this->p.problem.width, slot(Tile::KEY_RUNS));
    }
    commit_copies();
  }
  template <int NUMBER>
  __device__ __forceinline__ void fetch_of(int first, int end, int columns, uint4* to) const {
    constexpr int RUNS = NUMBER == 1 ? Tile::KEY_RUNS : Tile::RUNS - Tile::KEY_RUNS;
    const int own = first + first_key<NUMBER>();
    if (this->p.has_vectors[NUMBER]) {
      const int64_t stride = this->p.problem.operands[NUMBER].strides[2];
      const Element* const row = this->key_row(NUMBER, own);
#pragma unroll
      for (int run = 0; run < RUNS; ++run) {
        const Place at = place_of<NUMBER>(run);
        const bool is_there = own + at.key < end && at.column < columns;
        copy_async<16>(to + run * Tile::THREADS, row + at.key * stride + at.column, is_there);
      }
    } else {
#pragma unroll 1
      for (int run = 0; run < RUNS; ++run) {
        const Place at = place_of<NUMBER>(run);
        to[run * Tile::THREADS] = this->load(NUMBER, columns, own + at.key, end, at.column);
      }
    }
  }

  // Products of the warp's keys and rows: of keys g and g + 8 each two rows.
  __device__ __forceinline__ void multiply(float (&scores)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = 0;
#pragma unroll
    for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
      const uint4 upper = *slot(2 * block), lower = *slot(2 * block + 1);
      WarpProduct<Element>::add(scores, {upper.x, lower.x, upper.y, lower.y},
                                {q[block].x, q[block].y});
      WarpProduct<Element>::add(scores, {upper.z, lower.z, upper.w, lower.w},
                                {q[block].z, q[block].w});
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

  // The warp's keys of the block's from `first` on; sends for those a ring later.
  __device__ __forceinline__ void step(int first, int end) {
    const int own = first_of_warp(first);
    wait_copies<Tile::STAGES - 1>();
    if (own < end) add(own, end);
    fetch(own + Tile::STAGES * Tile::STEP, end);
    stage = stage + 1 < Tile::STAGES ? stage + 1 : 0;
  }

  // Adds the warp's keys from `own` on.
  __device__ __forceinline__ void add(int own, int end) {
    float scores[4];
    multiply(scores);
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
      uint4 values[2][4] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int run = 8 * group + i;
        if (run < 4 * Tile::WIDTH_BLOCKS) values[i / 4][i % 4] = *slot(Tile::KEY_RUNS + run);
      }
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const uint32_t lhs[4] = {
            pair_of(values[0][0], values[0][1], c), pair_of(values[1][0], values[1][1], c),
            pair_of(values[0][2], values[0][3], c), pair_of(values[1][2], values[1][3], c)};
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
