#pragma once
// Attention as a kernel takes it: softmax(q k^T * scale + mask) v, and how its work is cut.
//
// A block has BLOCK_M rows of q of one head of one batch and goes through the keys, BLOCK_N at a
// time: scores, their exponentials below the largest score so far, and the sums of these times v
// stay in registers (online softmax). One thread brings k and v into a ring in shared memory.
//
// float32 is multiplied as pairs of fp16 numbers (PLANES 2), three products for one:
//   a * b = high * high' + low * high' + high * low'        (low * low' is below 2^-22)
// Planes are written by a kernel before, with a power of two for each head and operand, so that the
// largest number lies in [2^14, 2^15). Tensor cores cut off where they add: sums over more than
// WINDOW of the depth are added in registers, which round.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "tma.cuh"

enum class Masking { NONE, KEEP, ADD };  // no mask; true where a score is kept; added to scores
enum class Weighing { SOFTMAX, RELU };   // what scores of a row become before they weigh v

// An operand: batch, head, row, column. A size of 1 stands for all batches, and a head for as many
// of the result's as there are more of these.
struct AttentionOperand {
  const void* data;
  int64_t strides[4];  // elements
  int batches, heads, rows, columns;

  __host__ __device__ __forceinline__ int64_t head_count() const {
    return int64_t{batches} * heads;
  }
};

struct AttentionProblem {
  AttentionOperand operands[3];  // q, k, v
  const void* mask;
  int64_t mask_strides[4];
  int mask_batches;  // at least 1; fewer than the result's serve these in turns
  void* result;
  int64_t result_strides[4];
  int batches, heads, rows, keys, depth, width;  // of the result; columns of k and of v
  float scale;                                   // of scores, above 0

  // The batch and the head of an operand where the result's are these.
  __device__ __forceinline__ int batch_of(int operand, int batch) const {
    return operands[operand].batches == 1 ? 0 : batch;
  }
  __device__ __forceinline__ int head_of(int operand, int head) const {
    return head / (heads / operands[operand].heads);
  }
  __device__ __forceinline__ int64_t offset_of(int operand, int batch, int head) const {
    const int64_t* const strides = operands[operand].strides;
    return batch_of(operand, batch) * strides[0] + head_of(operand, head) * strides[1];
  }
};

// Device memory of the launch's own. Of each head of an operand: the largest absolute value as the
// bits of a float, and whether planes do not carry it.
struct AttentionRoom {
  uint32_t *largest[3], *unfit[3];
  void* planes[3];  // null for what is read where it lies
  void* mask;       // the same of a copy with rows of whole runs of 16 bytes
};

struct AttentionParameters {
  CUtensorMap maps[4];  // of q, k, v, and of the mask
  AttentionProblem problem;
  AttentionRoom room;
  int pitch[3];        // elements of a row of planes
  int tiles;           // of rows
  int units;           // that blocks take: tiles of rows, or two of them
  bool is_paired;      // a unit is a tile and the one as far from the other end
  int mask_rows;       // of a box of the mask: 1 where all rows have the same
  bool packs_results;  // rows of the result are whole aligned runs of 16 bytes
};

// A config has
//   Element            float, __half or __nv_bfloat16
//   DEPTH, WIDTH       columns of q and k, a multiple of 16, and of v, a multiple of 64, at most
//   BLOCK_N            keys of a step: 64 or 128
//   STAGES, CONSUMERS  steps in shared memory; warpgroups with 64 rows each: 1 to 3
//   MASKING, WEIGHING  see above
//   CAUSAL             row i has no keys after i
//   EMPTY_IS_ZERO      what a row without keys gives: 0, or else NaN
template <class Element>
struct AttentionNumbers {
  using Plane = Element;
  static constexpr int PLANES = 1;
};
template <>
struct AttentionNumbers<float> {
  using Plane = __half;
  static constexpr int PLANES = 2;
};

template <class Config>
struct AttentionTile {
  using Element = typename Config::Element;
  using Plane = typename AttentionNumbers<Element>::Plane;
  static constexpr int PLANES = AttentionNumbers<Element>::PLANES;
  static constexpr int CONSUMERS = Config::CONSUMERS, STAGES = Config::STAGES;
  static constexpr int BLOCK_M = 64 * CONSUMERS, BLOCK_N = Config::BLOCK_N;
  static constexpr int DEPTH = Config::DEPTH, WIDTH = Config::WIDTH;
  static_assert(DEPTH % 16 == 0 && WIDTH % 64 == 0, "instructions have 16 of K and boxes 64");
  static_assert(BLOCK_N == 64 || BLOCK_N == 128, "keys of a step are those of an instruction");

  // In shared memory a plane is blocks of 64 columns, with rows of 128 bytes.
  static constexpr int ROW_BYTES = 128, BLOCK_COLUMNS = 64;
  static constexpr int DEPTH_BLOCKS = (DEPTH + 63) / 64, WIDTH_BLOCKS = WIDTH / 64;
  static constexpr int Q_BLOCK = BLOCK_M * ROW_BYTES, KEY_BLOCK = BLOCK_N * ROW_BYTES;
  static constexpr int Q_PLANE = DEPTH_BLOCKS * Q_BLOCK, Q_BYTES = PLANES * Q_PLANE;
  static constexpr int K_PLANE = DEPTH_BLOCKS * KEY_BLOCK, K_BYTES = PLANES * K_PLANE;
  static constexpr int V_PLANE = WIDTH_BLOCKS * KEY_BLOCK, V_BYTES = PLANES * V_PLANE;
  static constexpr int ALIGNMENT = 1024;
  static constexpr int OPERAND_BYTES = Q_BYTES + STAGES * (K_BYTES + V_BYTES);
  static constexpr int ROOM = 226 * 1024 - ALIGNMENT - OPERAND_BYTES;
  static_assert(ROOM >= 0, "a block has no more shared memory");

  // Masks have boxes of their own, of rows of 128 bytes too, in the room that is left.
  static constexpr bool HAS_MASK = Config::MASKING != Masking::NONE;
  using Stored = std::conditional_t<Config::MASKING == Masking::KEEP, bool, Element>;
  static constexpr int MASK_SIZE = sizeof(Stored);
  static constexpr int MASK_BLOCK = BLOCK_M * ROW_BYTES;
  static constexpr int MASK_BLOCKS = (BLOCK_N * MASK_SIZE + ROW_BYTES - 1) / ROW_BYTES;
  static constexpr int MASK_BYTES = MASK_BLOCKS * MASK_BLOCK;
  static constexpr int MASKS_WANTED = STAGES < 2 ? STAGES : 2;
  static constexpr int MASKS_AT_MOST =
      ROOM / MASK_BYTES < MASKS_WANTED ? ROOM / MASK_BYTES : MASKS_WANTED;
  static constexpr int MASK_STAGES = HAS_MASK ? MASKS_AT_MOST : 0;
  static_assert(MASK_STAGES > 0 || !HAS_MASK, "a block has no more shared memory");
  static constexpr int SHARED_BYTES = ALIGNMENT + OPERAND_BYTES + MASK_STAGES * MASK_BYTES;

  static constexpr int THREADS = 128 * (CONSUMERS + 1), CONSUMER_WARPS = 4 * CONSUMERS;

  // Blocks of a multiprocessor. One warpgroup with short steps leaves registers for others: while
  // it waits for products, takes exponentials and stores, they multiply.
  static constexpr bool IS_SHORT =
      CONSUMERS == 1 && BLOCK_N == 64 && DEPTH <= BLOCK_COLUMNS && WIDTH <= BLOCK_COLUMNS;
  static constexpr int BLOCKS_WANTED = IS_SHORT ? 3 : 1;
  static constexpr int BLOCKS_AT_MOST = 228 * 1024 / (SHARED_BYTES + 2 * 1024);
  static constexpr int BLOCKS = BLOCKS_AT_MOST < BLOCKS_WANTED ? BLOCKS_AT_MOST : BLOCKS_WANTED;
  // A block's threads begin with equal shares of the registers, which then change hands.
  static constexpr int SHARE = 64 * 1024 / (BLOCKS * THREADS) / 8 * 8;
  static constexpr bool MOVES_REGISTERS = CONSUMERS >= 2 || BLOCKS > 1;
  static constexpr int PRODUCER_REGISTERS = 24;
  static constexpr int MOST_REGISTERS =
      (SHARE * THREADS - PRODUCER_REGISTERS * 128) / (CONSUMERS * 128) / 8 * 8;
  static constexpr int CONSUMER_REGISTERS = MOST_REGISTERS < 240 ? MOST_REGISTERS : 240;
  // Two warpgroups find their turns at the tensor cores by themselves.
  static constexpr bool IN_TURNS = PLANES == 1 && CONSUMERS == 3;

  static constexpr int SCORES = BLOCK_N / 2;  // of a thread
  static constexpr int STEPS = DEPTH / 16;    // instructions along the depth
  static constexpr int WINDOW = 2;            // of them that tensor cores add
  static constexpr int KEY_STEPS = BLOCK_N / 16;
  static constexpr int KEY_WINDOW = 4;
  // Columns of v that an instruction has.
  static constexpr int PART = PLANES == 2 || WIDTH % 128 != 0 ? 64 : 128;
  static constexpr int PARTS = WIDTH / PART;
};

// What a block works on.
struct AttentionPlace {
  int batch, head, row;  // no rows: -1

  // The only place of a block where blocks are as many as tiles.
  template <class Tile>
  __device__ __forceinline__ static AttentionPlace of(const AttentionParameters& p, bool causal) {
    return of_tile<Tile>(p, causal, static_cast<int>(blockIdx.x));
  }
  template <class Tile>
  __device__ __forceinline__ static AttentionPlace of_tile(const AttentionParameters& p,
                                                           bool causal, int number) {
    const int tile = number % p.tiles, above = number / p.tiles;
    // Rows with many keys first.
    return {above / p.problem.heads, above % p.problem.heads,
            (causal ? p.tiles - 1 - tile : tile) * Tile::BLOCK_M};
  }

  // The place of a block's turn, false after the last. Two tiles of a unit have together as many
  // keys as those of any other.
  template <class Config>
  __device__ __forceinline__ static bool find(const AttentionParameters& p, int turn,
                                              AttentionPlace& at) {
    using Tile = AttentionTile<Config>;
    const int round = p.is_paired ? turn / 2 : turn;
    const int unit = static_cast<int>(blockIdx.x + round * gridDim.x);
    if (unit >= p.units) return false;
    if (!p.is_paired) {
      at = of_tile<Tile>(p, Config::CAUSAL, unit);
      return true;
    }
    const int half = (p.tiles + 1) / 2, above = unit / half, first = unit % half;
    const int second = p.tiles - 1 - first;
    const int tile = turn % 2 == 0 ? second : first;
    at.batch = above / p.problem.heads;
    at.head = above % p.problem.heads;
    at.row = turn % 2 == 1 && first == second ? -1 : tile * Tile::BLOCK_M;
    return true;
  }
};

// The exponent of a scale for numbers of which `bits`, as an integer, is the largest absolute one.
__device__ __forceinline__ int plane_exponent(uint32_t bits) {
  const int wanted = 14 + 127 - static_cast<int>(bits >> 23);
  return bits == 0 ? 0 : wanted > 126 ? 126 : wanted;
}

// 2^exponent, which is a normal number.
__device__ __forceinline__ float plane_power(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}
