#pragma once
// What comes before the steps: the largest numbers, and the inputs of the first layer as planes.

#include "dependent_launch.cuh"
#include "recurrent_problem.cuh"

constexpr int PREPARE_THREADS = 256;

__device__ __forceinline__ uint32_t larger_bits(uint32_t most, float value) {
  const uint32_t bits = __float_as_uint(value) & 0x7fffffffu;
  return bits <= 0x7f800000u && bits > most ? bits : most;
}

__device__ __forceinline__ void keep_largest(uint32_t* word, uint32_t most) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, most, distance);
    most = other > most ? other : most;
  }
  if (threadIdx.x % 32 == 0 && most > 0) atomicMax(word, most);
}

// Of elements side by side, in whatever order. Several loads are under way in each thread.
template <class Stored>
__device__ __forceinline__ uint32_t largest_of_run(const void* data, int64_t count, uint32_t most) {
  constexpr int UNDER_WAY = 8;
  const int64_t all = int64_t{gridDim.x} * blockDim.x;
  const auto* const run = static_cast<const Stored*>(data);
  for (int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; first < count;
       first += UNDER_WAY * all) {
    float values[UNDER_WAY];
#pragma unroll
    for (int i = 0; i < UNDER_WAY; ++i) {
      const int64_t at = first + i * all;
      values[i] = at < count ? widen(run[at]) : 0.0f;
    }
#pragma unroll
    for (const float value : values) most = larger_bits(most, value);
  }
  return most;
}

// Of a tensor of `outer` x `middle` x `inner` elements. Finding a place by division would take most
// of the time, so a run of memory is taken as it lies, whichever of the first two comes first.
template <class Stored>
__device__ __forceinline__ uint32_t largest_of(const StepTensor& tensor, int outer, int middle,
                                               int inner) {
  const int64_t (&strides)[3] = tensor.strides;
  const bool is_outer_first = strides[1] == inner && strides[0] == int64_t{middle} * inner;
  const bool is_middle_first = strides[0] == inner && strides[1] == int64_t{outer} * inner;
  if (strides[2] == 1 && (is_outer_first || is_middle_first)) {
    return largest_of_run<Stored>(tensor.data, int64_t{outer} * middle * inner, 0);
  }
  const int64_t all = int64_t{gridDim.x} * blockDim.x;
  const int64_t count = int64_t{outer} * middle * inner;
  uint32_t most = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += all) {
    const int64_t rest = i / inner;
    most = larger_bits(most, tensor.read<Stored>(rest / middle, rest % middle, i % inner));
  }
  return most;
}

template <class Stored>
__device__ __forceinline__ uint32_t largest_of(const WeightMatrix& matrix, int64_t rows,
                                               int columns, uint32_t most) {
  if (matrix.strides[1] == 1 && matrix.strides[0] == columns) {
    return largest_of_run<Stored>(matrix.data, rows * columns, most);
  }
  const int64_t all = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * columns; i += all) {
    most = larger_bits(most, matrix.read<Stored>(i / columns, i % columns));
  }
  return most;
}

template <class Config>
__device__ __forceinline__ void find_extremes(const RecurrentParameters& p) {
  wait_for_previous_kernel();
  using Tile = RecurrentTile<Config>;
  using Stored = typename Tile::Stored;
  if (!Tile::Rule::IS_BOUNDED) return;  // nothing is scaled
  const RecurrentProblem& problem = p.problem;
  keep_largest(&p.room.extremes->x,
               largest_of<Stored>(problem.x, problem.steps, problem.batch, problem.inputs));
  const int lanes = problem.layers * Tile::DIRECTIONS;
  if (problem.first_hidden.data != nullptr) {
    keep_largest(&p.room.extremes->first_hidden,
                 largest_of<Stored>(problem.first_hidden, lanes, problem.batch, problem.hidden));
  }
  const int64_t rows = int64_t{Tile::Rule::GATES} * problem.hidden;
  uint32_t most = 0;
  for (int i = 0; i < lanes; ++i) {
    const int inputs = i < Tile::DIRECTIONS ? problem.inputs : Tile::DIRECTIONS * problem.hidden;
    most = largest_of<Stored>(problem.weights[i].input, rows, inputs, most);
    most = largest_of<Stored>(problem.weights[i].hidden, rows, problem.hidden, most);
  }
  keep_largest(&p.room.extremes->weights, most);
}

// 8 neighbours of each plane as they lie in a group: 16 bytes.
union PlaneRun {
  uint16_t element[8];
  uint4 words;
};

// Records of x: for each step and slice the groups of 8 inputs, zeros where there are none.
template <class Config>
__device__ __forceinline__ void write_inputs(const RecurrentParameters& p) {
  wait_for_previous_kernel();
  using Tile = RecurrentTile<Config>;
  const RecurrentProblem& problem = p.problem;
  const PlaneScales scales = PlaneScales::of<Tile>(*p.room.extremes);
  if (!scales.fit) return;
  constexpr int GROUPS = Tile::INPUTS / 8;
  const int64_t count = int64_t{problem.steps} * problem.slices * GROUPS * Tile::BATCH;
  const int64_t all = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += all) {
    // Neighbours along K by neighbouring threads.
    const int group = static_cast<int>(i % GROUPS);
    const int row = static_cast<int>(i / GROUPS % Tile::BATCH);
    // More records than 32 bits count have no room in memory; dividing 64 bits takes long.
    const auto record = static_cast<uint32_t>(i / (GROUPS * Tile::BATCH));
    const uint32_t time = record / static_cast<uint32_t>(problem.slices);
    const int64_t batch = (record - time * problem.slices) * int64_t{Tile::BATCH} + row;
    PlaneRun high, low;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int input = group * 8 + j;
      const bool is_there = batch < problem.batch && input < problem.inputs;
      const float value =
          is_there ? problem.x.template read<typename Tile::Stored>(time, batch, input) : 0.0f;
      const PlanePair pair = split_planes<typename Tile::Plane>(value * scales.x);
      high.element[j] = pair.high;
      low.element[j] = pair.low;
    }
    unsigned char* const to =
        p.room.inputs + int64_t{record} * Tile::X_BYTES + group * Tile::GROUP_BYTES + row * 16;
    *reinterpret_cast<uint4*>(to) = high.words;
    if (Tile::PLANES == 2) *reinterpret_cast<uint4*>(to + Tile::BATCH * 16) = low.words;
  }
}
