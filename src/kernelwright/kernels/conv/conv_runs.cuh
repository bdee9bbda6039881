#pragma once
// Tiles of a convolution that share sectors of memory.
//
// Where channels begin inside a sector, two tiles would write to one: memory takes such results at
// about half its rate (2.1 TB/s in place of 3.6 of an H200). So each tile has a sector's positions
// more than its own. Of each channel it stores from the first whole sector on, and up to where the
// next tile's first whole sector begins. Tiles whose positions are not of one image share nothing:
// they store exactly their own, and so do their neighbours towards them.

#include "conv_tile.cuh"
#include "gemm_sm90_store.cuh"

constexpr int SECTOR_BYTES = 32;
template <class Result>
constexpr int SECTOR_ELEMENTS = SECTOR_BYTES / static_cast<int>(sizeof(Result));

// Which positions of a tile are to be stored, by channel.
class SharedSectors {
 public:
  // Of a tile of `positions` whose first one is number `position`.
  __device__ __forceinline__ SharedSectors(const ConvRuns& runs, uint32_t position, int positions)
      : step_(runs.step) {
    const int plane = runs.plane.value();
    const int first = position - runs.plane.quotient(position) * plane;  // of its image
    left_ = plane - first;
    is_of_one_image_ = first + positions <= plane;
    is_begun_ = first >= step_;
    is_ended_ = first + step_ + positions > plane;
  }

  // Of a tile of a slice of `outputs` that shares all its sectors with its neighbours; `first`: of
  // the slice.
  __device__ __forceinline__ static SharedSectors of_slice(int step, int first, int outputs) {
    SharedSectors sectors;
    sectors.step_ = step;
    sectors.left_ = outputs - first;
    sectors.is_of_one_image_ = true;
    sectors.is_begun_ = first > 0;
    sectors.is_ended_ = sectors.left_ <= step;
    if (sectors.is_ended_) sectors.step_ = sectors.left_;
    return sectors;
  }

  // Whether both neighbours share: whole vectors are stored of each channel, as many.
  __device__ __forceinline__ bool is_inside() const {
    return is_begun_ && !is_ended_ && left_ >= step_ + SECTOR_BYTES;
  }
  __device__ __forceinline__ int step() const { return step_; }

  // Whether all positions lie side by side.
  __device__ __forceinline__ bool is_of_one_image() const { return is_of_one_image_; }

  // Of a channel whose first position is at `out`. `aligned`: a position at a sector's begin, also
  // one before the first; those from `begin` to before `end` are to be stored.
  struct Span {
    int aligned, begin, end;
  };
  template <class Result>
  __device__ __forceinline__ Span of_channel(const Result* out) const {
    constexpr int SECTOR = SECTOR_ELEMENTS<Result>;
    const auto element = static_cast<int>(reinterpret_cast<uintptr_t>(out) / sizeof(Result));
    const int next = -element & (SECTOR - 1);
    const int begin = is_begun_ ? next : 0;
    const int end = step_ + (is_ended_ ? 0 : next);
    return {begin == next ? next : next - SECTOR, begin, end < left_ ? end : left_};
  }

 private:
  SharedSectors() = default;

  int step_;
  int left_;  // positions from the tile's first on, of its image
  bool is_of_one_image_;
  bool is_begun_;  // the tile before stores what is before the first whole sector
  bool is_ended_;  // the tile after stores all of its own
};

// Where the positions of a channel begin in a row of shared memory, so that its vectors there are
// those of the result. `out`: of the first channel.
template <class Result>
struct SectorShift {
  static constexpr bool IS_NONE = false;
  const Result* out;
  int64_t channel_stride;

  __device__ __forceinline__ int operator()(int row) const {
    const auto address = reinterpret_cast<uintptr_t>(out + row * channel_stride);
    return static_cast<int>(address / sizeof(Result)) & (RUN - 1);
  }
};
