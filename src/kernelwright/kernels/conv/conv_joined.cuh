#pragma once
// Stores of a convolution whose phases, or neighbouring outputs, are rows of the filter: a
// channel's positions and their phases along W follow each other in the result.

#include "conv_elements.cuh"
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
  __device__ __forceinline__ bool has_all(const JoinedPlace& place) const {
    return place.count(1) == heights_ && place.count(2) == depths_;
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

// A warp's run of rows, of 32 positions at a time. Where the lines' places are short they are found
// once for all positions: with a few instructions for each store a warp, which has its scheduler to
// itself, waits for each of them in turn.
template <class Result, class Epilogue>
class JoinedStore {
 public:
  // `out` and `origin`: of the first channel, of `channels` that the run has.
  __device__ __forceinline__ JoinedStore(const ConvShape& shape, const ImageStrides& strides,
                                         const Epilogue& epilogue, Result* out,
                                         const ConvOrigin& origin, int channels)
      : begin_(shape, strides),
        epilogue_(epilogue),
        out_(out),
        origin_(origin),
        step_(strides.spatial[0]),
        widths_(shape.dimensions[0].joined),
        lines_(channels * shape.dimensions[1].joined * shape.dimensions[2].joined),
        all_((1u << lines_) - 1),
        share_((1 << SHARE_BITS) / widths_ + 1),
        line_share_((1 << SHARE_BITS) / (shape.dimensions[1].joined * shape.dimensions[2].joined) +
                    1),
        // Pairs that are aligned at one place are so wherever these are even.
        even_(widths_ == 2 && step_ == 1 &&
              (strides.channel | strides.spatial[1] | strides.spatial[2] | origin.place) % 2 == 0) {
    const int heights = shape.dimensions[1].joined, depths = shape.dimensions[2].joined;
    const int64_t last = (channels - 1) * strides.channel + (depths - 1) * strides.spatial[2] +
                         (heights - 1) * strides.spatial[1];
    is_short_ = lines_ <= AT_ONCE && last == static_cast<int>(last);
    const auto to_height = static_cast<uint32_t>(strides.spatial[1]);
    const auto to_depth = static_cast<uint32_t>(strides.spatial[2]) - heights * to_height;
    const auto to_channel = static_cast<uint32_t>(strides.channel - depths * strides.spatial[2]);
    uint32_t at = 0;
    int height = 0, depth = 0;
#pragma unroll
    for (int line = 0; line < AT_ONCE; ++line) {
      offsets_[line] = static_cast<int>(at);
      at += to_height;
      const bool ends = ++height == heights, ends_depth = ends && depth + 1 == depths;
      at += (ends ? to_depth : 0) + (ends_depth ? to_channel : 0);
      height = ends ? 0 : height;
      depth = ends_depth ? 0 : depth + ends;
    }
  }

  // `places`: of the 32 positions.
  __device__ __forceinline__ void store(const RowBuffer& buffer, const int64_t* places) const {
    const int lane = threadIdx.x % 32;
    if (!is_short_) {
      for (int i = lane; i < 32 * widths_; i += 32) {
        const int position = i / widths_;
        store_line(buffer, JoinedPlace(places[position]), position, i - position * widths_);
      }
      return;
    }
    const JoinedPlace own(places[lane]);
    const uint32_t lines = lines_of(own);
    const bool is_pair =
        !own.exists() ||
        (own.count(0) == 2 &&
         reinterpret_cast<uintptr_t>(out_ + own.place()) % (2 * sizeof(Result)) == 0);
    if (even_ && __all_sync(0xffffffffu, is_pair)) {
      store_pairs(buffer, own, lines);
      return;
    }
#pragma unroll 1
    for (int first = 0; first < widths_; first += PHASES_AT_ONCE) {
      store_phases(buffer, places, lines, first);
    }
  }

 private:
  static constexpr int AT_ONCE = 8;  // lines: their loads come before the stores
  // What finish reads takes registers, too.
  static constexpr int LINES_AT_ONCE = Epilogue::IS_LATE ? AT_ONCE / 4 : AT_ONCE / 2;
  static constexpr int PHASES_AT_ONCE = 2;  // of a lane
  static constexpr int SHARE_BITS = 16;     // i * share_ is i / widths_ of 32 * FILTER_RUN phases
  static_assert((32 * FILTER_RUN) * FILTER_RUN < 1 << SHARE_BITS, "quotients are exact");

  // An address that is found once, and not again for each line.
  __device__ __forceinline__ static void keep(Result*& address) {
    asm volatile("" : "+l"(address));
    __builtin_assume(__isGlobal(address));
  }

  // The lines that a position has in the result, a bit for each.
  __device__ __forceinline__ uint32_t lines_of(const JoinedPlace& place) const {
    if (!place.exists()) return 0;
    if (begin_.has_all(place)) return all_;
    uint32_t lines = 0;
    JoinedLines at = begin_;
    for (int line = 0; line < lines_; ++line) {
      lines |= static_cast<uint32_t>(at.is_in(place)) << line;
      at.advance();
    }
    return lines;
  }

  __device__ __forceinline__ int channel_of(int line) const {
    return origin_.channel + (line * line_share_ >> SHARE_BITS);
  }

  // Both phases along W of a lane's position.
  __device__ __forceinline__ void store_pairs(const RowBuffer& buffer, const JoinedPlace& own,
                                              uint32_t lines) const {
    constexpr int LINES = LINES_AT_ONCE;
    const int lane = threadIdx.x % 32;
    Result* to = out_ + own.place();
    keep(to);
#pragma unroll
    for (int first = 0; first < AT_ONCE; first += LINES) {
      if (first >= lines_) break;
      ConvElements<2 * LINES> elements;
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
        const int line = first + i;
        const bool exists = lines >> line & 1;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          elements.set(2 * i + j, buffer.numbers[2 * line + j][lane],
                       exists ? origin_.place + own.place() + offsets_[line] + j : -1,
                       channel_of(line));
        }
      }
      epilogue_.finish(elements);
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
        if (lines >> (first + i) & 1) {
          const Vector<Result, 2> results{
              {narrow<Result>(elements.values[2 * i]), narrow<Result>(elements.values[2 * i + 1])}};
          store_vector(to + offsets_[first + i], results);
        }
      }
    }
  }

  // PHASES_AT_ONCE times 32 phases along W, from number 32 * `turn` of the 32 positions' on;
  // `lines`: of this lane's position.
  __device__ __forceinline__ void store_phases(const RowBuffer& buffer, const int64_t* places,
                                               uint32_t lines, int turn) const {
    constexpr int COUNT = PHASES_AT_ONCE, LINES = LINES_AT_ONCE;
    const float* from[COUNT];
    int64_t place[COUNT];
    Result* to[COUNT];
    uint32_t own[COUNT];  // lines
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      const int number = threadIdx.x % 32 + 32 * (turn + k);
      const int position = min(number * share_ >> SHARE_BITS, 31);
      const int phase = min(number - position * widths_, widths_ - 1);
      const uint32_t of_position = __shfl_sync(0xffffffffu, lines, position);
      const JoinedPlace of(places[position]);
      own[k] = turn + k < widths_ && phase < of.count(0) ? of_position : 0;
      place[k] = of.place() + phase * step_;
      to[k] = out_ + place[k];
      keep(to[k]);
      from[k] = &buffer.numbers[phase][position];
    }
    const int next = widths_ * RowBuffer::PITCH;
#pragma unroll
    for (int first = 0; first < AT_ONCE; first += LINES) {
      if (first >= lines_) break;
      ConvElements<COUNT * LINES> elements;
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
        const int line = first + i, row = min(line, lines_ - 1) * next;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
          elements.set(i * COUNT + k, from[k][row],
                       own[k] >> line & 1 ? origin_.place + place[k] + offsets_[line] : -1,
                       channel_of(line));
        }
      }
      epilogue_.finish(elements);
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
          if (own[k] >> (first + i) & 1) {
            to[k][offsets_[first + i]] = narrow<Result>(elements.values[i * COUNT + k]);
          }
        }
      }
    }
  }

  // The same of any number of lines, anywhere.
  __device__ __forceinline__ void store_line(const RowBuffer& buffer, const JoinedPlace& of,
                                             int position, int phase) const {
    if (!of.exists() || phase >= of.count(0)) return;
    JoinedLines at = begin_;
    const int64_t place = of.place() + phase * step_;
    for (int line = 0; line < lines_; ++line) {
      if (at.is_in(of)) {
        const int64_t to = place + at.offset();
        const float value = buffer.numbers[line * widths_ + phase][position];
        out_[to] = narrow<Result>(
            epilogue_.finish(value, origin_.place + to, origin_.channel + at.channel()));
      }
      at.advance();
    }
  }

  JoinedLines begin_;
  const Epilogue& epilogue_;
  Result* out_;
  ConvOrigin origin_;
  int64_t step_;
  int widths_, lines_;
  uint32_t all_;
  int share_, line_share_;
  bool is_short_, even_;
  int offsets_[AT_ONCE];  // of lines, from a position's place
};
