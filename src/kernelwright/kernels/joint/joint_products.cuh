#pragma once
// Products of 16-bit rows, up to 16 of them at a time, that have the rows in common: one launch in
// place of one for each product, and of one for the norm of the rows. Memory sets the speed, so the
// factors are read once and in whole lines; what they are, no kernel before has written in general,
// and the lines are asked for while it still runs: that brings them to the second-level cache, from
// where they are read when it is complete.
//
// A block has the rows in shared memory and takes turns: in each 8 columns of a result. Its warps
// share K and add their sums in order in the end, so that every run comes to the same bits.
//
// A config has
//   LOADS            of 32 neighbours along K of each column that a warp has under way
//   WARPS            of a block
//   RESIDENT         blocks that a multiprocessor has at one time
//   MULTIPROCESSORS  of the card
//   ROOM             bytes of shared memory of a multiprocessor

#include "dependent_launch.cuh"
#include "joint_turns.cuh"

// A thread's part of a product.
template <class Tile>
struct JointWork {
  using T = typename Tile::T;
  JointWords* slots;  // this thread's first one of a stage
  float sums[Tile::FACTORS][4];

  __device__ __forceinline__ JointWords* slot(int stage, int load, int factor) const {
    return slots + stage * Tile::STAGE + (load * Tile::FACTORS + factor) * Tile::THREADS;
  }

  // Sends for what a warp reads at once of the columns, from `step` along K on.
  template <bool VECTORS>
  __device__ __forceinline__ void fetch(const JointColumns<T, Tile::FACTORS>& columns, int stage,
                                        int step, int k) const {
    const int at = step + threadIdx.x % 4 * JOINT_WIDTH;
#pragma unroll
    for (int load = 0; load < Tile::LOADS; ++load) {
#pragma unroll
      for (int f = 0; f < Tile::FACTORS; ++f) {
        columns.template fetch<VECTORS>(f, at + load * Tile::RUN, k, slot(stage, load, f));
      }
    }
  }

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[f][i] = 0;
    }
  }

  // Adds the products of what was sent for. `upper` and `lower` are where two of the rows have K
  // from zero on.
  __device__ __forceinline__ void multiply(const T* upper, const T* lower, int stage, int step,
                                           int k) {
    if (step + Tile::STEP <= k) {
#pragma unroll
      for (int load = 0; load < Tile::LOADS; ++load) add(upper, lower, stage, step, load);
    } else {
#pragma unroll 1
      for (int load = 0; step + load * Tile::RUN < k; ++load) {
        add(upper, lower, stage, step, load);
      }
    }
  }
  __device__ __forceinline__ void add(const T* upper_row, const T* lower_row, int stage, int step,
                                      int load) {
    const int at = step + load * Tile::RUN;
    const JointWords upper = *reinterpret_cast<const JointWords*>(upper_row + at);
    const JointWords lower = *reinterpret_cast<const JointWords*>(lower_row + at);
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
      const JointWords wide = *slot(stage, load, f);
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const uint32_t pairs[4] = {upper.word[half], lower.word[half], upper.word[half + 1],
                                   lower.word[half + 1]};
        const uint32_t pair[2] = {wide.word[half], wide.word[half + 1]};
        WarpProduct<T>::add(sums[f], pairs, pair);
      }
    }
  }

  // To where warps add their sums.
  __device__ __forceinline__ void leave(float* parts) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int f = 0; f < Tile::FACTORS; ++f) {
      float* const own =
          parts + (warp * Tile::FACTORS + f) * Tile::EACH + lane / 4 * Tile::COLUMNS + lane % 4 * 2;
      store_vector(own, Vector<float, 2>{{sums[f][0], sums[f][1]}});
      store_vector(own + 8 * Tile::COLUMNS, Vector<float, 2>{{sums[f][2], sums[f][3]}});
    }
  }
};

// A block's part of all turns: first what is asked for before the rows are there, then the rest.
// VECTORS: whether eight neighbours of a factor are one access.
template <class Config, bool VECTORS, class Problem>
struct JointBlock {
  using Tile = JointTile<Config, Problem>;
  using T = typename Tile::T;

  const Problem& problem;
  float* parts;
  T* rows;
  JointWork<Tile> work;
  int k;

  // What is sent for next.
  JointTurn ahead;
  int step_ahead;
  bool is_more;
  JointColumns<T, Tile::FACTORS> columns;

  // `memory`: shared_bytes(k, rows).
  __device__ __forceinline__ JointBlock(const Problem& problem, unsigned char* memory)
      : problem(problem),
        parts(reinterpret_cast<float*>(memory)),
        rows(reinterpret_cast<T*>(memory + Tile::ROW_START)),
        work{reinterpret_cast<JointWords*>(memory + Tile::SUM_BYTES) + threadIdx.x},
        k(static_cast<int>(problem.k)),
        step_ahead(first_step()) {
    is_more = ahead.template exists<Tile>(problem);
    columns = joint_columns<Tile>(problem, ahead.turn);
  }

  // Lines of the first turn, and what rows are made of, towards the second-level cache.
  __device__ __forceinline__ void ask_for() const {
    if constexpr (VECTORS) {
      columns.ask_for(k, Tile::THREADS);
      problem.rows.ask_for();
    }
  }
  // Sends for the first stages.
  __device__ __forceinline__ void send() {
#pragma unroll 1
    for (int stage = 0; stage < Tile::STAGES; ++stage) fetch(stage);
  }

  __device__ __forceinline__ void run() {
    const int lane = threadIdx.x % 32;
    const auto pitch = static_cast<int>(Tile::pitch(k));
    int upper = 0, lower = 0;  // where two of the rows begin, for this lane
    int filled = -1;
    JointTurn at;
    for (int half = 0, stage = 0; at.template exists<Tile>(problem); half = 1 - half) {
      const int first_row = at.template first_row<Tile>();
      JointEnds<Tile, Problem> ends;
      ends.find(problem, first_row, at.turn);
      if (at.tile != filled) {
        if (filled >= 0) __syncthreads();  // all have read the rows before
        const int there = min(static_cast<int>(problem.places.count) - first_row, Tile::ROWS);
        fill_joint_rows<VECTORS, Tile>(problem, first_row, there, reinterpret_cast<char*>(parts),
                                       rows);
        __syncthreads();
        filled = at.tile;
        // In place of rows that are not there the last one, of which nothing is stored.
        upper = min(lane / 4, there - 1) * pitch + lane % 4 * JOINT_WIDTH;
        lower = min(lane / 4 + 8, there - 1) * pitch + lane % 4 * JOINT_WIDTH;
      }
      work.begin();
      int step = first_step();
#pragma unroll 1
      do {
        wait_copies<Tile::STAGES - 1>();
        work.multiply(rows + upper, rows + lower, stage, step, k);
        fetch(stage);
        stage = stage + 1 < Tile::STAGES ? stage + 1 : 0;
        step += Tile::WARPS * Tile::STEP;
      } while (step < k);
      float* const sums = parts + half * Tile::SUMS;
      work.leave(sums);
      __syncthreads();
      ends.store(problem, sums);
      at.turn += gridDim.x;
    }
  }

 private:
  __device__ __forceinline__ static int first_step() { return threadIdx.x / 32 * Tile::STEP; }

  __device__ __forceinline__ void fetch(int stage) {
    if (is_more) {
      work.template fetch<VECTORS>(columns, stage, step_ahead, k);
      step_ahead += Tile::WARPS * Tile::STEP;
      if (step_ahead >= k) {
        step_ahead = first_step();
        ahead.turn += gridDim.x;
        is_more = ahead.template exists<Tile>(problem);
        if (is_more) columns = joint_columns<Tile>(problem, ahead.turn);
      }
    }
    commit_copies();
  }
};

// The body of a kernel of Tile::THREADS threads and shared_bytes(k, rows) of dynamic shared memory.
template <class Config, bool VECTORS, class Problem>
__device__ __forceinline__ void joint_products(const Problem& problem) {
  extern __shared__ __align__(16) unsigned char joint_memory[];
  JointBlock<Config, VECTORS, Problem> block(problem, joint_memory);
  block.ask_for();
  // Where the kernels that still run are known, the next one may come at once, too.
  if (!problem.is_settled) wait_for_previous_kernel();
  let_next_kernel_start();
  block.send();
  if (problem.is_settled) wait_for_previous_kernel();
  block.run();
}
