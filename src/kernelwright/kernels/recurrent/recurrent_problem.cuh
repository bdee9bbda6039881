#pragma once
// A stack of recurrent layers as a kernel takes it, and how its work is cut.
//
// A lane is one direction of one layer for one slice of the batch: a cluster of blocks takes all
// its steps, with the lane's weights on chip. Lanes are numbered layer by layer, and a cluster
// takes the lowest number that is left when it starts: it waits only for lanes that run already.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "half.cuh"
#include "recurrent_cells.cuh"

constexpr int MAX_LAYERS = 32;  // directions counted

// Three dimensions with any strides, in elements. Null for what nobody gave or nobody wants.
struct StepTensor {
  void* data = nullptr;
  int64_t strides[3] = {};

  __device__ __forceinline__ int64_t place(int64_t a, int64_t b, int64_t c) const {
    return a * strides[0] + b * strides[1] + c * strides[2];
  }
  template <class Stored>
  __device__ __forceinline__ float read(int64_t a, int64_t b, int64_t c) const {
    return widen(static_cast<const Stored*>(data)[place(a, b, c)]);
  }
  template <class Stored>
  __device__ __forceinline__ void write(int64_t a, int64_t b, int64_t c, float value) const {
    static_cast<Stored*>(data)[place(a, b, c)] = narrow<Stored>(value);
  }
};

// Two dimensions with any strides, in elements; a vector has one column. Null for what is not
// there.
struct WeightMatrix {
  const void* data = nullptr;
  int64_t strides[2] = {};

  template <class Stored>
  __device__ __forceinline__ float read(int64_t row, int64_t column) const {
    const int64_t place = row * strides[0] + column * strides[1];
    return widen(static_cast<const Stored*>(data)[place]);
  }
};

// Rows gate by gate as PyTorch has them.
struct LayerWeights {
  WeightMatrix input, hidden, input_bias, hidden_bias;
};

struct RecurrentProblem {
  int steps, batch, hidden, inputs, layers;                     // layers without directions
  int slices;                                                   // of the batch
  StepTensor x, y;                                              // time, batch, feature
  StepTensor first_hidden, first_cell, last_hidden, last_cell;  // layer, batch, unit
  LayerWeights weights[MAX_LAYERS];
};

// The largest absolute values, as the bits of floats. NaN is not among them.
struct Extremes {
  uint32_t x, first_hidden, weights;
};

// Device memory of the launch's own. What comes before `inputs` is zero when the kernels start.
struct RecurrentRoom {
  uint32_t* ticket;  // lanes that have been taken
  Extremes* extremes;
  uint32_t* flags;         // steps that each block of each lane has written
  unsigned char* inputs;   // x as planes, a record for each step and slice
  unsigned char* records;  // hidden states of each lane, a record for each step
};

struct RecurrentParameters {
  RecurrentProblem problem;
  RecurrentRoom room;
};

// Sizes that a config fixes. It has
//   CELL, DIRECTIONS
//   CLUSTER   blocks of a lane
//   UNITS     of a block: 16, one tile of 64 rows with their four gates, of which each of two
//             warpgroups has half of K; or 32, two tiles, one for each
//   BATCH     of a slice: 8, 16 or 32
//   INPUTS    of a layer at most, a multiple of 32
//   Stored    float, __half or __nv_bfloat16: elements of all tensors
//   PLANES    2: weights and states as the sum of two fp16 numbers, three products; 1: of one,
//             which holds all of a 16-bit weight. Planes of states without a bound are `Stored`
//             as they come, 16 bits.
//   STAGES    steps of input on their way
template <class Config>
struct RecurrentTile {
  using Rule = CellRule<Config::CELL>;
  using Stored = typename Config::Stored;
  using Plane = std::conditional_t<Rule::IS_BOUNDED, __half, Stored>;
  static_assert(sizeof(Plane) == 2, "states without a bound are in planes as they are stored");
  static constexpr int CLUSTER = Config::CLUSTER, BATCH = Config::BATCH, PLANES = Config::PLANES;
  static constexpr int DIRECTIONS = Config::DIRECTIONS, STAGES = Config::STAGES;
  static constexpr int UNITS = Config::UNITS, TILE_UNITS = 16, GATE_ROWS = 4;
  static constexpr int ROWS = TILE_UNITS * GATE_ROWS;  // of a warpgroup
  static constexpr int TILES = UNITS / TILE_UNITS, PARTS_OF_K = 2 / TILES;
  static_assert(UNITS == 16 || UNITS == 32, "two warpgroups have one or two tiles of 64 rows");
  static_assert(UNITS == 16 || PLANES == 1, "two planes of two tiles do not fit the registers");
  static constexpr int PART = CLUSTER * UNITS;  // units of a lane, those that are not there counted
  static constexpr int HIDDEN = PART < 32 ? 32 : PART, INPUTS = Config::INPUTS;
  static_assert(BATCH == 8 || BATCH == 16 || BATCH == 32, "products have so many columns");
  static_assert(PLANES == 1 || (PLANES == 2 && Rule::IS_BOUNDED), "one or two of fp16, or one raw");
  static_assert(INPUTS % 32 == 0, "both warpgroups have whole steps of 16");
  static_assert(CLUSTER * DIRECTIONS <= 32, "a lane of a warp looks at each flag");

  // Shared memory: groups of 8 along K, of planes, of the batch's rows of 16 bytes.
  static constexpr int GROUP_BYTES = PLANES * BATCH * 16;
  static constexpr int X_BYTES = INPUTS / 8 * GROUP_BYTES, H_BYTES = HIDDEN / 8 * GROUP_BYTES;
  static constexpr int SLICE_BYTES = UNITS / 8 * GROUP_BYTES;
  static constexpr int PART_BYTES = CLUSTER * SLICE_BYTES;
  static constexpr int RECORD_BYTES = PART * BATCH * 4;  // has room for float32

  // Steps of 16 along K of a warpgroup; planes of the inputs' weights that registers have no room
  // for, the low one first.
  static constexpr int X_STEPS = INPUTS / 16 / PARTS_OF_K, H_STEPS = HIDDEN / 16 / PARTS_OF_K;
  static constexpr bool KEEPS_ALL = (X_STEPS + H_STEPS) * 4 * PLANES <= 136;
  static constexpr bool KEEPS_HIGH = PLANES == 2 && (X_STEPS + H_STEPS * PLANES) * 4 <= 160;
  static constexpr int PLANES_AWAY = KEEPS_ALL ? 0 : KEEPS_HIGH ? 1 : PLANES;
  static constexpr int AWAY_TILE_BYTES = ROWS * 16 * 2;
  static constexpr int AWAY_PLANE_BYTES = X_STEPS * AWAY_TILE_BYTES;  // of a warpgroup
  static constexpr int AWAY_BYTES = 2 * PLANES_AWAY * AWAY_PLANE_BYTES;

  // Of one half of K, for the warpgroup that has the other one: eight rows of the batch at a time.
  static constexpr int EIGHT_SUM_BYTES = 8 * ROWS * 4;
  static constexpr int SUM_BYTES = PARTS_OF_K == 2 ? BATCH / 8 * EIGHT_SUM_BYTES : 0;
  static constexpr int SHARED_BYTES = STAGES * X_BYTES + 2 * H_BYTES + AWAY_BYTES + SUM_BYTES;

  static constexpr int COMPUTE_THREADS = 256, COMPUTE_WARPS = 8;
  static constexpr int LOADER = 8, COURIER = 9, THREADS = 384;
  static constexpr int COMPUTE_REGISTERS = 232, OTHER_REGISTERS = 40;
  static constexpr int PAIRS = BATCH * UNITS;  // of a batch's row and a unit
  static constexpr int PAIRS_EACH = PAIRS < COMPUTE_THREADS ? 1 : PAIRS / COMPUTE_THREADS;

  // Rows of a tile: four units for each warp. A thread has two gates of a unit in its two rows, and
  // the thread four lanes away has the other two.
  __device__ __forceinline__ static int row_of(int gate, int unit) {
    return unit / 4 * 16 + gate / 2 * 8 + unit % 4 * 2 + gate % 2;
  }
  __device__ __forceinline__ static int gate_of(int row) { return row / 8 % 2 * 2 + row % 2; }
  __device__ __forceinline__ static int unit_of(int row) { return row / 16 * 4 + row % 8 / 2; }
};

// What a cluster does.
struct RecurrentLane {
  int number, layer, direction, slice;

  template <class Tile>
  __device__ __forceinline__ static RecurrentLane of(int number, const RecurrentProblem& p) {
    const int row = number / p.slices;
    return {number, row / Tile::DIRECTIONS, row % Tile::DIRECTIONS, number % p.slices};
  }
  // Place of a step in time.
  __device__ __forceinline__ int time(int step, int steps) const {
    return direction == 0 ? step : steps - 1 - step;
  }
};

// A power of two that brings numbers of at most `bits` to [2^13, 2^14), as far as a float can.
__device__ __forceinline__ float plane_scale(uint32_t bits) {
  int field = 267 - static_cast<int>(bits >> 23);
  field = field < 27 ? 27 : field > 227 ? 227 : field;
  return __uint_as_float(static_cast<uint32_t>(field) << 23);
}

// Scales of planes, or that planes cannot carry what there is: infinities, and hidden states that
// are large next to 1, to which they return.
struct PlaneScales {
  float x, hidden, weights;
  bool fit;

  template <class Tile>
  __device__ __forceinline__ static PlaneScales of(const Extremes& extremes) {
    if (!Tile::Rule::IS_BOUNDED) return {1.0f, 1.0f, 1.0f, true};
    constexpr uint32_t MOST = 0x78800000u, ONE = 0x3f800000u, LARGE = 0x44800000u;  // 2^114, 1024
    const Extremes now = {__ldcg(&extremes.x), __ldcg(&extremes.first_hidden),
                          __ldcg(&extremes.weights)};
    const uint32_t hidden = now.first_hidden > ONE ? now.first_hidden : ONE;
    return {plane_scale(now.x), plane_scale(hidden), plane_scale(now.weights),
            now.x < MOST && now.weights < MOST && hidden <= LARGE};
  }
};

// Bits of two planes.
struct PlanePair {
  uint16_t high, low;
};

template <class Plane>
__device__ __forceinline__ uint16_t plane_bits(Plane value) {
  uint16_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

template <class Plane>
__device__ __forceinline__ PlanePair split_planes(float scaled) {
  const Plane high = narrow<Plane>(scaled);
  return {plane_bits(high), plane_bits(narrow<Plane>(scaled - widen(high)))};
}
