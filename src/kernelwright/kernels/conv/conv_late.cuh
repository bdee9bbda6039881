#pragma once
// Results that read operands by their place, 32 positions of 16 channels at a time. What the next
// ones read is under way while these are stored: a warp that waited for each lot would move a
// quarter of what memory can.

#include "conv_elements.cuh"
#include "gemm_sm90_store.cuh"
#include "vector.cuh"

// A warp's part of a row buffer: WIDTH neighbouring columns of a row for each slot of a lane.
template <int WIDTH>
struct LateSlots {
  static constexpr int LANES = RowBuffer::COLUMNS / WIDTH;  // of a row
  static constexpr int ROWS_AT_ONCE = 32 / LANES;
  static constexpr int COUNT = RowBuffer::ROWS / ROWS_AT_ONCE;
  __device__ __forceinline__ static int row(int slot) {
    return threadIdx.x % 32 / LANES + slot * ROWS_AT_ONCE;
  }
  __device__ __forceinline__ static int column() { return threadIdx.x % LANES * WIDTH; }
};

// Slots of a lot, whose operands registers hold, BYTES each.
template <int BYTES, int SLOTS>
constexpr int LATE_AT_ONCE = SLOTS * BYTES <= 32 ? SLOTS : LATE_AT_ONCE<BYTES, SLOTS / 2>;
template <int BYTES>
constexpr int LATE_AT_ONCE<BYTES, 1> = 1;

// The sums of part `part`, of the first `rows` of a warp's 16 channels. `places`: those of the
// positions after `out`, negative where there is none; WIDTH of them follow each other.
template <int WIDTH, int PARTS, int COUNT, class Result, class Epilogue>
__device__ __forceinline__ void store_late(const Epilogue& epilogue,
                                           const float (&sums)[PARTS][COUNT], int part,
                                           RowBuffer& buffer, Result* out, int64_t channel_stride,
                                           int first_channel, int rows, const int64_t* places) {
  using Joined = decltype(epilogue.template join<WIDTH>(epilogue.locate(0, 0)));
  using Slots = LateSlots<WIDTH>;
  constexpr int AT_ONCE = LATE_AT_ONCE<sizeof(Joined), Slots::COUNT>;
  constexpr int OF_BUFFER = Slots::COUNT / AT_ONCE;  // lots
  constexpr int LOTS = COUNT * 2 / RowBuffer::COLUMNS * OF_BUFFER;
  Joined joined[AT_ONCE];
  int64_t next_place = -1;
  // The first round only fetches, so that the code for that is there once.
#pragma unroll 1
  for (int lot = -1; lot < LOTS; ++lot) {
    const int64_t place = next_place;
    const int next = min(lot + 1, LOTS - 1);
    next_place = places[next / OF_BUFFER * RowBuffer::COLUMNS + Slots::column()];
    int row = Slots::row((lot + OF_BUFFER) % OF_BUFFER * AT_ONCE);
    int next_row = next_place < 0 ? rows : Slots::row(next % OF_BUFFER * AT_ONCE);
    auto spot = epilogue.locate(next_place < 0 ? 0 : next_place, first_channel + next_row);
    if (lot >= 0 && lot % OF_BUFFER == 0) {
      __syncwarp();  // the rows before have been read
      buffer.take_from(sums, part, lot / OF_BUFFER * RowBuffer::COLUMNS, threadIdx.x % 32 / 4);
      __syncwarp();
    }
    Result* to = out + place + row * channel_stride;
    if (place < 0) row = rows;
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (row < rows) {
        auto values = load_vector<WIDTH>(&buffer.numbers[row][Slots::column()]);
        epilogue.finish(values, joined[i]);
        Vector<Result, WIDTH> results;
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) results.element[j] = narrow<Result>(values.element[j]);
        store_vector(to, results);
      }
      if (next_row < rows) joined[i] = epilogue.template join<WIDTH>(spot);
      row += Slots::ROWS_AT_ONCE;
      next_row += Slots::ROWS_AT_ONCE;
      to += Slots::ROWS_AT_ONCE * channel_stride;
      epilogue.advance(spot, Slots::ROWS_AT_ONCE);
    }
  }
}

// Asks the L2 for what the first `rows` of a warp's channels will read, from `first` in the result
// on, while they are summed: both ends of 32 positions of each. A warp has registers for a
// kilobyte on its way, an eighth of what memory's latency takes.
template <int POSITIONS, class Epilogue>
__device__ __forceinline__ void ask_for_late(const Epilogue& epilogue, int64_t first,
                                             int64_t channel_stride, int rows,
                                             const int64_t* places) {
  constexpr int COLUMNS = RowBuffer::COLUMNS, CHUNKS = POSITIONS / COLUMNS;
  const int lane = threadIdx.x % 32, chunk = lane % CHUNKS * COLUMNS;
  const int64_t begin = places[chunk], end = places[chunk + COLUMNS - 1];
#pragma unroll 1
  for (int row = lane / CHUNKS; row < rows; row += 32 / CHUNKS) {
    if (begin >= 0) epilogue.ask_for(first + begin + row * channel_stride);
    if (end >= 0) epilogue.ask_for(first + end + row * channel_stride);
  }
}
