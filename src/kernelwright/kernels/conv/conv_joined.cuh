#pragma once
// Stores of a transposed convolution whose phases are rows of the filter: a channel's positions and
// their phases along W follow each other in the result.

#include "conv_tile.cuh"
#include "gemm_sm90_store.cuh"
#include "vector.cuh"

// Where the joined phases of a position lie: the offset of the first one, and how many are in the
// result along each dimension. Negative: none.
class JoinedPlace {
 public:
  static constexpr int COUNT_BITS = 4;

  __device__ __forceinline__ explicit JoinedPlace(int64_t word) : word_(word) {}
  // Phases along dimension `d` from output `of` on, as far as the result has them.
  __device__ __forceinline__ static int64_t counted(const ConvDimension& dimension, int d, int of) {
    return int64_t{min(dimension.joined, dimension.out - of)} << (COUNT_BITS * d);
  }
  __device__ __forceinline__ static int64_t word(int64_t place, int64_t counts) {
    return place << (COUNT_BITS * MAX_SPATIAL) | counts;
  }

  __device__ __forceinline__ bool exists() const { return word_ >= 0; }
  __device__ __forceinline__ int64_t place() const { return word_ >> (COUNT_BITS * MAX_SPATIAL); }
  __device__ __forceinline__ int count(int d) const {
    return static_cast<int>(word_) >> (COUNT_BITS * d) & ((1 << COUNT_BITS) - 1);
  }

 private:
  int64_t word_;
};

// Lines of a run of the filter's rows: a channel's phases along H and D, each with all along W.
class JoinedLines {
 public:
  __device__ __forceinline__ JoinedLines(const ConvShape& shape, const ImageStrides& strides)
      : heights_(shape.dimensions[1].joined),
        depths_(shape.dimensions[2].joined),
        to_height_(strides.spatial[1]),
        to_depth_(strides.spatial[2] - heights_ * to_height_),
        to_channel_(strides.channel - depths_ * strides.spatial[2]) {}

  __device__ __forceinline__ int64_t offset() const { return offset_; }
  __device__ __forceinline__ int channel() const { return channel_; }
  __device__ __forceinline__ bool is_in(const JoinedPlace& place) const {
    return height_ < place.count(1) && depth_ < place.count(2);
  }
  __device__ __forceinline__ void advance() {
    offset_ += to_height_;
    if (++height_ < heights_) return;
    height_ = 0;
    offset_ += to_depth_;
    if (++depth_ < depths_) return;
    depth_ = 0;
    offset_ += to_channel_;
    ++channel_;
  }

 private:
  int heights_, depths_;
  int64_t to_height_, to_depth_, to_channel_;
  int64_t offset_ = 0;
  int channel_ = 0, height_ = 0, depth_ = 0;
};

// A warp's run of rows, of 32 positions at a time.
template <class Result, class Epilogue>
class JoinedStore {
 public:
  // `out` and `in_result`: of the first channel, of `channels` that the run has.
  __device__ __forceinline__ JoinedStore(const ConvShape& shape, const ImageStrides& strides,
                                         const Epilogue& epilogue, Result* out, int64_t in_result,
                                         int channels)
      : begin_(shape, strides),
        epilogue_(epilogue),
        out_(out),
        in_result_(in_result),
        step_(strides.spatial[0]),
        widths_(shape.dimensions[0].joined),
        lines_(channels * shape.dimensions[1].joined * shape.dimensions[2].joined),
        // Pairs that are aligned at one place are so wherever these are even.
        even_(widths_ == 2 && step_ == 1 &&
              (strides.channel | strides.spatial[1] | strides.spatial[2] | in_result) % 2 == 0) {}

  // `places`: of the 32 positions.
  __device__ __forceinline__ void store(const RowBuffer& buffer, const int64_t* places) const {
    const int lane = threadIdx.x % 32;
    const JoinedPlace own(places[lane]);
    const bool is_pair =
        !own.exists() ||
        (own.count(0) == 2 &&
         reinterpret_cast<uintptr_t>(out_ + own.place()) % (2 * sizeof(Result)) == 0);
    if (even_ && __all_sync(0xffffffffu, is_pair)) {
      store_pairs(buffer, own);
      return;
    }
    for (int i = lane; i < 32 * widths_; i += 32) {
      const int position = i / widths_;
      store_line(buffer, JoinedPlace(places[position]), position, i - position * widths_);
    }
  }

 private:
  static constexpr int AT_ONCE = 8;  // lines: their loads come before the stores

  // Both phases along W of a lane's position.
  __device__ __forceinline__ void store_pairs(const RowBuffer& buffer,
                                              const JoinedPlace& own) const {
    float values[AT_ONCE][2];
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int line = 0; line < AT_ONCE; ++line) {
      values[line][0] = buffer.numbers[2 * line][lane];
      values[line][1] = buffer.numbers[2 * line + 1][lane];
    }
    if (!own.exists()) return;
    JoinedLines at = begin_;
#pragma unroll
    for (int line = 0; line < AT_ONCE; ++line) {
      if (line < lines_ && at.is_in(own)) {
        const int64_t place = own.place() + at.offset();
        Vector<Result, 2> results;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          results.element[j] =
              narrow<Result>(epilogue_.finish(values[line][j], in_result_ + place + j));
        }
        store_vector(out_ + place, results);
      }
      at.advance();
    }
  }

  __device__ __forceinline__ void store_line(const RowBuffer& buffer, const JoinedPlace& of,
                                             int position, int phase) const {
    const bool exists = of.exists() && phase < of.count(0);
    const int64_t place = of.place() + phase * step_;
    JoinedLines at = begin_;
    for (int first = 0; first < lines_; first += AT_ONCE) {
      float values[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const int row = min((first + i) * widths_ + phase, RowBuffer::ROWS - 1);
        values[i] = buffer.numbers[row][position];
      }
      if (!exists) continue;
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        if (first + i < lines_ && at.is_in(of)) {
          const int64_t to = place + at.offset();
          out_[to] = narrow<Result>(epilogue_.finish(values[i], in_result_ + to));
        }
        at.advance();
      }
    }
  }

  JoinedLines begin_;
  const Epilogue& epilogue_;
  Result* out_;
  int64_t in_result_, step_;
  int widths_, lines_;
  bool even_;
};
