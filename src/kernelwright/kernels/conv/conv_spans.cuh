#pragma once
// Whole sectors of channels, from rows of numbers in shared memory to the result.

#include "conv_runs.cuh"
#include "vector.cuh"

// RUN numbers of a channel from `place` of the result on, as elements from number `first` on.
template <int COUNT>
__device__ __forceinline__ void take_run(ConvElements<COUNT>& elements, int first,
                                         const float* numbers, int64_t place, int channel) {
  const Vector<float, RUN> run = load_vector<RUN>(numbers);
#pragma unroll
  for (int j = 0; j < RUN; ++j) elements.set(first + j, run.element[j], place + j, channel);
}

template <class Result>
__device__ __forceinline__ void give_run(const float* values, Result* out) {
  Vector<Result, RUN> results;
#pragma unroll
  for (int j = 0; j < RUN; ++j) results.element[j] = narrow<Result>(values[j]);
  store_vector(out, results);
}

// Rows of numbers in shared memory, of channels from `first_row` on, of a tile that shares sectors.
// `out`: of the warp's first channel and the tile's first position, where `origin` is; of `rows`
// channels.
template <int POSITIONS, int COUNT, int PITCH, class Result, class Epilogue>
class SpanStore {
 public:
  using Rows = float[COUNT][PITCH];
  const Epilogue& epilogue;
  int rows;
  Result* out;
  int64_t channel_stride;
  ConvOrigin origin;
  SharedSectors sectors;

  __device__ __forceinline__ void operator()(int first_row, const Rows& numbers) const {
    if constexpr (!Epilogue::IS_LATE) {
      if (sectors.is_inside() && rows == 16) {
        store_whole(first_row, numbers);
        return;
      }
    }
    store_parts(first_row, numbers);
  }

 private:
  static constexpr int LINE = 32 * RUN, LINES = POSITIONS / LINE;

  // Vectors that are all there.
  __device__ __forceinline__ void store_whole(int first_row, const Rows& numbers) const {
    constexpr int SECTOR = SECTOR_ELEMENTS<Result>;
    const int column = threadIdx.x % 32 * RUN, step = sectors.step();
    Result* to = out + first_row * channel_stride;
    const float* from = &numbers[0][column];
#pragma unroll
    for (int row = 0; row < COUNT; ++row) {
      const auto element = static_cast<int>(reinterpret_cast<uintptr_t>(to) / sizeof(Result));
      const int next = -element & (SECTOR - 1), shift = element & (RUN - 1);
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
        if (column + i * LINE >= step) continue;
        const Vector<float, RUN> run = load_vector<RUN>(from + next + shift + i * LINE);
        give_run(run.element, to + next + column + i * LINE);
      }
      to += channel_stride;
      from += PITCH;
    }
  }

  // At the ends of an image, and what is finished here.
  __device__ __forceinline__ void store_parts(int first_row, const Rows& numbers) const {
    constexpr int AT_ONCE = 4 / LINES;
    const int column = threadIdx.x % 32 * RUN;
    const SectorShift<Result> shift{out, channel_stride};
#pragma unroll 1
    for (int row = 0; row < COUNT; row += AT_ONCE) {
      ConvElements<AT_ONCE * LINES * RUN> elements;
#pragma unroll
      for (int i = 0; i < AT_ONCE * LINES; ++i) {
        const int of = first_row + row + i / LINES;
        const SharedSectors::Span span = sectors.of_channel(out + of * channel_stride);
        const int at = span.aligned + column + i % LINES * LINE;
        const bool exists = of < rows && at + RUN > span.begin && at < span.end;
        const Vector<float, RUN> run =
            load_vector<RUN>(&numbers[row + i / LINES][exists ? at + shift(of) : 0]);
#pragma unroll
        for (int j = 0; j < RUN; ++j) {
          const int64_t place = origin.place + of * channel_stride + at + j;
          elements.set(i * RUN + j, run.element[j],
                       exists && at + j >= span.begin && at + j < span.end ? place : -1,
                       origin.channel + of);
        }
      }
      epilogue.finish(elements);
#pragma unroll
      for (int i = 0; i < AT_ONCE * LINES; ++i) {
        const int of = first_row + row + i / LINES;
        const SharedSectors::Span span = sectors.of_channel(out + of * channel_stride);
        const int at = span.aligned + column + i % LINES * LINE;
        Result* const to = out + of * channel_stride + at;
        const float* const values = elements.values + i * RUN;
        if (of >= rows || at + RUN <= span.begin || at >= span.end) continue;
        if (at >= span.begin && at + RUN <= span.end) {
          give_run(values, to);
        } else {
#pragma unroll
          for (int j = 0; j < RUN; ++j) {
            if (at + j >= span.begin && at + j < span.end) to[j] = narrow<Result>(values[j]);
          }
        }
      }
    }
  }
};
