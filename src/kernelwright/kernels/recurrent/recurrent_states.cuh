#pragma once
// The unit states of a thread that computes cells, and what goes out of a launch.

#include "flags.cuh"
#include "recurrent_problem.cuh"

// Pairs of a unit and a row of the batch: one unit for each thread, the same for all its pairs.
template <class Tile>
struct UnitStates {
  using Rule = typename Tile::Rule;
  using Stored = typename Tile::Stored;
  static constexpr int EACH = Tile::PAIRS_EACH;

  const RecurrentProblem& problem;
  RecurrentLane lane;
  int rank;
  UnitState states[EACH];

  // As the sums of products lie: four units for a warp, of a warpgroup's tile or of the one that
  // both have.
  __device__ __forceinline__ static int slot() {
    const int warp = threadIdx.x / 32;
    if (Tile::PAIRED) return warp * 2 + threadIdx.x % 32 / 16;
    return (Tile::PARTS_OF_K == 2 ? warp % 4 : warp) * 4 + threadIdx.x % 32 / 8;
  }
  // Each eight rows have a thread of a unit; of one tile, every other eight are a warpgroup's.
  __device__ __forceinline__ static int row(int pair) {
    const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int eight = Tile::PARTS_OF_K == 2 ? pair * 2 + warpgroup : pair;
    return eight * 8 + lane % 4 * 2 + lane / 4 % 2;
  }
  // Threads that have no pair, where the batch's rows are few.
  __device__ __forceinline__ static bool has_pairs() {
    if (Tile::PAIRED) return threadIdx.x < Tile::COMPUTE_THREADS && threadIdx.x % 16 < 8;
    return threadIdx.x < Tile::COMPUTE_THREADS && row(0) < Tile::BATCH;
  }
  __device__ __forceinline__ int unit() const { return rank * Tile::UNITS + slot(); }
  __device__ __forceinline__ int64_t batch(int pair) const {
    return int64_t{lane.slice} * Tile::BATCH + row(pair);
  }
  __device__ __forceinline__ bool is_there(int pair) const {
    return has_pairs() && unit() < problem.hidden && batch(pair) < problem.batch;
  }
  __device__ __forceinline__ int layer() const {
    return lane.layer * Tile::DIRECTIONS + lane.direction;
  }

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      states[i] = {0.0f, 0.0f};
      if (!is_there(i)) continue;
      if (problem.first_hidden.data != nullptr) {
        states[i].hidden = problem.first_hidden.template read<Stored>(layer(), batch(i), unit());
      }
      if (Rule::HAS_CELL && problem.first_cell.data != nullptr) {
        states[i].cell = problem.first_cell.template read<Stored>(layer(), batch(i), unit());
      }
    }
  }

  // The step's results, for whoever reads them.
  __device__ __forceinline__ void store(int step) const {
    const bool is_last_layer = lane.layer == problem.layers - 1;
    const bool is_last_step = step == problem.steps - 1;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      if (!is_there(i)) continue;
      if (is_last_layer && problem.y.data != nullptr) {
        problem.y.template write<Stored>(lane.time(step, problem.steps), batch(i),
                                         lane.direction * problem.hidden + unit(),
                                         states[i].hidden);
      }
      if (!is_last_step) continue;
      if (problem.last_hidden.data != nullptr) {
        problem.last_hidden.template write<Stored>(layer(), batch(i), unit(), states[i].hidden);
      }
      if (Rule::HAS_CELL && problem.last_cell.data != nullptr) {
        problem.last_cell.template write<Stored>(layer(), batch(i), unit(), states[i].cell);
      }
    }
  }
};

// What a lane's blocks and those of the layer below have written, and where.
template <class Tile>
struct LaneRecords {
  const RecurrentParameters& p;
  RecurrentLane lane;

  // Another lane of this slice.
  __device__ __forceinline__ int number(int layer, int direction) const {
    return (layer * Tile::DIRECTIONS + direction) * p.problem.slices + lane.slice;
  }
  __device__ __forceinline__ unsigned char* record(int of_lane, int time) const {
    return p.room.records + (int64_t{of_lane} * p.problem.steps + time) * Tile::RECORD_BYTES;
  }
  __device__ __forceinline__ const unsigned char* input_record(int time) const {
    return p.room.inputs + (int64_t{time} * p.problem.slices + lane.slice) * Tile::X_BYTES;
  }
  __device__ __forceinline__ uint32_t* flag(int of_lane, int block) const {
    return p.room.flags + of_lane * Tile::CLUSTER + block;
  }

  // Returns to a warp when all blocks below have written what they have to say of `time`. `seen` is
  // what this lane of the warp knows of its block.
  __device__ __forceinline__ void wait_below(int time, uint32_t& seen) const {
    const int own = threadIdx.x % 32, direction = own / Tile::CLUSTER;
    if (direction < Tile::DIRECTIONS) {
      const int steps = direction == 0 ? time + 1 : p.problem.steps - time;
      wait_flag(flag(number(lane.layer - 1, direction), own % Tile::CLUSTER),
                static_cast<uint32_t>(steps), seen);
    }
    __syncwarp();
  }
  __device__ __forceinline__ static void wait_flag(const uint32_t* flag, uint32_t steps,
                                                   uint32_t& seen) {
    while (seen < steps) {
      seen = load_acquire(flag);
      if (seen < steps) __nanosleep(32);
    }
  }
};
