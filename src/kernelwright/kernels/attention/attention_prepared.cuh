#pragma once
// What kernels before attention take: which blocks have which operand, and how it is cut.

#include "attention_problem.cuh"

constexpr int ATTENTION_PREPARE_THREADS = 256;
constexpr int PREPARE_ROWS = 64;   // of a block
constexpr int MASK_COPY_ROWS = 8;  // of a mask, of a block: one for each warp

// A head whose rows or columns hold smaller numbers than this alone, scaled as planes are, is not
// fit: low planes end at 2^-24.
constexpr float PLANE_SMALL = 0.125f;

struct PrepareParameters {
  AttentionProblem problem;
  AttentionRoom room;
  int pitch[3];
  int64_t first_block[4];  // of each operand; the last is the end
  bool has_vectors[3];     // runs of 16 bytes are aligned
  int head_threads[3];     // that a head has to itself; 0: its blocks have PREPARE_ROWS rows each
  bool is_kept[3];         // such heads in shared memory
  bool is_turned[3];       // neighbouring rows are side by side, and columns are not
  AttentionOperand mask;   // its rows, blocks of which follow the operands'
  int64_t mask_pitch;      // elements of a row of the copy
};

// How threads have runs of four columns of a head among them: neighbouring lanes those of a row,
// and every further turn begins `rows_at_once` rows below. Shared memory has a row of `pitch` runs:
// of turned heads one more, so that rows side by side meet in four banks.
struct PreparedTurns {
  static constexpr int RUN = 4, MOST_COLUMNS = 32 * RUN;

  int lanes, rows_at_once, turns, pitch;

  __host__ __device__ __forceinline__ PreparedTurns(const PrepareParameters& p, int number,
                                                    int threads) {
    lanes = 1;
    while (lanes * RUN < p.pitch[number]) lanes *= 2;
    rows_at_once = threads / lanes;
    turns = (p.problem.operands[number].rows + rows_at_once - 1) / rows_at_once;
    pitch = lanes + p.is_turned[number];
  }

  // Of a head in shared memory.
  __host__ __device__ __forceinline__ int runs() const { return turns * rows_at_once * pitch; }
};
