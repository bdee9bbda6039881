#pragma once
// Programs over the channels of each output of a convolution, in the tile that has them all: the
// largest of them, then the sum of exp(x - largest), then what these totals become, one result for
// all channels or one for each.
//
// Rows of the tile are channels and their joined phases, a channel's phases side by side. So a lane
// has one phase where there are up to 8, and channels of it in both of its rows and in all of its
// parts: these it folds in registers. The lanes of a warp that have the same phase fold by
// shuffles, and the warps of a tile meet in shared memory. All of it in a fixed order.

#include "conv_joined.cuh"
#include "conv_reduction.cuh"
#include "conv_totals.cuh"

// Rooms in shared memory of the warps that have the same positions: a number for each phase and
// position of every warp's own channels, and one for all channels.
template <class Tile>
class TotalRooms {
 public:
  static constexpr bool IS_SHARED = !Tile::ALTERNATES && Tile::CHANNEL_PARTS == 2;
  static constexpr int WARPS = IS_SHARED ? Tile::CONSUMER_WARPS : 4;
  static constexpr int ENTRIES = Tile::FOLD_PHASES * Tile::PART_POSITIONS, THREADS = WARPS * 32;
  static_assert(Tile::TOTAL_ROOMS == (IS_SHARED ? 1 : Tile::CONSUMERS) * (WARPS + 1),
                "a room for each warp, and one for all of them");

  __device__ __forceinline__ TotalRooms(const ConvShared<Tile>& shared, int warpgroup)
      : first_(shared.totals + (IS_SHARED ? 0 : warpgroup * (WARPS + 1) * ROOM)),
        own_((IS_SHARED ? warpgroup * 4 : 0) + threadIdx.x % Tile::WARPGROUP / 32),
        barrier_(IS_SHARED ? static_cast<int>(ConvTurns::FREE) : 1 + warpgroup) {}

  __device__ __forceinline__ float* of_warp(int warp) const { return first_ + warp * ROOM; }
  __device__ __forceinline__ float* own() const { return of_warp(own_); }
  __device__ __forceinline__ float* of_all() const { return of_warp(WARPS); }
  __device__ __forceinline__ void sync() const { sync_warps(barrier_, THREADS); }

  // Where an entry is in a room: positions of a phase after the other's.
  __device__ __forceinline__ static int slot(int entry) {
    return entry / Tile::PART_POSITIONS * Tile::TOTAL_PITCH + entry % Tile::PART_POSITIONS;
  }

  // Calls visit(entry, what the warps' numbers come to) for each entry that is this thread's.
  template <ConvFold HOW, class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
    for (int i = own_ * 32 + threadIdx.x % 32; i < ENTRIES; i += THREADS) {
      float value = first_[slot(i)];
#pragma unroll
      for (int warp = 1; warp < WARPS; ++warp) value = fold<HOW>(value, of_warp(warp)[slot(i)]);
      visit(i, value);
    }
  }

 private:
  static constexpr int ROOM = Tile::FOLD_PHASES * Tile::TOTAL_PITCH;

  float* first_;
  int own_, barrier_;
};

// The channel of a lane's first or second row, among those of its warp.
template <class Tile>
__device__ __forceinline__ int channel_of_lane(int below) {
  return (static_cast<int>(threadIdx.x) % 32 / 4 + 8 * below) / Tile::FOLD_PHASES;
}

// The phase of both rows of a lane.
template <class Tile>
__device__ __forceinline__ int phase_of_lane() {
  return threadIdx.x % 32 / 4 % Tile::FOLD_PHASES;
}

// Leaves in `room` what a warp's channels come to, by phase and position. `columns(c)`: what a
// lane's rows come to at its column c.
template <ConvFold HOW, class Tile, class Columns>
__device__ __forceinline__ void fold_warp(float* room, const Columns& columns) {
  constexpr int PHASES = Tile::FOLD_PHASES;
  constexpr int STEPS = 3 - (PHASES > 1) - (PHASES > 2) - (PHASES > 4);
  constexpr int AT_ONCE = 16, LEFT = AT_ONCE >> STEPS;
  float* const of_phase = room + phase_of_lane<Tile>() * Tile::TOTAL_PITCH;
#pragma unroll
  for (int first = 0; first < Tile::REGISTERS / 2; first += AT_ONCE) {
    float values[AT_ONCE];
#pragma unroll
    for (int c = 0; c < AT_ONCE; ++c) values[c] = columns(first + c);
    const int from = fold_rows<HOW, STEPS>(values);
#pragma unroll
    for (int c = 0; c < LEFT; c += 2) {
      float* const to = of_phase + (first + from + c) * 4 + threadIdx.x % 4 * 2;
      store_vector(to, Vector<float, 2>{{values[c], values[c + 1]}});
    }
  }
}

// Two neighbouring columns of a lane, from column `c` on, of the numbers of its phase.
template <class Tile>
__device__ __forceinline__ Vector<float, 2> load_columns(const float* room, int c) {
  const int phase = phase_of_lane<Tile>();
  return load_vector<2>(room + phase * Tile::TOTAL_PITCH + c * 4 + threadIdx.x % 4 * 2);
}

// Whether channels leave one by one, as they do without a reduction.
template <class Parameters>
constexpr bool stores_channels() {
  if constexpr (Parameters::CHANNELS == ConvFold::EXP_SUM) {
    return Parameters::Ending::Program::IS_BY_CHANNEL;
  }
  return Parameters::CHANNELS == ConvFold::NONE;
}

// Where the result of an entry lies; -1: nowhere.
template <class Tile, class Parameters>
__device__ __forceinline__ int64_t place_of_entry(const Parameters& p, const int64_t* places,
                                                  int entry) {
  const int64_t word = places[entry % Tile::PART_POSITIONS];
  if constexpr (!Tile::JOINS) return word;
  const JoinedPlace of(word);
  if (!of.exists()) return -1;
  int64_t place = of.place();
  int rest = entry / Tile::PART_POSITIONS;
#pragma unroll
  for (int d = 0; d < MAX_SPATIAL; ++d) {
    const int joined = p.shape.dimensions[d].joined, phase = rest % joined;
    rest /= joined;
    if (phase >= of.count(d)) return -1;
    place += phase * p.out_strides.spatial[d];
  }
  return place;
}

// Rows that are no channel's have -inf, whose exponential adds nothing.
template <class Tile, class Parameters>
__device__ __forceinline__ void clear_missing(const Parameters& p, const ConvWork& work,
                                              int warpgroup,
                                              float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) {
    const int count = rows_of_warp<Tile>(p, work, warpgroup, part).count;
#pragma unroll
    for (int below = 0; below < 2; ++below) {
      if (channel_of_lane<Tile>(below) < count) continue;
#pragma unroll
      for (int i = 2 * below; i < Tile::REGISTERS; i += 4) {
        sums[part][i] = sums[part][i + 1] = -INFINITY;
      }
    }
  }
}

// Makes each channel's result of the totals, and of what its registers hold.
template <class Tile, class Parameters>
__device__ __forceinline__ void finish_channels(const Parameters& p, const ConvWork& work,
                                                int warpgroup, const TotalRooms<Tile>& rooms,
                                                float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  using Program = typename Parameters::Ending::Program;
  constexpr int AT_ONCE = 8;  // columns, whose totals are loaded once for all rows
#pragma unroll
  for (int first = 0; first < Tile::REGISTERS / 2; first += AT_ONCE) {
    Vector<float, 2> totals[AT_ONCE / 2], shared[AT_ONCE / 2];
#pragma unroll
    for (int i = 0; i < AT_ONCE / 2; ++i) {
      totals[i] = load_columns<Tile>(rooms.of_all(), first + 2 * i);
      shared[i] = load_columns<Tile>(rooms.of_warp(0), first + 2 * i);
    }
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
      const ConvRows rows = rows_of_warp<Tile>(p, work, warpgroup, part);
#pragma unroll
      for (int below = 0; below < 2; ++below) {
        const int of_warp = max(min(channel_of_lane<Tile>(below), rows.count - 1), 0);
        const int last = p.shape.out_channels - 1;
        const auto row = p.epilogue.after.row(min(rows.first_of_all + of_warp, last));
#pragma unroll
        for (int c = 0; c < AT_ONCE; ++c) {
          float& value = sums[part][2 * (first + c / 2 * 2) + 2 * below + c % 2];
          value = row(Program::of_channel(value, totals[c / 2].element[c % 2],
                                          shared[c / 2].element[c % 2]));
        }
      }
    }
  }
}

// The totals of the channels of a tile's positions, and one result of each, which it stores; where
// each channel has one, `sums` become these.
template <class Tile, class Parameters>
__device__ __forceinline__ void run_row_program(const Parameters& p, const ConvShared<Tile>& shared,
                                                const ConvWork& work, int warpgroup,
                                                float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  using Program = typename Parameters::Ending::Program;
  using Result = std::remove_pointer_t<decltype(p.out)>;
  const TotalRooms<Tile> rooms(shared, warpgroup);
  const auto register_of = [](int c) { return c / 2 * 4 + c % 2; };
  clear_missing<Tile>(p, work, warpgroup, sums);
  fold_warp<ConvFold::MAXIMUM, Tile>(rooms.own(), [&](int c) {
    const int i = register_of(c);
    float value = maximum(sums[0][i], sums[0][i + 2]);
#pragma unroll
    for (int part = 1; part < Tile::PARTS; ++part) {
      value = maximum(value, maximum(sums[part][i], sums[part][i + 2]));
    }
    return value;
  });
  rooms.sync();
  rooms.template for_each<ConvFold::MAXIMUM>(
      [&](int entry, float value) { rooms.of_all()[rooms.slot(entry)] = value; });
  rooms.sync();
  fold_warp<ConvFold::SUM, Tile>(rooms.own(), [&](int c) {
    const int i = register_of(c);
    const float from =
        ConvTotals::origin(load_columns<Tile>(rooms.of_all(), c / 2 * 2).element[c % 2]);
    float value = 0;
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
      const float first = std::exp(sums[part][i] - from);
      const float second = std::exp(sums[part][i + 2] - from);
      if constexpr (Program::TAKES_TERMS) {
        sums[part][i] = first;
        sums[part][i + 2] = second;
      }
      value += first + second;
    }
    return value;
  });
  rooms.sync();
  if constexpr (Program::IS_BY_CHANNEL) {
    rooms.template for_each<ConvFold::SUM>([&](int entry, float sum) {
      float& of_all = rooms.of_all()[rooms.slot(entry)];
      rooms.of_warp(0)[rooms.slot(entry)] = Program::of_totals(of_all, sum);
      if constexpr (Program::TAKES_TERMS) of_all = sum;
    });
    rooms.sync();
    finish_channels<Tile>(p, work, warpgroup, rooms, sums);
  } else {
    const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
    rooms.template for_each<ConvFold::SUM>([&](int entry, float sum) {
      const int64_t place = place_of_entry<Tile>(p, places, entry);
      if (place < 0) return;
      ConvElements<1> element;
      element.set(0, Program::of_totals(rooms.of_all()[rooms.slot(entry)], sum), place, 0);
      p.epilogue.finish(element);
      p.out[place] = narrow<Result>(element.values[0]);
    });
  }
  // Before the rooms are written again, a warpgroup waits to find its next places; two do here.
  if (TotalRooms<Tile>::IS_SHARED) rooms.sync();
}
