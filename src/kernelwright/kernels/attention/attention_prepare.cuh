#pragma once
// What comes before attention: the largest numbers of float32 operands and their planes; copies of
// 16-bit operands that boxes cannot be read of.

#include "attention_prepare_head.cuh"
#include "attention_prepared.cuh"
#include "dependent_launch.cuh"

// The rows of a head that a block prepares. Neighbouring lanes have neighbouring runs of a row.
template <class Element, int RUN>
struct PreparedRows {
  static constexpr int TURNS = 8 / RUN;  // of a row of at most 256 columns

  const AttentionOperand& operand;
  const Element* source;
  int64_t head;  // among all heads of the operand
  int row, end, lanes;

  __device__ __forceinline__ PreparedRows(const PrepareParameters& p, int number, int64_t block)
      : operand(p.problem.operands[number]) {
    const int64_t blocks = (operand.rows + PREPARE_ROWS - 1) / PREPARE_ROWS;
    head = block / blocks;
    row = static_cast<int>(block % blocks) * PREPARE_ROWS;
    end = min(row + PREPARE_ROWS, operand.rows);
    source = static_cast<const Element*>(operand.data) + head / operand.heads * operand.strides[0] +
             head % operand.heads * operand.strides[1];
    lanes = 1;
    while (lanes < 32 && lanes * RUN < operand.columns) lanes *= 2;
  }

  __device__ __forceinline__ int lane() const { return threadIdx.x % 32 % lanes; }
  __device__ __forceinline__ int column(int turn) const { return (turn * lanes + lane()) * RUN; }
  // Rows of this thread are `first_row`, and every `rows_at_once` further one.
  __device__ __forceinline__ int rows_at_once() const { return ATTENTION_PREPARE_THREADS / lanes; }
  __device__ __forceinline__ int first_row() const {
    return row + static_cast<int>(threadIdx.x) / lanes;
  }

  __device__ __forceinline__ void load(int of_row, int turn, Element (&run)[RUN]) const {
    const int first = column(turn);
    if constexpr (RUN > 1) {
      if (first < operand.columns) {
        const auto* const from = source + of_row * operand.strides[2] + first;
        *reinterpret_cast<uint4*>(run) = __ldg(reinterpret_cast<const uint4*>(from));
        return;
      }
    } else if (first < operand.columns) {
      run[0] = source[of_row * operand.strides[2] + first * operand.strides[3]];
      return;
    }
#pragma unroll
    for (int i = 0; i < RUN; ++i) run[i] = Element();
  }
};

// A head's largest absolute value.
template <int RUN>
__device__ __forceinline__ void find_largest(const PrepareParameters& p, int number,
                                             int64_t block) {
  const PreparedRows<float, RUN> rows(p, number, block);
  uint32_t most = 0;
  for (int r = rows.first_row(); r < rows.end; r += rows.rows_at_once()) {
#pragma unroll
    for (int t = 0; t < rows.TURNS; ++t) {
      alignas(16) float run[RUN];
      rows.load(r, t, run);
#pragma unroll
      for (int i = 0; i < RUN; ++i) most = max(most, __float_as_uint(run[i]) & 0x7fffffffu);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    most = max(most, __shfl_xor_sync(0xffffffffu, most, distance));
  }
  if (threadIdx.x % 32 == 0 && most > 0) atomicMax(p.room.largest[number] + rows.head, most);
}

// The planes of a block's rows.
template <int RUN>
__device__ __forceinline__ void write_planes(const PrepareParameters& p, int number,
                                             int64_t block) {
  const PreparedRows<float, RUN> rows(p, number, block);
  const uint32_t largest = p.room.largest[number][rows.head];
  const float scale = plane_power(plane_exponent(largest));
  const int64_t plane = int64_t{rows.operand.rows} * p.pitch[number];
  __half* const planes = static_cast<__half*>(p.room.planes[number]) + rows.head * 2 * plane;
  uint32_t some = 0, large = 0;  // bits of columns
  int seen = 0;
  bool fits = largest < 0x7f800000u;
  for (int r = rows.row; r < rows.end; r += rows.rows_at_once()) {
    const int own = r + static_cast<int>(threadIdx.x) / rows.lanes;
    uint32_t row_some = 0, row_large = 0;
#pragma unroll
    for (int t = 0; t < rows.TURNS; ++t) {
      if (own >= rows.end) continue;
      alignas(16) float run[RUN];
      alignas(8) __half high[RUN], low[RUN];
      rows.load(own, t, run);
#pragma unroll
      for (int i = 0; i < RUN; ++i) {
        const float scaled = run[i] * scale;
        high[i] = __float2half_rn(scaled);
        low[i] = __float2half_rn(scaled - __half2float(high[i]));
        if (run[i] != 0) row_some |= 1u << (t * RUN + i);
        if (fabsf(scaled) >= PLANE_SMALL) row_large |= 1u << (t * RUN + i);
      }
      const int column = rows.column(t);
      if (column >= p.pitch[number]) continue;
      __half* const to = planes + int64_t{own} * p.pitch[number] + column;
      if constexpr (RUN == 4) {
        *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(high);
        *reinterpret_cast<uint2*>(to + plane) = *reinterpret_cast<const uint2*>(low);
      } else {
        *to = high[0];
        to[plane] = low[0];
      }
    }
    some |= row_some;
    large |= row_large;
    seen += own < rows.end;
    for (int distance = rows.lanes / 2; distance > 0; distance /= 2) {
      row_some |= __shfl_xor_sync(0xffffffffu, row_some, distance);
      row_large |= __shfl_xor_sync(0xffffffffu, row_large, distance);
    }
    fits = fits && (row_some == 0 || row_large != 0);
  }
  // Of few rows one small number says nothing.
  if (seen >= 4) fits = fits && (some & ~large) == 0;
  if (!__syncthreads_and(static_cast<int>(fits)) && threadIdx.x == 0) {
    atomicOr(p.room.unfit[number] + rows.head, 1u);
  }
}

// A copy of a block's rows, next to each other.
template <class Element>
__device__ __forceinline__ void copy_rows(const PrepareParameters& p, int number, int64_t block) {
  const PreparedRows<Element, 1> rows(p, number, block);
  auto* const to = static_cast<Element*>(p.room.planes[number]) +
                   rows.head * rows.operand.rows * p.pitch[number];
  for (int r = rows.first_row(); r < rows.end; r += rows.rows_at_once()) {
#pragma unroll
    for (int t = 0; t < rows.TURNS; ++t) {
      Element run[1];
      rows.load(r, t, run);
      if (rows.column(t) < p.pitch[number]) {
        to[int64_t{r} * p.pitch[number] + rows.column(t)] = run[0];
      }
    }
  }
}

// A copy of rows of the mask.
template <class Stored>
__device__ __forceinline__ void copy_mask(const PrepareParameters& p, int64_t block) {
  const AttentionOperand& mask = p.mask;
  const int64_t row = block * MASK_COPY_ROWS + static_cast<int>(threadIdx.x) / 32;
  if (row >= mask.head_count() * mask.rows) return;
  const int64_t head = row / mask.rows;
  const Stored* const from =
      static_cast<const Stored*>(mask.data) + head / mask.heads * mask.strides[0] +
      head % mask.heads * mask.strides[1] + row % mask.rows * mask.strides[2];
  Stored* const to = static_cast<Stored*>(p.room.mask) + row * p.mask_pitch;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < mask.columns; i += 32) {
    to[i] = from[i * mask.strides[3]];
  }
}

// The operand that a block has, and its number among the operand's blocks.
__device__ __forceinline__ int prepared_operand(const PrepareParameters& p, int64_t& block) {
  const int number = (blockIdx.x >= p.first_block[1]) + (blockIdx.x >= p.first_block[2]) +
                     (blockIdx.x >= p.first_block[3]);
  block = blockIdx.x - p.first_block[number];
  return number;
}

// First kernel of float32 operands with heads that are cut; words of the room are zero before.
__device__ __forceinline__ void attention_largest(const PrepareParameters& p) {
  wait_for_previous_kernel();
  int64_t block;
  const int number = prepared_operand(p, block);
  if (p.has_vectors[number]) {
    find_largest<4>(p, number, block);
  } else {
    find_largest<1>(p, number, block);
  }
}

// The kernel before attention.
template <class Config>
__device__ __forceinline__ void attention_prepare(const PrepareParameters& p) {
  wait_for_previous_kernel();
  int64_t block;
  const int number = prepared_operand(p, block);
  using Tile = AttentionTile<Config>;
  if (number == 3) {
    if constexpr (Tile::HAS_MASK) copy_mask<typename Tile::Stored>(p, block);
  } else if constexpr (Tile::PLANES == 1) {
    copy_rows<typename Config::Element>(p, number, block);
  } else if (p.head_threads[number] == 32) {
    prepare_head<32>(p, number, block);
  } else if (p.head_threads[number] == ATTENTION_PREPARE_THREADS) {
    prepare_head<ATTENTION_PREPARE_THREADS>(p, number, block);
  } else if (p.has_vectors[number]) {
    write_planes<4>(p, number, block);
  } else {
    write_planes<1>(p, number, block);
  }
}
