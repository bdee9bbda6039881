#pragma once
// Few rows of 16-bit numbers on the tensor cores: a warp has 16 keys at a time, and as operands
// come from memory, so they are multiplied. Of eight rows each thread has two, of 16 keys two and,
// of v, four.
//
// What is under way fills a ring in shared memory, not registers: so there is enough of it to keep
// memory busy. Each warp has a ring of its own, and no warp waits for another.

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
  // Of a multiprocessor by registers; a whole ring leaves room for one.
  static constexpr int BLOCKS = DEPTH_BLOCKS <= 2 && WIDTH_BLOCKS == 1 ? 2 : 1;

  // Runs of 16 bytes that a thread has of a step, and steps under way.
  static constexpr int KEY_RUNS = 2 * DEPTH_BLOCKS, RUNS = KEY_RUNS + 4 * WIDTH_BLOCKS;
  static constexpr int STAGE_BYTES = RUNS * THREADS * 16, ROOM = 192 << 10;
  static constexpr int FITTING = ROOM / STAGE_BYTES;
  static constexpr int STAGES = FITTING > 6 ? 6 : FITTING;
  static constexpr int LEAD = STAGES * STEP;  // keys that come as soon as they may be read
  static constexpr int ASKED = LEAD;

  // Neighbouring runs of a key that a warp sends for at once: a whole line where there is one.
  static constexpr int LINE = DEPTH_BLOCKS % 2 == 0 ? 8 : 4;
  static constexpr int KEYS_AT_ONCE = 32 / LINE, LOADS = KEYS / KEYS_AT_ONCE;
};

template <class Config>
struct FewProducts : FewPlace<Config> {
  using Tile = FewProductsTile<Config>;
  using Element = typename Config::Element;
  static constexpr float SLACK = 8.0f;  // how far exponents go above what they are relative to

  uint4* slots;          // the warp's first one
  int stage;             // of the ring, whose turn it is
  const Element *k, *v;  // this thread's next ones, where runs are aligned
  int64_t k_stride, v_stride;
  uint4 q[Tile::DEPTH_BLOCKS];
  float sums[Tile::GROUPS][8][4];
  float most[2], total[2];  // of rows 2 t and 2 t + 1

  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ static int g() { return lane() / 4; }
  __device__ __forceinline__ static int t() { return lane() % 4; }
  __device__ __forceinline__ static int first_of_warp(int first) {
    return first + static_cast<int>(threadIdx.x) / 32 * Tile::KEYS;
  }

  __device__ __forceinline__ void take_room(unsigned char* room) {
    slots = reinterpret_cast<uint4*>(room) + static_cast<int>(threadIdx.x) / 32 * 32;
  }
  __device__ __forceinline__ uint4* slot(int run) const {
    return slots + (stage * Tile::RUNS + run) * Tile::THREADS;
  }

  __device__ __forceinline__ void begin(int first) {
    stage = 0;
    const int own = first_of_warp(first);
    k_stride = this->p.problem.operands[1].strides[2];
    v_stride = this->p.problem.operands[2].strides[2];
    k = this->key_row(1, own + k_key()) + k_column();
    v = this->key_row(2, own + v_key()) + v_column();
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

  // A thread's first key and column of k, and where its runs wait: where runs of two keys are read
  // at once, they lie in different halves of the banks.
  __device__ __forceinline__ static int k_key() { return lane() / Tile::LINE; }
  __device__ __forceinline__ static int k_column() { return 8 * (lane() % Tile::LINE); }
  __device__ __forceinline__ static int half_of(int key) {
    return Tile::LINE == 8 ? key % 2 * 4 : 0;
  }

  // The same of v, of which eight lanes read a line, and four keys, two apart, are read at once.
  __device__ __forceinline__ static int v_key() { return lane() / 8; }
  __device__ __forceinline__ static int v_column() { return 8 * (lane() % 8); }
  __device__ __forceinline__ static int turn_of(int key) { return key % 8 / 2 * 2; }

  // Sends for the warp's keys from `first` on, zeros where there are none.
  __device__ __forceinline__ void fetch(int first, int end) {
    if (first < end) {
      fetch_keys(first + k_key(), end, slot(0) + (lane() ^ half_of(k_key())));
      fetch_values(first + v_key(), end, slot(Tile::KEY_RUNS));
    }
    commit_copies();
    k += Tile::STEP * k_stride;
    v += Tile::STEP * v_stride;
  }
  __device__ __forceinline__ void fetch_keys(int key, int end, uint4* to) const {
    const int columns = this->p.problem.depth;
    if (this->p.has_vectors[1]) {
#pragma unroll
      for (int run = 0; run < Tile::KEY_RUNS; ++run) {
        const int after = run % Tile::LOADS * Tile::KEYS_AT_ONCE;
        const int right = run / Tile::LOADS * 8 * Tile::LINE;
        copy_async<16>(to + run * Tile::THREADS, k + after * k_stride + right,
                       key + after < end && k_column() + right < columns);
      }
    } else {
#pragma unroll 1
      for (int run = 0; run < Tile::KEY_RUNS; ++run) {
        to[run * Tile::THREADS] =
            this->load(1, columns, key + run % Tile::LOADS * Tile::KEYS_AT_ONCE, end,
                       k_column() + run / Tile::LOADS * 8 * Tile::LINE);
      }
    }
  }
  // Of v four keys for each 64 columns at once.
  __device__ __forceinline__ void fetch_values(int key, int end, uint4* to) const {
    constexpr int RUNS = Tile::RUNS - Tile::KEY_RUNS;
    const int columns = this->p.problem.width;
    const auto place = [&](int run) {
      return to + run * Tile::THREADS + (lane() ^ turn_of(v_key() + run % 4 * 4));
    };
    if (this->p.has_vectors[2]) {
#pragma unroll
      for (int run = 0; run < RUNS; ++run) {
        const int after = run % 4 * 4, right = run / 4 * 64;
        copy_async<16>(place(run), v + after * v_stride + right,
                       key + after < end && v_column() + right < columns);
      }
    } else {
#pragma unroll 1
      for (int run = 0; run < RUNS; ++run) {
        *place(run) = this->load(2, columns, key + run % 4 * 4, end, v_column() + run / 4 * 64);
      }
    }
  }

  // The run of a key of this step, from column 64 * block + 8 * g on.
  __device__ __forceinline__ const uint4& value_run(int block, int key) const {
    return slot(Tile::KEY_RUNS + 4 * block + key / 4)[key % 4 * 8 + (g() ^ turn_of(key))];
  }

  // The run of key g, or the one eight further, from column 32 * block + 8 * t on.
  __device__ __forceinline__ const uint4& key_run(int block, int eight) const {
    const int key = g() + 8 * eight, right = 4 * block + t();
    const int run = key / Tile::KEYS_AT_ONCE + right / Tile::LINE * Tile::LOADS;
    const int place = key % Tile::KEYS_AT_ONCE * Tile::LINE + right % Tile::LINE;
    return slot(run)[place ^ half_of(key)];
  }

  // Products of the warp's keys and rows: of keys g and g + 8 each two rows.
  __device__ __forceinline__ void multiply(float (&scores)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = 0;
#pragma unroll
    for (int block = 0; block < Tile::DEPTH_BLOCKS; ++block) {
      const uint4 upper = key_run(block, 0), lower = key_run(block, 1);
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

  // The warp's keys of the block's from `key` on, none of them before `first`; sends for those a
  // ring later.
  __device__ __forceinline__ void step(int key, int first, int end) {
    const int own = first_of_warp(key);
    if (key >= first) {
      wait_copies<Tile::STAGES - 1>();
      __syncwarp();  // what other lanes sent for is there, too
      if (own < end) add(own, end);
      __syncwarp();  // all have read
    }
    fetch(own + Tile::LEAD, end);
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
        const int key = 2 * t() + i % 4 / 2 * 8 + i % 2;
        if (run < 4 * Tile::WIDTH_BLOCKS) values[i / 4][i % 4] = value_run(run / 4, key);
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
  __device__ __forceinline__ void leave(FewStates<Tile> states) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 2 * t() + r;
      if (row >= Tile::ROWS) continue;
#pragma unroll
      for (int block = 0; block < Tile::WIDTH_BLOCKS; ++block) {
#pragma unroll
        for (int c = 0; c < 8; c += 4) {
          const int own = block % 2 * 2 + r;
          const auto& of = sums[block / 2];
          states.of(static_cast<int>(threadIdx.x) / 32, row)[(64 * block + 8 * g() + c) / 4] =
              make_float4(of[c][own], of[c + 1][own], of[c + 2][own], of[c + 3][own]);
        }
      }
      if (g() == 0) {
        states.totals(static_cast<int>(threadIdx.x) / 32, row) =
            make_float4(total[r], most[r], 0, 0);
      }
    }
  }
};
