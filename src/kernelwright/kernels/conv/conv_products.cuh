#pragma once
// Matrix products of a stage of a convolution: filter by pixels.

#include "conv_tile.cuh"

// Rows of ROW_BYTES that follow each other in shared memory, each 16 of K: swizzled over ROW_BYTES.
template <int ROW_BYTES>
struct RowsDescriptor {
  uint32_t low;

  __device__ __forceinline__ static RowsDescriptor of(const void* shared) {
    const uint32_t low = (shared_address(shared) & 0x3ffff) >> 4 | 1u << 16;
    return {__shfl_sync(0xffffffffu, low, 0)};
  }
  __device__ __forceinline__ RowsDescriptor further(int bytes) const {
    return {low + (bytes >> 4)};
  }
  __device__ __forceinline__ operator uint64_t() const {
    constexpr uint64_t EIGHT_ROWS = 8 * ROW_BYTES;
    constexpr uint64_t SWIZZLE = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
    return (EIGHT_ROWS >> 4) << 32 | SWIZZLE << 62 | low;
  }
};

// Products of the planes of one stage, by their number.
template <class Tile>
class ConvProducts {
 public:
  using Sums = float[Tile::REGISTERS];

  __device__ __forceinline__ ConvProducts(const ConvShared<Tile>& shared, int warpgroup, int stage)
      : filter_(RowsDescriptor<Tile::ROW_BYTES>::of(
            shared.filter(stage, 0) + (Tile::ALTERNATES || Tile::SPLITS_POSITIONS
                                           ? 0
                                           : warpgroup * Tile::PART_CHANNELS * Tile::ROW_BYTES))),
        pixels_(RowsDescriptor<Tile::CHUNK_BYTES>::of(
            shared.pixels(stage, 0) +
            (Tile::SPLITS_POSITIONS ? warpgroup * Tile::PART_POSITIONS * Tile::CHUNK_BYTES : 0))) {}

  // Step STEP of the 4 of STEP_K in a stage, of 64 channels; added to sums unless `accumulate` is
  // 0.
  template <int FILTER_PLANE, int PIXEL_PLANE, int STEP, int PART = 0>
  __device__ __forceinline__ void multiply(Sums& sums, int accumulate) const {
    constexpr int OF_CHUNK = Tile::CHUNK / Tile::STEP_K;
    constexpr int BYTES = Tile::STEP_K * 2;
    Tile::Instruction::template multiply<0, 0>(
        sums,
        filter_.further(FILTER_PLANE * Tile::FILTER_PLANE +
                        PART * Tile::PART_CHANNELS * Tile::ROW_BYTES + STEP * BYTES),
        pixels_.further(PIXEL_PLANE * Tile::PIXEL_PLANE + STEP / OF_CHUNK * Tile::CHUNK_PIXELS +
                        STEP % OF_CHUNK * BYTES),
        accumulate);
  }

 private:
  RowsDescriptor<Tile::ROW_BYTES> filter_;
  RowsDescriptor<Tile::CHUNK_BYTES> pixels_;
};

// The same where a patch holds the pixels.
template <class Tile>
class PatchProducts {
 public:
  __device__ __forceinline__ PatchProducts(const ConvShared<Tile>& shared, int warpgroup, int stage,
                                           int patch)
      : filter_(RowsDescriptor<Tile::ROW_BYTES>::of(
            shared.filter(stage, 0) +
            (Tile::ALTERNATES ? 0 : warpgroup * Tile::PART_CHANNELS * Tile::ROW_BYTES))),
        pixels_(RowsDescriptor<Tile::CHUNK_BYTES>::of(shared.patch(patch))) {}

  // Tap number `tap` of the stage, whose pixels lie `shift` pixels further than its positions do.
  template <int PART>
  __device__ __forceinline__ void multiply(float (&sums)[Tile::REGISTERS], int tap,
                                           int shift) const {
    const auto filter =
        filter_.further(PART * Tile::PART_CHANNELS * Tile::ROW_BYTES + tap * Tile::CHUNK_BYTES);
    const auto pixels = pixels_.further(shift * Tile::CHUNK_BYTES);
#pragma unroll
    for (int step = 0; step < Tile::CHUNK_STEPS; ++step) {
      Tile::Instruction::template multiply<0, 0>(sums, filter.further(step * Tile::STEP_K * 2),
                                                 pixels.further(step * Tile::STEP_K * 2), 1);
    }
  }

 private:
  RowsDescriptor<Tile::ROW_BYTES> filter_;
  RowsDescriptor<Tile::CHUNK_BYTES> pixels_;
};
