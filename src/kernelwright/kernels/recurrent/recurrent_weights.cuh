#pragma once
// The weights of a block's rows on chip, as operand A of its two warpgroups: each has half of the
// steps along K of one tile of 64 rows, or a tile.

#include "recurrent_problem.cuh"
#include "wgmma_narrow.cuh"

// One element of the weights of a lane, 0 outside: row `row` of the 64 of the tile that begins with
// unit `first`, column k of the inputs or of the hidden state.
template <class Tile>
struct WeightSource {
  using Stored = typename Tile::Stored;

  const RecurrentProblem& problem;
  RecurrentLane lane;
  int first;

  __device__ __forceinline__ const LayerWeights& weights() const {
    return problem.weights[lane.layer * Tile::DIRECTIONS + lane.direction];
  }
  __device__ __forceinline__ int inputs() const {
    return lane.layer == 0 ? problem.inputs : Tile::DIRECTIONS * problem.hidden;
  }
  // Row of the weights, -1 for a unit that is not there.
  __device__ __forceinline__ int64_t weight_row(int row) const {
    const int unit = first + Tile::unit_of(row);
    const int block = Tile::Rule::block(Tile::gate_of(row));
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
    const bool is_there = from >= 0 && column >= 0 && Tile::Rule::takes_input(Tile::gate_of(row));
    return is_there ? weights().input.template read<Stored>(from, column) : 0.0f;
  }
  __device__ __forceinline__ float of_hidden(int row, int k) const {
    const int64_t from = weight_row(row);
    const bool is_there =
        from >= 0 && k < problem.hidden && Tile::Rule::takes_hidden(Tile::gate_of(row));
    return is_there ? weights().hidden.template read<Stored>(from, k) : 0.0f;
  }
  __device__ __forceinline__ float bias(int row) const {
    const int64_t from = weight_row(row);
    if (from < 0 || weights().input_bias.data == nullptr) return 0.0f;
    const int gate = Tile::gate_of(row);
    return (Tile::Rule::takes_input(gate) ? weights().input_bias.template read<Stored>(from, 0)
                                          : 0.0f) +
           (Tile::Rule::takes_hidden(gate) ? weights().hidden_bias.template read<Stored>(from, 0)
                                           : 0.0f);
  }
};

// Fragments of STEPS steps of 16 along K.
template <int STEPS>
struct Fragments {
  uint32_t step[STEPS][4];
};

__device__ __forceinline__ uint32_t pair_bits(uint16_t first, uint16_t second) {
  return static_cast<uint32_t>(second) << 16 | first;
}

// Planes of the calling warpgroup's fragments of `weight(row, k)`, from step `first` on:
// `keep(step, register, row, k, high bits, low bits)` gets them. `zero` is one that the compiler
// does not know: the places of a step depend on what was split two steps before, or ptxas reads
// all weights before it splits the first one, and spills.
template <class Plane, int STEPS, class Weight, class Keep>
__device__ __forceinline__ void load_fragments(int first, float scale, uint32_t zero,
                                               const Weight& weight, const Keep& keep) {
  constexpr int UNDER_WAY = 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  uint32_t before[UNDER_WAY] = {};
#pragma unroll
  for (int i = 0; i < STEPS; ++i) {
    const int start = (first + i) * 16 + static_cast<int>(before[i % UNDER_WAY] & zero);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = warp * 16 + lane / 4 + j % 2 * 8;
      const int k = lane % 4 * 2 + j / 2 * 8;
      const PlanePair a = split_planes<Plane>(weight(row, start + k) * scale);
      const PlanePair b = split_planes<Plane>(weight(row, start + k + 1) * scale);
      const uint32_t high = pair_bits(a.high, b.high);
      before[i % UNDER_WAY] |= high;
      keep(i, j, row, k, high, pair_bits(a.low, b.low));
    }
  }
}

// The same of pairs: the low plane lies 8 rows below the high one. `keep(step, register, row, k,
// bits)`.
template <class Plane, int STEPS, class Weight, class Keep>
__device__ __forceinline__ void load_pairs(float scale, uint32_t zero, const Weight& weight,
                                           const Keep& keep) {
  load_fragments<Plane, STEPS>(0, scale, zero, weight,
                               [&](int i, int j, int row, int k, uint32_t high, uint32_t low) {
                                 if (j % 2 == 1) return;
                                 keep(i, j, row, k, high);
                                 keep(i, j + 1, row + 8, k, low);
                               });
}

// A plane of the inputs' weights that registers do not hold.
template <class Tile>
struct AwayTiles {
  unsigned char* shared;  // of the warpgroup

  __device__ __forceinline__ void keep(int step, int row, int k, uint32_t bits) const {
    const int place =
        step * Tile::AWAY_TILE_BYTES + k / 8 * (Tile::ROWS * 16) + row * 16 + k % 8 * 2;
    *reinterpret_cast<uint32_t*>(shared + place) = bits;
  }
  // Once in each step: ptxas would keep the descriptors of all tiles in registers from one step to
  // the next, and spill.
  __device__ __forceinline__ CoreMatrices describe() const {
    uint64_t address;
    asm volatile("mov.u64 %0, %1;" : "=l"(address) : "l"(shared));
    return describe_cores(reinterpret_cast<const void*>(address), Tile::ROWS * 16);
  }
};
