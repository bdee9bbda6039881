#pragma once
// Moments of a tile's results, from the registers of the warpgroup that summed them.

#include "conv_joined.cuh"
#include "conv_moments.cuh"
#include "conv_tile.cuh"

// Which of a lane's columns are meant: a bit for each, in the order of its registers. Column number
// `i` is position i / 2 * 8 + i % 2 after the lane's first.
class LaneColumns {
 public:
  // Those for which exists(position, column) is true.
  template <class Tile, class Exists>
  __device__ __forceinline__ static uint64_t where(const Exists& exists) {
    const int first = first_position();
    uint64_t bits = 0;
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS / 2; ++i) {
      bits |= static_cast<uint64_t>(exists(first + i / 2 * 8 + i % 2, i)) << i;
    }
    return bits;
  }
  // The same of positions alone, in a loop: few registers are left beside the sums.
  template <class Tile, class Exists>
  __device__ __forceinline__ static uint64_t at_positions(const Exists& exists) {
    const int first = first_position();
    uint64_t bits = 0;
#pragma unroll 1
    for (int i = Tile::REGISTERS / 2 - 2; i >= 0; i -= 2) {
      bits = bits << 2 | static_cast<uint64_t>(exists(first + 4 * i + 1)) << 1 |
             static_cast<uint64_t>(exists(first + 4 * i));
    }
    return bits;
  }
  // Those of positions before `end`.
  __device__ __forceinline__ static uint64_t before(int end) {
    const int of_lane = max(end - first_position(), 0);
    const int columns = of_lane / 8 * 2 + min(of_lane % 8, 2);
    return columns >= 64 ? ~uint64_t{0} : (uint64_t{1} << columns) - 1;
  }

 private:
  __device__ __forceinline__ static int first_position() { return threadIdx.x % 4 * 2; }
};

// A joined phase, which is a row of the filter: each position says which phases it has.
class RowPhase {
 public:
  // `row`: of a warp's 16.
  __device__ __forceinline__ RowPhase(const ConvShape& shape, int row) {
    int rest = row;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      of_[d] = rest % shape.dimensions[d].joined;
      rest /= shape.dimensions[d].joined;
    }
  }
  __device__ __forceinline__ bool exists(const JoinedPlace& place) const {
    return place.exists() && of_[0] < place.count(0) && of_[1] < place.count(1) &&
           of_[2] < place.count(2);
  }

 private:
  int of_[MAX_SPATIAL];
};

// The sum over four lanes that have a row together.
__device__ __forceinline__ float sum_of_row(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

// Moments of a row's numbers in the columns that are meant. `below`: 1 for the lane's second row.
template <int COUNT>
__device__ __forceinline__ Moments moments_of_row(const float (&sums)[COUNT], int below,
                                                  uint64_t columns) {
  float totals[2] = {}, spreads[2] = {};
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) {
    const float number = sums[i / 2 * 4 + 2 * below + i % 2];
    totals[i % 2] += (columns >> i & 1) != 0 ? number : 0.0f;
  }
  const float count = sum_of_row(static_cast<float>(__popcll(columns)));
  const float total = sum_of_row(totals[0] + totals[1]);
  const float mean = mean_of(total, count);
#pragma unroll
  for (int i = 0; i < COUNT / 2; ++i) {
    const float number = sums[i / 2 * 4 + 2 * below + i % 2];
    const float distance = (columns >> i & 1) != 0 ? number - mean : 0.0f;
    spreads[i % 2] = fmaf(distance, distance, spreads[i % 2]);
  }
  return {count, mean, sum_of_row(spreads[0] + spreads[1])};
}

// Writes the states of 64 rows for one image. `part`: of the warpgroup; columns_of(row): which
// columns of one of a warp's rows are meant.
template <class Tile, class Parameters, class Columns>
__device__ __forceinline__ void write_states(const Parameters& p, const ConvWork& work,
                                             int warpgroup, int part, Moments* slot,
                                             const float (&sums)[Tile::REGISTERS],
                                             const Columns& columns_of) {
  const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
  if (rows.count <= 0) return;
  const int count = Tile::JOINS ? rows.count * p.shape.joined() : rows.count;
  const int first = Tile::JOINS ? rows.first / p.shape.run_channels() * FILTER_RUN : rows.first;
  Moments* const of_warp = slot + work.group * p.shape.rows() + first;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = threadIdx.x % 32 / 4 + 8 * below;
    const Moments found = moments_of_row(sums, below, columns_of(row));
    if (threadIdx.x % 4 == 0 && row < count) of_warp[row] = found;
  }
}

// The same for all images that it meets.
template <class Tile, class Parameters>
__device__ __forceinline__ void write_moments(const Parameters& p, const ConvShared<Tile>& shared,
                                              const ConvWork& work, int unit, int warpgroup,
                                              const float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  static_assert(Tile::CLUSTER == 1, "tiles are numbered without clusters");
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
  const uint64_t exist =
      LaneColumns::at_positions<Tile>([&](int position) { return places[position] >= 0; });
  int segment = 0;
  for (int first = 0; first < Tile::PART_POSITIONS; first = end, end += plane, ++segment) {
    const uint64_t of_image = exist & ~LaneColumns::before(first) & LaneColumns::before(end);
    const auto columns_of = [&](int row) {
      if constexpr (!Tile::JOINS) return of_image;
      if constexpr (Tile::JOINS) {
        const RowPhase phase(p.shape, row);
        return of_image & LaneColumns::at_positions<Tile>([&](int position) {
                 return phase.exists(JoinedPlace(places[position]));
               });
      }
    };
#pragma unroll
    for (int own = 0; own < Tile::PARTS; ++own) {
      write_states<Tile>(p, work, warpgroup, own, states.slot(tile, part, segment), sums[own],
                         columns_of);
    }
    if (Tile::HAS_PATCHES || begin + end >= p.positions) break;
  }
}
