#pragma once
// Few rows in float32 on the CUDA cores: a key is some lanes', with all rows in their registers.

#include "attention_few_place.cuh"

template <class Config>
struct FewRowsTile {
  using Element = typename Config::Element;
  static_assert(Config::WEIGHING == Weighing::SOFTMAX, "it adds exponentials");
  static constexpr int ROWS = Config::FEW;  // of all heads that have keys in common, at most
  static constexpr int RUN = 16 / sizeof(Element);
  static constexpr int COLUMNS = Config::DEPTH > Config::WIDTH ? Config::DEPTH : Config::WIDTH;

  // The next power of two, up to a warp.
  static constexpr int lanes_of(int runs) {
    int lanes = 1;
    while (lanes < runs && lanes < 32) lanes *= 2;
    return lanes;
  }
  static constexpr int LANES = lanes_of((COLUMNS + RUN - 1) / RUN);  // of a key
  static constexpr int TURNS = (COLUMNS + LANES * RUN - 1) / (LANES * RUN);
  static constexpr int OWN = TURNS * RUN;     // columns of a lane
  static constexpr int PADDED = LANES * OWN;  // columns of all of them
  static constexpr int KEYS = 32 / LANES;     // that a warp loads at once
  static constexpr bool HAS_MASK = Config::MASKING != Masking::NONE;
  static constexpr int BLOCKS = ROWS * OWN * TURNS > (HAS_MASK ? 16 : 32) ? 1 : 2;  // at a time
  // Keys of a lane under way, by registers: those of a row's columns, of a key's, of scores.
  static constexpr int REGISTERS = (BLOCKS == 1 ? 200 : 100) - (HAS_MASK ? 20 : 0);
  static constexpr int FITTING = (REGISTERS - 2 * ROWS * OWN) / (8 * TURNS + ROWS);
  static constexpr int AHEAD = FITTING < 2 ? 2 : FITTING > 8 ? 8 : FITTING;
  static constexpr int WARPS = 8, THREADS = 32 * WARPS, STEP = WARPS * KEYS * AHEAD;
  // What is under way is in registers.
  static constexpr int STAGES = 1, STAGE_BYTES = 0, LEAD = 0;
  static constexpr int ASKED = (128 << 10) / (PADDED * static_cast<int>(sizeof(Element)));
};

template <class Config>
struct FewRows : FewPlace<Config> {
  using Tile = FewRowsTile<Config>;
  using Element = typename Config::Element;
  static constexpr int ROWS = Tile::ROWS, OWN = Tile::OWN, RUN = Tile::RUN;

  float q[ROWS][OWN], sums[ROWS][OWN];
  float most[ROWS], total[ROWS];

  __device__ __forceinline__ void take_room(unsigned char*) {}

  __device__ __forceinline__ static int lane() {
    return static_cast<int>(threadIdx.x) % Tile::LANES;
  }
  __device__ __forceinline__ static int column(int own) {
    return (own / RUN * Tile::LANES + lane()) * RUN + own % RUN;
  }
  __device__ __forceinline__ void begin(int) {
    const float scale = this->p.problem.scale * this->LOG2_E;
    const int64_t stride = this->p.problem.operands[0].strides[3];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const Element* const from = this->q_row(r);
#pragma unroll
      for (int i = 0; i < OWN; ++i) {
        const int at = column(i);
        q[r][i] = at < this->p.problem.depth ? attention_number(from[at * stride]) * scale : 0.0f;
        sums[r][i] = 0;
      }
      most[r] = -INFINITY;
      total[r] = 0;
    }
  }

  __device__ __forceinline__ void load_row(int number, int columns, int key, int end,
                                           uint4 (&runs)[Tile::TURNS]) const {
#pragma unroll
    for (int t = 0; t < Tile::TURNS; ++t) {
      runs[t] = this->load(number, columns, key, end, column(t * RUN));
    }
  }
  __device__ __forceinline__ static void widen(const uint4 (&runs)[Tile::TURNS],
                                               float (&numbers)[OWN]) {
#pragma unroll
    for (int t = 0; t < Tile::TURNS; ++t) {
      alignas(16) Element elements[RUN];
      *reinterpret_cast<uint4*>(elements) = runs[t];
#pragma unroll
      for (int i = 0; i < RUN; ++i) numbers[t * RUN + i] = attention_number(elements[i]);
    }
  }

  // Exponents of a key, in all lanes that have it.
  __device__ __forceinline__ void score(const uint4 (&runs)[Tile::TURNS], int key, int end,
                                        float (&scores)[ROWS]) const {
    float numbers[OWN];
    widen(runs, numbers);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      scores[r] = 0;
#pragma unroll
      for (int i = 0; i < OWN; ++i) scores[r] = fmaf(q[r][i], numbers[i], scores[r]);
    }
#pragma unroll
    for (int distance = Tile::LANES / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        scores[r] += __shfl_xor_sync(0xffffffffu, scores[r], distance);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) scores[r] = this->masked(scores[r], r, key, end);
  }

  // The keys of a warp from `key` on.
  __device__ __forceinline__ void step(int key, int, int end) {
    uint4 k[Tile::AHEAD][Tile::TURNS], v[Tile::AHEAD][Tile::TURNS];
    float scores[Tile::AHEAD][ROWS];
    const int own = key + static_cast<int>(threadIdx.x) / Tile::LANES;
#pragma unroll
    for (int i = 0; i < Tile::AHEAD; ++i) {
      load_row(1, this->p.problem.depth, own + i * Tile::WARPS * Tile::KEYS, end, k[i]);
    }
#pragma unroll
    for (int i = 0; i < Tile::AHEAD; ++i) {
      load_row(2, this->p.problem.width, own + i * Tile::WARPS * Tile::KEYS, end, v[i]);
    }
#pragma unroll
    for (int i = 0; i < Tile::AHEAD; ++i) {
      score(k[i], own + i * Tile::WARPS * Tile::KEYS, end, scores[i]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float largest = most[r];
#pragma unroll
      for (int i = 0; i < Tile::AHEAD; ++i) largest = fmaxf(largest, scores[i][r]);
      if (largest > most[r]) {
        const float shrink = exp2f(most[r] - largest);
#pragma unroll
        for (int i = 0; i < OWN; ++i) sums[r][i] *= shrink;
        total[r] *= shrink;
        most[r] = largest;
      }
      const float origin = FewTotals::origin(most[r]);
#pragma unroll
      for (int i = 0; i < Tile::AHEAD; ++i) {
        scores[i][r] = exp2f(scores[i][r] - origin);
        total[r] += scores[i][r];
      }
    }
#pragma unroll
    for (int i = 0; i < Tile::AHEAD; ++i) {
      float numbers[OWN];
      widen(v[i], numbers);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int c = 0; c < OWN; ++c) sums[r][c] = fmaf(scores[i][r], numbers[c], sums[r][c]);
      }
    }
  }

  // Adds what the lanes of a warp with other keys have.
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int distance = Tile::LANES; distance < 32; distance *= 2) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const float largest = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], distance));
        const float shrink = exp2f(most[r] - FewTotals::origin(largest));
        most[r] = largest;
        total[r] *= shrink;
        total[r] += __shfl_xor_sync(0xffffffffu, total[r], distance);
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
          sums[r][i] *= shrink;
          sums[r][i] += __shfl_xor_sync(0xffffffffu, sums[r][i], distance);
        }
      }
    }
  }

  // The warp's state of each row.
  __device__ __forceinline__ void leave(FewStates<Tile> states) const {
    if (static_cast<int>(threadIdx.x) % 32 >= Tile::LANES) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int i = 0; i < OWN; i += 4) {
        states.of(warp, r)[column(i) / 4] =
            make_float4(sums[r][i], sums[r][i + 1], sums[r][i + 2], sums[r][i + 3]);
      }
      if (lane() == 0) states.totals(warp, r) = make_float4(total[r], most[r], 0, 0);
    }
  }
};
