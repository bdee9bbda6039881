#pragma once
// Moments of a tile's results, from the registers of the warpgroup that summed them.

#include "conv_joined.cuh"
#include "conv_moments.cuh"
#include "conv_tile.cuh"

// Which of a lane's columns are meant: a bit for each. Column number `i` is position
// i / 2 * 8 + i % 2 after the lane's first.
template <int COLUMNS>
class LaneColumns {
 public:
  static constexpr int CHUNKS = COLUMNS / 8;  // of 32 positions

  // Adds those of a chunk's positions that a warp voted for, a lane each. Without a branch, of
  // which the compiler makes an index into local memory.
  __device__ __forceinline__ void take(int chunk, uint32_t votes) {
    const uint32_t own = votes >> (threadIdx.x % 4 * 2) & 0x03030303u;
#pragma unroll
    for (int word = 0; word < WORDS; ++word) {
      words_[word] |= chunk / 4 == word ? own << chunk % 4 * 2 : 0;
    }
  }
  // `i`: known to the compiler, so that the bit is.
  __device__ __forceinline__ bool has(int i) const {
    return (words_[i / 32] >> (i / 2 % 4 * 8 + i / 8 % 4 * 2 + i % 2) & 1) != 0;
  }
  __device__ __forceinline__ int count() const {
    int found = 0;
#pragma unroll
    for (const uint32_t word : words_) found += __popc(word);
    return found;
  }

 private:
  static constexpr int WORDS = (COLUMNS + 31) / 32;
  uint32_t words_[WORDS] = {};
};

// The columns that are meant of a lane's two rows.
template <int COLUMNS>
struct OneForBoth {
  static constexpr bool ARE_SHARED = true;
  LaneColumns<COLUMNS> columns;
  __device__ __forceinline__ const LaneColumns<COLUMNS>& of(int) const { return columns; }
};
template <int COLUMNS>
struct OneForEach {
  static constexpr bool ARE_SHARED = false;
  LaneColumns<COLUMNS> columns[2];
  __device__ __forceinline__ const LaneColumns<COLUMNS>& of(int below) const {
    return columns[below];
  }
};

// Those of all rows: positions for which exists(position) is true.
template <int COLUMNS, class Exists>
__device__ __forceinline__ OneForBoth<COLUMNS> columns_where(const Exists& exists) {
  OneForBoth<COLUMNS> found;
#pragma unroll
  for (int chunk = 0; chunk < LaneColumns<COLUMNS>::CHUNKS; ++chunk) {
    const int position = chunk * 32 + threadIdx.x % 32;
    found.columns.take(chunk, __ballot_sync(~0u, exists(position)));
  }
  return found;
}

// A joined phase, which is a row of the filter.
struct RowPhase {
  int of[MAX_SPATIAL];

  // `row`: of a warp's 16.
  __device__ __forceinline__ RowPhase(const ConvShape& shape, int row) {
    int rest = row;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      of[d] = rest % shape.dimensions[d].joined;
      rest /= shape.dimensions[d].joined;
    }
  }
};

// Those of joined phases: each position says which it has. `places`: of the warpgroup.
template <int COLUMNS, class Exists>
__device__ __forceinline__ OneForEach<COLUMNS> columns_of_phases(const ConvShape& shape,
                                                                 const int64_t* places,
                                                                 const Exists& exists) {
  const int lane = threadIdx.x % 32;
  const RowPhase phases[] = {{shape, lane / 4}, {shape, lane / 4 + 8}};
  OneForEach<COLUMNS> found;
  // One at a time: few registers are left beside the sums.
#pragma unroll 1
  for (int chunk = 0; chunk < LaneColumns<COLUMNS>::CHUNKS; ++chunk) {
    const int position = chunk * 32 + lane;
    const JoinedPlace place(places[position]);
    uint32_t votes[2];
    votes[0] = votes[1] = __ballot_sync(~0u, exists(position));
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      for (int phase = 1; phase < shape.dimensions[d].joined; ++phase) {
        const uint32_t have = __ballot_sync(~0u, place.count(d) > phase);
        if (phases[0].of[d] == phase) votes[0] &= have;
        if (phases[1].of[d] == phase) votes[1] &= have;
      }
    }
    found.columns[0].take(chunk, votes[0]);
    found.columns[1].take(chunk, votes[1]);
  }
  return found;
}

// The sum over four lanes that have a row together.
__device__ __forceinline__ float sum_of_row(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// Moments of the numbers of a lane's rows from FIRST to LAST, in the columns that are meant. Rows
// with the same columns go together: each column is asked for once.
template <int FIRST, int LAST, int COUNT, class Columns>
__device__ __forceinline__ void moments_of_rows(const float (&sums)[COUNT], const Columns& columns,
                                                Moments (&found)[2]) {
  float totals[2][2] = {}, spreads[2][2] = {};
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) {
#pragma unroll
    for (int below = FIRST; below <= LAST; ++below) {
      if (columns.of(below).has(i)) totals[below][i % 2] += sums[i / 2 * 4 + 2 * below + i % 2];
    }
  }
#pragma unroll
  for (int below = FIRST; below <= LAST; ++below) {
    found[below].count = sum_of_row(static_cast<float>(columns.of(below).count()));
    const float total = sum_of_row(totals[below][0] + totals[below][1]);
    found[below].mean = mean_of(total, found[below].count);
  }
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) {
#pragma unroll
    for (int below = FIRST; below <= LAST; ++below) {
      const float distance = sums[i / 2 * 4 + 2 * below + i % 2] - found[below].mean;
      float& spread = spreads[below][i % 2];
      if (columns.of(below).has(i)) spread = fmaf(distance, distance, spread);
    }
  }
#pragma unroll
  for (int below = FIRST; below <= LAST; ++below) {
    found[below].spread = sum_of_row(spreads[below][0] + spreads[below][1]);
  }
}

// Writes the states of 64 rows for one image. `part`: of the warpgroup.
template <class Tile, class Parameters, class Columns>
__device__ __forceinline__ void write_states(const Parameters& p, const ConvWork& work,
                                             int warpgroup, int part, Moments* slot,
                                             const float (&sums)[Tile::REGISTERS],
                                             const Columns& columns) {
  const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
  if (rows.count <= 0) return;
  const int count = Tile::JOINS ? rows.count * p.shape.joined() : rows.count;
  const int first = Tile::JOINS ? rows.first / p.shape.run_channels() * FILTER_RUN : rows.first;
  Moments* const of_warp = slot + work.group * p.shape.rows() + first;
  Moments found[2];
  if constexpr (Columns::ARE_SHARED) {
    moments_of_rows<0, 1>(sums, columns, found);
  } else {
    moments_of_rows<0, 0>(sums, columns, found);
    moments_of_rows<1, 1>(sums, columns, found);
  }
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = threadIdx.x % 32 / 4 + 8 * below;
    if (threadIdx.x % 4 == 0 && row < count) of_warp[row] = found[below];
  }
}

// The same for all images that it meets.
template <class Tile, class Parameters>
__device__ __forceinline__ void write_moments(const Parameters& p, const ConvShared<Tile>& shared,
                                              const ConvWork& work, int unit, int warpgroup,
                                              const float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  static_assert(Tile::CLUSTER == 1, "tiles are numbered without clusters");
  constexpr int COLUMNS = Tile::REGISTERS / 2;
  const MomentStates& states = p.epilogue.moments;
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  const int part = Tile::SPLITS_POSITIONS ? warpgroup : 0;
  // Found here: before, their registers would be missing for sums.
  uint32_t begin = work.position + part * Tile::PART_POSITIONS;
  asm volatile("" : "+r"(begin), "+r"(unit));
  const uint32_t of_groups = p.units.channel_tiles.quotient(unit);
  const int64_t tile = p.units.groups.quotient(of_groups);
  const int plane = static_cast<int>(p.runs.plane.value());
  int end = Tile::PART_POSITIONS;  // of the image
  if (!Tile::HAS_PATCHES)
    end = plane - static_cast<int>(begin - p.runs.plane.quotient(begin) * plane);
  int segment = 0;
  for (int first = 0; first < Tile::PART_POSITIONS; first = end, end += plane, ++segment) {
    const auto is_of_image = [&](int position) {
      return places[position] >= 0 && position >= first && position < end;
    };
    const auto columns = [&] {
      if constexpr (Tile::JOINS) return columns_of_phases<COLUMNS>(p.shape, places, is_of_image);
      if constexpr (!Tile::JOINS) return columns_where<COLUMNS>(is_of_image);
    }();
#pragma unroll
    for (int own = 0; own < Tile::PARTS; ++own) {
      write_states<Tile>(p, work, warpgroup, own, states.slot(tile, part, segment), sums[own],
                         columns);
    }
    if (Tile::HAS_PATCHES || begin + end >= p.positions) break;
  }
}
