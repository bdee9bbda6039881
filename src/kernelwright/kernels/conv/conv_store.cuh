#pragma once
// From the fragments of a warpgroup to the result, in any strides.

#include "conv_facts.cuh"
#include "conv_joined.cuh"
#include "conv_late.cuh"
#include "conv_moments_tile.cuh"
#include "conv_reduction.cuh"
#include "conv_rows.cuh"
#include "conv_spans.cuh"
#include "gemm_sm90_store.cuh"
#include "vector.cuh"

// Where the warpgroup's positions lie in the result: computed once for all channels.
template <class Tile, class Parameters>
__device__ __forceinline__ void find_places(const Parameters& p, const ConvShared<Tile>& shared,
                                            const ConvWork& work, int warpgroup) {
  constexpr int COUNT = Tile::PART_POSITIONS;
  constexpr bool HAS_WINDOWS = ANY_WINDOWS && Parameters::WINDOWS != ConvFold::NONE;
  const int barrier = 1 + warpgroup;
  const int of_tile = Tile::SPLITS_POSITIONS ? warpgroup * COUNT : 0;
  int64_t* const places = shared.places + warpgroup * COUNT;
  sync_warps(barrier, Tile::WARPGROUP);  // the places before have been read
  for (int i = threadIdx.x % Tile::WARPGROUP; i < COUNT; i += Tile::WARPGROUP) {
    int at[MAX_SPATIAL], image;
    bool exists;
    if constexpr (Tile::HAS_PATCHES) {
      const int row = p.halo.pitch.quotient(i), column = i - row * p.halo.pitch.value();
      at[0] = work.at[0] + column;
      at[1] = work.at[1] + row;
      at[2] = work.at[2];
      image = work.image;
      exists = row < p.halo.rows && column < p.halo.columns;
    } else {
      const uint32_t position = work.position + of_tile + i;
      image = p.divisors.split(position, at);
      exists = position < p.positions && of_tile + i < p.runs.step;
    }
    int64_t place = image * p.out_strides.image, counts = 0;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = p.shape.dimensions[d];
      const int of = HAS_WINDOWS ? at[d] : at[d] * dimension.out_step + work.phase.of[d];
      exists = exists && (HAS_WINDOWS || of < dimension.out);
      place += of * p.out_strides.spatial[d];
      if constexpr (Tile::JOINS) counts |= JoinedPlace::counted(dimension, d, of);
      if constexpr (HAS_WINDOWS) counts |= CountedPlace::counted(d, dimension.outputs_of(of));
    }
    if (Tile::JOINS) place = JoinedPlace::word(place, counts);
    if (HAS_WINDOWS && p.has_window_parts) place = CountedPlace::word(place, counts);
    places[i] = exists ? place : -1;
  }
  sync_warps(barrier, Tile::WARPGROUP);
}

// Elements that a lane has at the same time: all loads come before the stores, which would hold
// them up. What finish reads takes registers, too.
template <class Epilogue>
constexpr int ELEMENTS_AT_ONCE = Epilogue::IS_LATE ? 8 : 16;

// 16 channels of 32 positions, from a row buffer: rows of `positions` that follow each other, whole
// and aligned. `out`: of the first channel and position, where `origin` is.
template <class Result, class Epilogue>
__device__ __forceinline__ void store_run_rows(const RowBuffer& buffer, const Epilogue& epilogue,
                                               Result* out, int64_t channel_stride,
                                               const ConvOrigin& origin) {
  constexpr int AT_ONCE = ELEMENTS_AT_ONCE<Epilogue> / RUN;
  const int column = threadIdx.x % 8 * RUN;
#pragma unroll 1
  for (int row = threadIdx.x % 32 / 8; row < RowBuffer::ROWS; row += AT_ONCE * RUN_ROWS) {
    ConvElements<AT_ONCE * RUN> elements;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int of = row + i * RUN_ROWS;
      take_run(elements, i * RUN, &buffer.numbers[of][column],
               origin.place + of * channel_stride + column, origin.channel + of);
    }
    epilogue.finish(elements);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      give_run(elements.values + i * RUN, out + (row + i * RUN_ROWS) * channel_stride + column);
    }
  }
}

// The same of positions anywhere, a lane for each, and of the first `rows` channels.
template <class Result, class Epilogue>
__device__ __forceinline__ void store_any_rows(const RowBuffer& buffer, const Epilogue& epilogue,
                                               Result* out, int64_t channel_stride,
                                               const ConvOrigin& origin, int64_t place, int rows) {
  constexpr int AT_ONCE = ELEMENTS_AT_ONCE<Epilogue>;
#pragma unroll 1
  for (int row = 0; row < RowBuffer::ROWS; row += AT_ONCE) {
    ConvElements<AT_ONCE> elements;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int r = row + i;
      elements.set(i, buffer.numbers[r][threadIdx.x % 32],
                   r < rows ? origin.place + place + r * channel_stride : -1, origin.channel + r);
    }
    if (place < 0) continue;
    epilogue.finish(elements);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const int r = row + i;
      if (r < rows) out[place + r * channel_stride] = narrow<Result>(elements.values[i]);
    }
  }
}

// 32 positions of all 16 channels at a time; from `begin` on where they are a run, else at
// `places`.
template <int COUNT, class Result, class Epilogue>
__device__ __forceinline__ void store_lines(const Epilogue& epilogue, const float (&sums)[COUNT],
                                            RowBuffer& buffer, Result* out,
                                            const ConvOrigin& origin, int64_t channel_stride,
                                            int rows, bool is_run, int64_t begin,
                                            const int64_t* places) {
  const int lane = threadIdx.x % 32;
  if (is_run) {
    for_each_columns_in_turn(sums, lane / 4, buffer, [&](int columns, const RowBuffer& numbers) {
      store_run_rows(numbers, epilogue, out + begin + columns, channel_stride,
                     {origin.place + begin + columns, origin.channel});
    });
  } else {
    for_each_columns_in_turn(sums, lane / 4, buffer, [&](int columns, const RowBuffer& numbers) {
      store_any_rows(numbers, epilogue, out, channel_stride, origin, places[columns + lane], rows);
    });
  }
}

// All positions of four channels, in shared memory; the pitch keeps fragments free of bank
// conflicts.
template <int POSITIONS>
struct ChannelRows {
  static constexpr int ROWS = 4, PITCH = POSITIONS + 8;
  float numbers[ROWS][PITCH];
};

// Calls visit(first row, buffer) for each group of a warp's channels, with all their positions;
// those of a row begin at number `shift(row)` of the buffer's row, 0 to RUN - 1.
template <int COUNT, class Shift, class Visit>
__device__ __forceinline__ void for_each_rows(const float (&sums)[COUNT], unsigned char* room,
                                              const Shift& shift, const Visit& visit) {
  constexpr int POSITIONS = COUNT * 2;
  using Rows = ChannelRows<POSITIONS>;
  Rows& buffer = *reinterpret_cast<Rows*>(room);
  const int lane = threadIdx.x % 32, own = lane / 4 % Rows::ROWS, column = lane % 4 * 2;
#pragma unroll
  for (int group = 0; group < 16 / Rows::ROWS; ++group) {
    const int below = group / 2;  // a lane has two channels, 8 apart
    __syncwarp();                 // the rows before have been read
    if (lane / 16 == group % 2) {
      const int first = shift(group * Rows::ROWS + own) + column;
#pragma unroll
      for (int i = 0; i < COUNT; i += 4) {
        const float* const pair = sums + i + 2 * below;
        float* const to = &buffer.numbers[own][first + 2 * i];
        if constexpr (Shift::IS_NONE) {
          store_vector(to, Vector<float, 2>{{pair[0], pair[1]}});
        } else {
          to[0] = pair[0];
          to[1] = pair[1];
        }
      }
    }
    __syncwarp();
    visit(group * Rows::ROWS, buffer);
  }
}

struct NoShift {
  static constexpr bool IS_NONE = true;
  __device__ __forceinline__ int operator()(int) const { return 0; }
};

// Calls visit(row, numbers) for each of a warp's first `rows` channels, with all its positions.
template <int COUNT, class Visit>
__device__ __forceinline__ void for_each_channel(const float (&sums)[COUNT], unsigned char* room,
                                                 int rows, const Visit& visit) {
  using Rows = ChannelRows<COUNT * 2>;
  for_each_rows(sums, room, NoShift(), [&](int first, const Rows& buffer) {
    const int end = min(static_cast<int>(Rows::ROWS), rows - first);
#pragma unroll 1
    for (int row = 0; row < end; ++row) visit(first + row, buffer.numbers[row]);
  });
}

// The positions of one channel, which follow each other in the result, whole and aligned. `out`: of
// the first one, where `origin` is.
template <int POSITIONS, class Result, class Epilogue>
__device__ __forceinline__ void store_run_row(const float* numbers, const Epilogue& epilogue,
                                              Result* out, const ConvOrigin& origin) {
  constexpr int LINE = 32 * RUN, LINES = POSITIONS / LINE;
  static_assert(POSITIONS % LINE == 0, "each lane has as many runs");
  const int first = threadIdx.x % 32 * RUN;
  ConvElements<LINES * RUN> elements;
#pragma unroll
  for (int i = 0; i < LINES; ++i) {
    const int at = first + i * LINE;
    take_run(elements, i * RUN, numbers + at, origin.place + at, origin.channel);
  }
  epilogue.finish(elements);
#pragma unroll
  for (int i = 0; i < LINES; ++i) give_run(elements.values + i * RUN, out + first + i * LINE);
}

// Zeros in a warp's rows: vectors at their ends, whose numbers are not all stored, are read whole.
template <class Tile>
__device__ __forceinline__ void clear_numbers(const ConvShared<Tile>& shared, int warpgroup) {
  const int warp = warpgroup * 4 + threadIdx.x % Tile::WARPGROUP / 32;
  auto* const numbers = reinterpret_cast<float*>(shared.buffers + warp * Tile::BUFFER_BYTES);
  for (int i = threadIdx.x % 32; i < Tile::BUFFER_BYTES / 4; i += 32) numbers[i] = 0;
}

// A warp's sums of `rows` channels of a tile that shares sectors. Rows of the buffer begin as
// sectors do, so that whole vectors leave. `out`: of the first channel and position, where `origin`
// is.
template <class Tile, class Result, class Epilogue>
__device__ __forceinline__ void store_shared(const float (&sums)[Tile::REGISTERS],
                                             unsigned char* room, const Epilogue& epilogue,
                                             int rows, Result* out, int64_t channel_stride,
                                             const ConvOrigin& origin,
                                             const SharedSectors& sectors) {
  using Rows = ChannelRows<Tile::PART_POSITIONS>;
  const SpanStore<Tile::PART_POSITIONS, Rows::ROWS, Rows::PITCH, Result, Epilogue> store{
      epilogue, rows, out, channel_stride, origin, sectors};
  for_each_rows(sums, room, SectorShift<Result>{out, channel_stride},
                [&](int first_row, const Rows& buffer) { store(first_row, buffer.numbers); });
}

// The same of positions anywhere: each lane's COUNT are 32 apart. `out`: of the channel.
template <int COUNT, class Result, class Epilogue>
__device__ __forceinline__ void store_any_row(const float* numbers, const Epilogue& epilogue,
                                              Result* out, const ConvOrigin& origin,
                                              const int64_t (&places)[COUNT]) {
  ConvElements<COUNT> elements;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    elements.set(i, numbers[threadIdx.x % 32 + 32 * i],
                 places[i] < 0 ? -1 : origin.place + places[i], origin.channel);
  }
  epilogue.finish(elements);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    if (places[i] >= 0) out[places[i]] = narrow<Result>(elements.values[i]);
  }
}

// A warp's sums of `rows` channels, which are finished already, at `places` after `out`: those of
// one channel follow each other a stride away.
template <class Tile, class Result, int COUNT>
__device__ __forceinline__ void store_finished(const float (&sums)[Tile::REGISTERS],
                                               unsigned char* room, int rows, Result* out,
                                               int64_t channel_stride,
                                               const int64_t (&places)[COUNT]) {
  using Rows = ChannelRows<Tile::PART_POSITIONS>;
  Result* to[COUNT];
  bool exists[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    to[i] = out + places[i];
    exists[i] = places[i] >= 0;
  }
  for_each_rows(sums, room, NoShift(), [&](int first, const Rows& buffer) {
#pragma unroll
    for (int row = 0; row < Rows::ROWS; ++row) {
      if (first + row >= rows) break;
      const float* const from = &buffer.numbers[row][threadIdx.x % 32];
      float values[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) values[i] = from[32 * i];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        if (exists[i]) *to[i] = narrow<Result>(values[i]);
        to[i] += channel_stride;
      }
    }
  });
}

// Whether a warpgroup's positions follow each other in the result, in aligned runs of each channel.
template <class Tile, class Result>
__device__ __forceinline__ bool is_run(const Result* out, int64_t channel_stride,
                                       const int64_t* places) {
  const int64_t begin = places[0], end = places[Tile::PART_POSITIONS - 1];
  return begin >= 0 && end == begin + Tile::PART_POSITIONS - 1 && channel_stride % RUN == 0 &&
         reinterpret_cast<uintptr_t>(out + begin) % (RUN * sizeof(Result)) == 0;
}

// A warp's sums of `rows` channels, whose positions are anywhere in the result. `position`: the
// tile's first. `room`: of a warp.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_by_channel(const Parameters& p, uint32_t position,
                                                 const float (&sums)[Tile::REGISTERS],
                                                 unsigned char* room, const int64_t* places,
                                                 int rows, const ConvOrigin& origin) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const int64_t channel_stride = p.out_strides.channel;
  Result* const out = p.out + origin.place;
  const int64_t begin = places[0];
  const bool are_runs = rows == RowBuffer::ROWS && is_run<Tile>(out, channel_stride, places);
  if constexpr (Tile::STORES_ROWS) {
    constexpr int COUNT = Tile::PART_POSITIONS / 32;
    int64_t own[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) own[i] = places[threadIdx.x % 32 + 32 * i];
    if constexpr (Tile::CAN_SHARE_SECTORS) {
      const SharedSectors sectors(p.runs, position, Tile::PART_POSITIONS);
      if (p.runs.step < Tile::BLOCK_POSITIONS && sectors.is_of_one_image()) {
        store_shared<Tile>(sums, room, p.epilogue, rows, out + begin, channel_stride,
                           {origin.place + begin, origin.channel}, sectors);
        return;
      }
    }
    if constexpr (!std::remove_reference_t<decltype(p.epilogue)>::IS_LATE) {
      if (!are_runs) {
        store_finished<Tile>(sums, room, rows, out, channel_stride, own);
        return;
      }
    }
    for_each_channel(sums, room, rows, [&](int row, const float* numbers) {
      const int64_t before = row * channel_stride;
      if (are_runs) {
        store_run_row<Tile::PART_POSITIONS>(numbers, p.epilogue, out + before + begin,
                                            {origin.place + before + begin, origin.channel + row});
      } else {
        store_any_row(numbers, p.epilogue, out + before,
                      {origin.place + before, origin.channel + row}, own);
      }
    });
  } else {
    store_lines(p.epilogue, sums, *reinterpret_cast<RowBuffer*>(room), out, origin, channel_stride,
                rows, are_runs, begin, places);
  }
}

// Leaves the places alone, once all outputs of the windows are in.
template <class Tile>
__device__ __forceinline__ void forget_window_parts(const ConvShared<Tile>& shared, int warpgroup) {
  int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  sync_warps(1 + warpgroup, Tile::WARPGROUP);
  for (int i = threadIdx.x % Tile::WARPGROUP; i < Tile::PART_POSITIONS; i += Tile::WARPGROUP) {
    places[i] = CountedPlace::place(places[i]);
  }
  sync_warps(1 + warpgroup, Tile::WARPGROUP);
}

// What becomes of a part's sums by their channel. `part`: of the warpgroup.
template <class Tile, class Parameters>
__device__ __forceinline__ void finish_sums(const Parameters& p, const ConvWork& work,
                                            int warpgroup, int part, int exponent,
                                            float (&sums)[Tile::REGISTERS]) {
  const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
  if (rows.count <= 0) return;
  const int joined = Tile::JOINS ? p.shape.joined() : 1;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int row_of_warp = threadIdx.x % 32 / 4 + 8 * below;
    const int of_warp = Tile::JOINS ? row_of_warp / joined : row_of_warp;
    const int last = p.shape.out_channels - 1 - rows.first;
    const int channel = rows.first_of_all + min(of_warp, last);
    const Unscale unscale = Unscale::of(exponent + __ldg(p.filter_exponents + channel));
    const auto row = p.epilogue.row(channel);
#pragma unroll
    for (int i = 2 * below; i < Tile::REGISTERS; i += 4) {
      sums[i] = row(unscale(sums[i]));
      sums[i + 1] = row(unscale(sums[i + 1]));
    }
  }
}

// Writes what has become of 64 channels by PART_POSITIONS, through the warps' row buffers: whole
// lines of a channel's positions. `part`: of the warpgroup.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_conv(const Parameters& p, const ConvShared<Tile>& shared,
                                           const ConvWork& work, int warpgroup, int part,
                                           const float (&sums)[Tile::REGISTERS]) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const ConvRows of_warp = rows_of_warp<Tile>(p, work, warpgroup, part);
  if (of_warp.count <= 0) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % Tile::WARPGROUP / 32;
  unsigned char* const room = shared.buffers + (warpgroup * 4 + warp) * Tile::BUFFER_BYTES;
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  const ConvOrigin origin = {of_warp.first_of_all * p.out_strides.channel, of_warp.first_of_all};
  if constexpr (Tile::JOINS) {
    const JoinedStore<Result, decltype(p.epilogue)> store(
        p.shape, p.out_strides, p.epilogue, p.out + origin.place, origin, of_warp.count);
    for_each_columns_in_turn(
        sums, lane / 4, *reinterpret_cast<RowBuffer*>(room),
        [&](int columns, const RowBuffer& numbers) { store.store(numbers, places + columns); });
  } else {
    store_by_channel<Tile>(p, Tile::HAS_PATCHES ? 0 : work.position, sums, room, places,
                           of_warp.count, origin);
  }
}

// All parts of a warpgroup whose phases are joined, one after the other: the code is there once.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_joined_parts(
    const Parameters& p, const ConvShared<Tile>& shared, const ConvWork& work, int warpgroup,
    const float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % Tile::WARPGROUP / 32;
  auto& buffer =
      *reinterpret_cast<RowBuffer*>(shared.buffers + (warpgroup * 4 + warp) * Tile::BUFFER_BYTES);
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
#pragma unroll 1
  for (int part = 0; part < Tile::PARTS; ++part) {
    const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
    if (rows.count <= 0) continue;
    const ConvOrigin origin = {rows.first_of_all * p.out_strides.channel, rows.first_of_all};
    const JoinedStore<Result, decltype(p.epilogue)> store(p.shape, p.out_strides, p.epilogue,
                                                          p.out + origin.place, origin, rows.count);
#pragma unroll 1
    for (int columns = 0; columns < Tile::PART_POSITIONS; columns += RowBuffer::COLUMNS) {
      __syncwarp();  // the rows before have been read
      buffer.take_from(sums, part, columns, lane / 4);
      __syncwarp();
      store.store(buffer, places + columns);
    }
  }
}

// All parts of a warpgroup whose results read something by their place, likewise.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_late_parts(
    const Parameters& p, const ConvShared<Tile>& shared, const ConvWork& work, int warpgroup,
    const float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  const int warp = threadIdx.x % Tile::WARPGROUP / 32;
  auto& buffer =
      *reinterpret_cast<RowBuffer*>(shared.buffers + (warpgroup * 4 + warp) * Tile::BUFFER_BYTES);
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  const int64_t channel_stride = p.out_strides.channel;
#pragma unroll 1
  for (int part = 0; part < Tile::PARTS; ++part) {
    const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
    if (rows.count <= 0) continue;
    auto* const out = p.out + rows.first_of_all * channel_stride;
    if (is_run<Tile>(out, channel_stride, places) &&
        p.epilogue.template has_neighbours<RUN>(places[0])) {
      store_late<RUN>(p.epilogue, sums, part, buffer, out, channel_stride, rows.first_of_all,
                      rows.count, places);
    } else {
      store_late<1>(p.epilogue, sums, part, buffer, out, channel_stride, rows.first_of_all,
                    rows.count, places);
    }
  }
}

template <class Tile, class Parameters>
constexpr bool STORES_LATE =
    Parameters::Ending::IS_LATE && Parameters::CHANNELS == ConvFold::NONE && !Tile::JOINS &&
    !Tile::STORES_ROWS;

// Asks for what a unit's results will read besides.
template <class Tile, class Parameters>
__device__ __forceinline__ void ask_for_late_parts(const Parameters& p,
                                                   const ConvShared<Tile>& shared,
                                                   const ConvWork& work, int warpgroup) {
#pragma unroll 1
  for (int part = 0; part < Tile::PARTS; ++part) {
    const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
    ask_for_late<Tile::PART_POSITIONS>(p.epilogue, rows.first_of_all * p.out_strides.channel,
                                       p.out_strides.channel, rows.count,
                                       shared.places + warpgroup * Tile::PART_POSITIONS);
  }
}

// The sums of a unit, or what is left of its windows: over channels, or each.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_sums(const Parameters& p, const ConvShared<Tile>& shared,
                                           const ConvWork& work, int unit, int warpgroup,
                                           float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  constexpr bool IS_PROGRAM = ANY_PROGRAMS && Parameters::CHANNELS == ConvFold::EXP_SUM;
  if constexpr (ANY_MOMENTS && Parameters::MOMENTS != ConvMoments::NONE) {
    write_moments<Tile>(p, shared, work, unit, warpgroup, sums);
    if constexpr (Parameters::MOMENTS == ConvMoments::ALONE) return;
  }
  if constexpr (IS_PROGRAM) run_row_program<Tile>(p, shared, work, warpgroup, sums);
  if constexpr (ANY_CHANNEL_FOLDS && !IS_PROGRAM && Parameters::CHANNELS != ConvFold::NONE) {
    store_over_channels<Tile>(p, shared, work, warpgroup, sums);
  }
  if constexpr (IS_PROGRAM && Tile::JOINS && stores_channels<Parameters>()) {
    store_joined_parts<Tile>(p, shared, work, warpgroup, sums);
  } else if constexpr (ANY_CHANNEL_FOLDS && !stores_channels<Parameters>()) {
    return;
  } else if constexpr (ANY_LATE && STORES_LATE<Tile, Parameters>) {
    store_late_parts<Tile>(p, shared, work, warpgroup, sums);
  } else {
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
      store_conv<Tile>(p, shared, work, warpgroup, part, sums[part]);
    }
  }
}
