#pragma once
// A stack of recurrent layers as a kernel takes it, and how its work is cut.
//
// A lane is one direction of one layer for one slice of the batch: a cluster of blocks takes all
// its steps, with the lane's weights on chip. Lanes are numbered layer by layer, and a cluster
// takes the lowest number that is left when it starts: it waits only for lanes that run already.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "recurrent_cells.cuh"

constexpr int MAX_LAYERS = 32;  // directions counted

// Three dimensions with any strides, in elements. Null for what nobody gave or nobody wants.
struct StepTensor {
  float* data = nullptr;
  int64_t strides[3] = {};

  __device__ __forceinline__ float* at(int64_t a, int64_t b, int64_t c) const {
    return data + a * strides[0] + b * strides[1] + c * strides[2];
  }
};

// Two dimensions with any strides, in elements; a vector has one column. Null for what is not
// there.
struct WeightMatrix {
  const float* data = nullptr;
  int64_t strides[2] = {};

  __device__ __forceinline__ float at(int64_t row, int64_t column) const {
    return __ldg(data + row * strides[0] + column * strides[1]);
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

// How blocks hand their slices of the hidden state to the others of the cluster: a bulk copy of a
// slice in shared memory to each, or asynchronous stores of 16 bytes from registers.
enum class Exchange { COPIES, STORES };

// Sizes that a config fixes. It has
//   CELL, DIRECTIONS
//   CLUSTER   blocks of a lane; each has 16 units, one tile of 64 rows with their four gates
//   BATCH     of a slice: 8, 16 or 32
//   INPUTS    of a layer at most, a multiple of 32
//   PLANES    2: weights and states as the sum of two fp16 numbers, three products; 1: of one
//   STAGES    steps of input on their way
//   EXCHANGE
template <class Config>
struct RecurrentTile {
  using Rule = CellRule<Config::CELL>;
  static constexpr int CLUSTER = Config::CLUSTER, BATCH = Config::BATCH, PLANES = Config::PLANES;
  static constexpr int DIRECTIONS = Config::DIRECTIONS, STAGES = Config::STAGES;
  static constexpr int UNITS = 16, GATE_ROWS = 4, ROWS = UNITS * GATE_ROWS;
  static constexpr int PART = CLUSTER * UNITS;  // units of a lane, those that are not there counted
  static constexpr int HIDDEN = PART < 32 ? 32 : PART, INPUTS = Config::INPUTS;
  static_assert(BATCH == 8 || BATCH == 16 || BATCH == 32, "products have so many columns");
  static_assert(PLANES == 1 || PLANES == 2, "numbers are one or two of fp16");
  static_assert(INPUTS % 32 == 0, "both warpgroups have whole steps of 16");
  static_assert(CLUSTER * DIRECTIONS <= 32, "a lane of a warp looks at each flag");

  // Shared memory: groups of 8 along K, of planes, of the batch's rows of 16 bytes.
  static constexpr int GROUP_BYTES = PLANES * BATCH * 16;
  static constexpr int X_BYTES = INPUTS / 8 * GROUP_BYTES, H_BYTES = HIDDEN / 8 * GROUP_BYTES;
  static constexpr int SLICE_BYTES = UNITS / 8 * GROUP_BYTES;
  static constexpr int PART_BYTES = CLUSTER * SLICE_BYTES;
  static constexpr int RECORD_BYTES = PART * BATCH * 4;  // has room for float32

  // Steps of 16 along K of a warpgroup; where low planes of the inputs' weights lie.
  static constexpr int X_STEPS = INPUTS / 32, H_STEPS = HIDDEN / 32;
  static constexpr bool KEEPS_LOW = (X_STEPS + H_STEPS) * 4 * PLANES <= 136;
  static constexpr int LOW_TILE_BYTES = ROWS * 16 * 2;
  static constexpr int LOW_BYTES = PLANES == 2 && !KEEPS_LOW ? 2 * X_STEPS * LOW_TILE_BYTES : 0;

  static constexpr int SUM_PITCH = ROWS + 4;
  static constexpr int SUM_BYTES = 2 * BATCH * SUM_PITCH * 4;
  static constexpr int SHARED_BYTES = STAGES * X_BYTES + 2 * H_BYTES + LOW_BYTES + SUM_BYTES;

  static constexpr int COMPUTE_THREADS = 256, COMPUTE_WARPS = 8;
  static constexpr int LOADER = 8, COURIER = 9, THREADS = 384;
  static constexpr int COMPUTE_REGISTERS = 232, OTHER_REGISTERS = 40;
  static constexpr int PAIRS = BATCH * UNITS;  // of a batch's row and a unit
  static constexpr int PAIRS_EACH = PAIRS < COMPUTE_THREADS ? 1 : PAIRS / COMPUTE_THREADS;
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

  __device__ __forceinline__ static PlaneScales of(const Extremes& extremes) {
    constexpr uint32_t INFINITE = 0x7f800000u, ONE = 0x3f800000u, LARGE = 0x44800000u;  // 1024
    const Extremes now = {__ldcg(&extremes.x), __ldcg(&extremes.first_hidden),
                          __ldcg(&extremes.weights)};
    const uint32_t hidden = now.first_hidden > ONE ? now.first_hidden : ONE;
    return {plane_scale(now.x), plane_scale(hidden), plane_scale(now.weights),
            now.x < INFINITE && now.weights < INFINITE && hidden <= LARGE};
  }
};

struct PlanePair {
  __half high, low;
};

__device__ __forceinline__ PlanePair split_planes(float scaled) {
  const __half high = __float2half_rn(scaled);
  return {high, __float2half_rn(scaled - __half2float(high))};
}
