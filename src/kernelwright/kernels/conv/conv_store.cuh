#pragma once
// From the fragments of a warpgroup to the result, in any strides.

#include "conv_tile.cuh"
#include "gemm_sm90_store.cuh"
#include "vector.cuh"

// Where the warpgroup's positions lie in the result: computed once for all channels.
template <class Tile, class Parameters>
__device__ __forceinline__ void find_places(const Parameters& p, const ConvShared<Tile>& shared,
                                            const ConvWork& work, int warpgroup) {
  constexpr int COUNT = Tile::PART_POSITIONS;
  const int barrier = 1 + warpgroup;
  const uint32_t first = work.position + (Tile::SPLITS_POSITIONS ? warpgroup * COUNT : 0);
  int64_t* const places = shared.places + warpgroup * COUNT;
  sync_warps(barrier, Tile::WARPGROUP);  // the places before have been read
  for (int i = threadIdx.x % Tile::WARPGROUP; i < COUNT; i += Tile::WARPGROUP) {
    int at[MAX_SPATIAL];
    bool exists = first + i < p.positions;
    int64_t place = p.divisors.split(first + i, at) * p.out_strides.image;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = p.shape.dimensions[d];
      const int of = at[d] * dimension.phases + work.phase.of[d];
      exists = exists && of < dimension.out;
      place += of * p.out_strides.spatial[d];
    }
    places[i] = exists ? place : -1;
  }
  sync_warps(barrier, Tile::WARPGROUP);
}

// Writes the sums of 64 channels by PART_POSITIONS, through the warps' row buffers: whole lines of
// a channel's positions. `part`: of the warpgroup.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_conv(const Parameters& p, const ConvShared<Tile>& shared,
                                           const ConvWork& work, int warpgroup, int part,
                                           int exponent, float (&sums)[Tile::REGISTERS]) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  using Row = typename std::remove_reference_t<decltype(p.epilogue)>::Row;
  constexpr int COLUMNS = RowBuffer::COLUMNS, ROWS = RowBuffer::ROWS;
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // found here: before, its registers would be missing for sums
  const int lane = thread % 32, warp = thread % Tile::WARPGROUP / 32;
  const int of_part = Tile::ALTERNATES ? part : Tile::SPLITS_POSITIONS ? 0 : warpgroup;
  const int first = work.channel + of_part * Tile::PART_CHANNELS + warp * ROWS;  // of the group
  const int channels = p.shape.out_channels;
  if (first >= channels) return;
  const int first_of_all = work.group * channels + first;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row = min(first + lane / 4 + 8 * below, channels - 1) - first;
    const Unscale unscale = Unscale::of(exponent + __ldg(p.filter_exponents + first_of_all + row));
#pragma unroll
    for (int i = 2 * below; i < Tile::REGISTERS; i += 4) {
      sums[i] = unscale(sums[i]);
      sums[i + 1] = unscale(sums[i + 1]);
    }
  }
  RowBuffer& buffer = reinterpret_cast<RowBuffer*>(shared.buffers)[warpgroup * 4 + warp];
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  const int64_t channel_stride = p.out_strides.channel;
  Result* const out = p.out + first_of_all * channel_stride;
  // Positions without gaps, whose rows are aligned and all there.
  const int64_t begin = places[0], end = places[Tile::PART_POSITIONS - 1];
  const bool is_run = begin >= 0 && end == begin + Tile::PART_POSITIONS - 1 &&
                      first + ROWS <= channels && channel_stride % RUN == 0 &&
                      reinterpret_cast<uintptr_t>(out + begin) % (RUN * sizeof(Result)) == 0;
  if (is_run) {
    const int row = lane / 8, column = lane % 8 * RUN;
    Row epilogues[RUNS];
#pragma unroll
    for (int i = 0; i < RUNS; ++i) epilogues[i] = p.epilogue.row(first_of_all + row + i * RUN_ROWS);
    for_each_run(sums, lane / 4, buffer, [&](int i, int columns, const Vector<float, RUN>& run) {
      const int64_t place = begin + columns + column + (row + i * RUN_ROWS) * channel_stride;
      Vector<Result, RUN> results;
#pragma unroll
      for (int j = 0; j < RUN; ++j) {
        const int64_t in_result = first_of_all * channel_stride + place + j;
        results.element[j] = narrow<Result>(epilogues[i](run.element[j], in_result));
      }
      store_vector(out + place, results);
    });
  } else {
    const int rows = min(ROWS, channels - first);
    for_each_columns(sums, lane / 4, buffer, [&](int columns, const RowBuffer& numbers) {
      const int64_t place = places[columns + lane];
      if (place < 0) return;
#pragma unroll 4
      for (int r = 0; r < rows; ++r) {
        const Row epilogue = p.epilogue.row(first_of_all + r);
        const int64_t in_channel = place + r * channel_stride;
        out[in_channel] = narrow<Result>(
            epilogue(numbers.numbers[r][lane], first_of_all * channel_stride + in_channel));
      }
    });
  }
}
