#pragma once
// The weights of a block's 64 rows on chip, as operand A of its two warpgroups: each has half of
// the steps along K.

#include "recurrent_problem.cuh"
#include "wgmma_narrow.cuh"

// One element of the weights of a lane, 0 outside: row `row` of a block's 64, column k of the
// inputs or of the hidden state.
template <class Tile>
struct WeightSource {
  const RecurrentProblem& problem;
  RecurrentLane lane;
  int rank;

  __device__ __forceinline__ const LayerWeights& weights() const {
    return problem.weights[lane.layer * Tile::DIRECTIONS + lane.direction];
  }
  __device__ __forceinline__ int inputs() const {
    return lane.layer == 0 ? problem.inputs : Tile::DIRECTIONS * problem.hidden;
  }
  // Row of the weights, -1 for a unit that is not there.
  __device__ __forceinline__ int64_t weight_row(int row) const {
    const int unit = rank * Tile::UNITS + row % Tile::UNITS;
    const int block = Tile::Rule::block(row / Tile::UNITS);
    return unit < problem.hidden ? int64_t{block} * problem.hidden + unit : -1;
  }
  // Column of the inputs' weights of place k of a record, -1 where nothing lies.
  __device__ __forceinline__ int input_column(int k) const {
    if (lane.layer == 0) return k < problem.inputs ? k : -1;
    const int part = k / Tile::PART, unit = k % Tile::PART;
    const bool is_there = part < Tile::DIRECTIONS && unit < problem.hidden;
    return is_there ? part * problem.hidden + unit : -1;
  }
  __device__ __forceinline__ float of_input(int row, int k) const {
    const int64_t from = weight_row(row);
    const int column = input_column(k);
    const bool is_there = from >= 0 && column >= 0 && Tile::Rule::takes_input(row / Tile::UNITS);
    return is_there ? weights().input.at(from, column) : 0.0f;
  }
  __device__ __forceinline__ float of_hidden(int row, int k) const {
    const int64_t from = weight_row(row);
    const bool is_there =
        from >= 0 && k < problem.hidden && Tile::Rule::takes_hidden(row / Tile::UNITS);
    return is_there ? weights().hidden.at(from, k) : 0.0f;
  }
  __device__ __forceinline__ float bias(int row) const {
    const int64_t from = weight_row(row);
    if (from < 0 || weights().input_bias.data == nullptr) return 0.0f;
    const int gate = row / Tile::UNITS;
    return (Tile::Rule::takes_input(gate) ? weights().input_bias.at(from, 0) : 0.0f) +
           (Tile::Rule::takes_hidden(gate) ? weights().hidden_bias.at(from, 0) : 0.0f);
  }
};

// Fragments of STEPS steps of 16 along K.
template <int STEPS>
struct Fragments {
  uint32_t step[STEPS][4];
};

__device__ __forceinline__ uint32_t pair_bits(__half first, __half second) {
  return static_cast<uint32_t>(__half_as_ushort(second)) << 16 | __half_as_ushort(first);
}

// Planes of the calling warpgroup's fragments of `weight(row, k)`, from step `first` on;
// `keep(step, register, row, k, bits)` gets the low ones.
template <int STEPS, class Weight, class Keep>
__device__ __forceinline__ void load_fragments(Fragments<STEPS>& high, int first, float scale,
                                               const Weight& weight, const Keep& keep) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int i = 0; i < STEPS; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = warp * 16 + lane / 4 + j % 2 * 8;
      const int k = lane % 4 * 2 + j / 2 * 8;
      const PlanePair a = split_planes(weight(row, (first + i) * 16 + k) * scale);
      const PlanePair b = split_planes(weight(row, (first + i) * 16 + k + 1) * scale);
      high.step[i][j] = pair_bits(a.high, b.high);
      keep(i, j, row, k, pair_bits(a.low, b.low));
    }
  }
}

// Low planes of the inputs' weights, where registers do not hold them.
template <class Tile>
struct LowTiles {
  unsigned char* shared;  // of the warpgroup

  __device__ __forceinline__ void keep(int step, int row, int k, uint32_t bits) const {
    const int place =
        step * Tile::LOW_TILE_BYTES + k / 8 * (Tile::ROWS * 16) + row * 16 + k % 8 * 2;
    *reinterpret_cast<uint32_t*>(shared + place) = bits;
  }
  __device__ __forceinline__ CoreMatrices describe() const {
    return describe_cores(shared, Tile::ROWS * 16);
  }
};
