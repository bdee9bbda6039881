#pragma once
// Reductions of a convolution's results where they were summed, before they are stored: over
// windows that lie side by side, then over channels. What is reduced is never written.
//
// A window's outputs are phases of one position (ConvDimension::windows): a warpgroup sums one
// after the other and keeps what is left of them in registers. Channels are the rows of fragments:
// a warp reduces its own by shuffles, and the warps of a tile meet in shared memory.

#include "conv_fold.cuh"
#include "conv_tile.cuh"

// Where some windows reach beyond the outputs, a place says how many outputs of its window there
// are along each dimension: their last one, in fields of five bits above the place.
class CountedPlace {
 public:
  __device__ __forceinline__ static int64_t word(int64_t place, int64_t counts) {
    return counts << SHIFT | place;
  }
  __device__ __forceinline__ static int64_t counted(int dimension, int outputs) {
    return int64_t{outputs - 1} << BITS * dimension;
  }
  __device__ __forceinline__ static int64_t place(int64_t word) {
    return word < 0 ? word : word & ((int64_t{1} << SHIFT) - 1);
  }
  // Whether a place has the output of a phase; all dimensions are compared at once, by the highest
  // bits of the fields, which a borrow takes away.
  __device__ __forceinline__ static bool exists(int64_t word, uint32_t phase) {
    return (((static_cast<uint32_t>(word >> 32) | BORROWS) - phase) & BORROWS) == BORROWS;
  }
  __device__ __forceinline__ static uint32_t fields(const ConvPhase& phase) {
    uint32_t fields = 0;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) fields |= phase.of[d] << (SHIFT - 32 + BITS * d);
    return fields;
  }

 private:
  static constexpr int BITS = 5, SHIFT = 63 - BITS * MAX_SPATIAL;
  static constexpr uint32_t ONES = 1 | 1 << BITS | 1 << 2 * BITS;
  static constexpr uint32_t BORROWS = ONES << (SHIFT - 32 + BITS - 1);
  static_assert(MAX_SPATIAL == 3 && MAX_PHASES <= 1 << (BITS - 1),
                "a window's outputs are counted");
};

// Adds the sums of a window's output to what is left of those before. `places`: of the warpgroup.
template <ConvFold HOW, int COUNT>
__device__ __forceinline__ void fold_window(float (&values)[COUNT], const float (&sums)[COUNT],
                                            bool is_first, bool has_parts, const ConvPhase& phase,
                                            const int64_t* places) {
  if (is_first) {  // it is always there
#pragma unroll
    for (int i = 0; i < COUNT; ++i) values[i] = sums[i];
  } else if (!has_parts) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) values[i] = fold<HOW>(values[i], sums[i]);
  } else {
    const int column = threadIdx.x % 4 * 2;
    const uint32_t fields = CountedPlace::fields(phase);
#pragma unroll
    for (int i = 0; i < COUNT; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!CountedPlace::exists(places[2 * i + column + j], fields)) continue;
        values[i + j] = fold<HOW>(values[i + j], sums[i + j]);
        values[i + j + 2] = fold<HOW>(values[i + j + 2], sums[i + j + 2]);
      }
    }
  }
}

// Each lane of those with the same fragment's columns keeps a part of their values: of its own rows
// and of the lanes' that are a multiple of 32 / 2^STEPS apart. The first that it keeps is returned.
template <ConvFold HOW, int STEPS, int COUNT>
__device__ __forceinline__ int fold_rows(float (&values)[COUNT]) {
  int from = 0;
#pragma unroll
  for (int step = 1; step <= STEPS; ++step) {
    const int mask = 32 >> step, half = COUNT >> step;
    const bool is_upper = (threadIdx.x & mask) != 0;
    from += is_upper ? half : 0;
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      if (i >= half) continue;
      const float sent = is_upper ? values[i] : values[i + half];
      const float kept = is_upper ? values[i + half] : values[i];
      values[i] = fold<HOW>(kept, __shfl_xor_sync(~0u, sent, mask));
    }
  }
  return from;
}

// Stores one result for each position of a tile that has all channels.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_over_channels(
    const Parameters& p, const ConvShared<Tile>& shared, const ConvWork& work, int warpgroup,
    const float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  constexpr ConvFold HOW = Parameters::CHANNELS;
  constexpr int COLUMNS = Tile::REGISTERS / 2;  // of a lane
  constexpr bool IS_SHARED = !Tile::ALTERNATES && Tile::CHANNEL_PARTS == 2;
  constexpr int WARPS = IS_SHARED ? Tile::CONSUMER_WARPS : 4;  // that have the same positions
  float columns[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) columns[c] = neutral_of<HOW>();
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) {
    const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
    const int row = threadIdx.x % 32 / 4;
    const bool has_first = row < rows.count, has_second = row + 8 < rows.count;
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int i = c / 2 * 4 + c % 2;
      columns[c] = fold<HOW>(columns[c], has_first ? sums[part][i] : neutral_of<HOW>());
      columns[c] = fold<HOW>(columns[c], has_second ? sums[part][i + 2] : neutral_of<HOW>());
    }
  }
  const int from = fold_rows<HOW, 3>(columns);
  const int own = warpgroup * 4 + threadIdx.x % Tile::WARPGROUP / 32;
  const auto room = [&](int warp) {
    return reinterpret_cast<float*>(shared.buffers + warp * Tile::BUFFER_BYTES);
  };
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; ++i) {
    const int c = from + i;
    room(own)[c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2] = columns[i];
  }
  const int barrier = IS_SHARED ? ConvTurns::FREE : 1 + warpgroup;
  const int first_warp = IS_SHARED ? 0 : warpgroup * 4;
  const int thread = threadIdx.x - Tile::WARPGROUP - first_warp * 32;
  sync_warps(barrier, WARPS * 32);
  for (int i = thread; i < Tile::PART_POSITIONS; i += WARPS * 32) {
    const int64_t place = shared.places[warpgroup * Tile::PART_POSITIONS + i];
    float value = room(first_warp)[i];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) value = fold<HOW>(value, room(first_warp + warp)[i]);
    if (place < 0) continue;
    ConvElements<1> element;
    element.set(0, value, place, 0);
    p.epilogue.finish(element);
    p.out[place] = narrow<Result>(element.values[0]);
  }
  // Before the rooms are written again, a warpgroup waits to find its next places; two do here.
  if (IS_SHARED) sync_warps(barrier, WARPS * 32);
}
