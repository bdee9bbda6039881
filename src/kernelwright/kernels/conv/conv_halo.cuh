#pragma once
// Pixels of a convolution in patches: what all taps of a block's positions meet lies in shared
// memory once, and a tap is a shift of where the operand begins.
//
// A patch has rows of `pitch` pixels, a pixel is CHUNK_BYTES, swizzled. Position (row, column) of
// the block is number row * pitch + column; the pixel that tap (r, s) meets lies r * pitch + s
// further, times the dilation. So an operand is PART_POSITIONS pixels that follow each other, from
// any pixel on; those at the end of a row belong to no position and are not stored. wgmma swizzles
// the sum of what a descriptor says, so that an operand may begin at any row. Each pixel of a block
// arrives once, and not once for each tap: what arrives from the L2 bounds the other way.
//
// Patches are for W and H without strides. A patch is of one D and one chunk of channels.

#include "conv_producer.cuh"
#include "conv_products.cuh"

// Numbers of a unit's patches, of the stages of the filter for each, and of its taps.
template <class Tile>
struct PatchCounts {
  int taps, groups, patches;

  template <class Parameters>
  __device__ __forceinline__ PatchCounts(const Parameters& p, const ConvWork& work) {
    taps = work.phase.taps(p.shape, 0) * work.phase.taps(p.shape, 1);
    groups = (taps + Tile::CHUNKS - 1) / Tile::CHUNKS;
    patches = taps == 0 ? 0 : work.phase.taps(p.shape, 2) * p.chunks;
  }
};

template <class Tile>
using PatchRing = Ring<(Tile::PATCHES > 0 ? Tile::PATCHES : 1)>;

// For one thread of the block.
template <class Tile, class Parameters>
__device__ __forceinline__ void produce_patches(const Parameters& p, const ConvShared<Tile>& shared,
                                                const ConvPasses& passes) {
  const int bytes = p.halo.pitch.value() * p.halo.patch_rows * Tile::CHUNK_BYTES;
  const ConvDimension& depth = p.shape.dimensions[2];
  Ring<Tile::STAGES> ring;
  PatchRing<Tile> patches;
  for (int unit = blockIdx.x; unit < p.units.count; unit += gridDim.x) {
    const ConvWork work = locate_conv<Tile>(p, unit);
    const PatchCounts<Tile> counts(p, work);
    const int row = work.filter_row(p.shape);
    int at[MAX_SPATIAL];
#pragma unroll
    for (int d = 0; d < 2; ++d) at[d] = work.at[d] + p.shape.dimensions[d].lower;
    for (int pass = passes.first; pass <= ConvPasses::LAST; ++pass) {
      const CUtensorMap* const pixel_map = p.pixel_maps + ConvPasses::set_of_pixels(pass);
      int chunk = 0, tap_of_depth = 0;
      for (int patch = 0; patch < counts.patches; ++patch) {
        at[2] =
            depth.lower + work.at[2] * depth.step + depth.offset(work.phase.of[2], tap_of_depth);
        wait(shared.patch_empty + patches.stage, patches.phase ^ 1);
        Barrier* const patch_full = shared.patch_full + patches.stage;
        arrive_expecting(patch_full, bytes);
        copy_patch<Tile::SPATIAL>(shared.patch(patches.stage), pixel_map,
                                  work.group * p.group_pitch + chunk * Tile::CHUNK_CHANNELS, at,
                                  work.image, patch_full);
        patches.advance();
        for (int group = 0; group < counts.groups; ++group) {
          wait(shared.empty + ring.stage, ring.phase ^ 1);
          arrive_expecting(shared.full + ring.stage, Tile::STAGE_BYTES);
          const int tap = tap_of_depth * counts.taps + group * Tile::CHUNKS;
          fetch_filter<Tile>(p, shared, ring.stage, (tap * p.chunks + chunk) * Tile::CHUNK, row,
                             ConvPasses::set_of_filter(pass));
          ring.advance();
        }
        if (++chunk == p.chunks) {
          chunk = 0;
          ++tap_of_depth;
        }
      }
    }
  }
}

// sums += one product over the unit's patches, in one chain; calls issued() once all have come.
template <class Tile, class Parameters, class Issued>
__device__ __forceinline__ void convolve_patches(const Parameters& p,
                                                 const ConvShared<Tile>& shared, int warpgroup,
                                                 const ConvWork& work, Ring<Tile::STAGES>& ring,
                                                 PatchRing<Tile>& patches,
                                                 float (&sums)[Tile::PARTS][Tile::REGISTERS],
                                                 const Issued& issued) {
  const PatchCounts<Tile> counts(p, work);
  const ConvDimension &width = p.shape.dimensions[0], &height = p.shape.dimensions[1];
  const int taps_of_row = work.phase.taps(p.shape, 0);
  const int pitch = p.halo.pitch.value();
  // From a tap to the next of its row, and from the last to the first of the next row.
  const int step = width.offset_step;
  const int row_step = height.offset_step * pitch - (taps_of_row - 1) * step;
  const int first =
      height.first_offset[work.phase.of[1]] * pitch + width.first_offset[work.phase.of[0]];
  int before = -1, patch_before = -1;
  for (int patch = 0; patch < counts.patches; ++patch) {
    wait(shared.patch_full + patches.stage, patches.phase);
    int in_row = 0, shift = first;
    for (int group = 0; group < counts.groups; ++group) {
      const int stage = ring.stage;
      wait(shared.full + stage, ring.phase);
      const PatchProducts<Tile> products(shared, warpgroup, stage, patches.stage);
      const int taps =
          Tile::CHUNKS == 1 ? 1 : min(Tile::CHUNKS, counts.taps - group * Tile::CHUNKS);
      // One tap after the other: products that a branch may leave out come to be waited for one by
      // one.
#pragma unroll 1
      for (int tap = 0; tap < taps; ++tap) {
        fence_products();
        products.template multiply<0>(sums[0], tap, shift);
        if constexpr (Tile::PARTS == 2) products.template multiply<1>(sums[1], tap, shift);
        commit_products();
        const bool ends = ++in_row == taps_of_row;
        shift += ends ? row_step : step;
        if (ends) in_row = 0;
        wait_products<1>();
        if (tap == 0 && before >= 0) shared.release(before);
        if (tap == 0 && group == 0 && patch_before >= 0) shared.release_patch(patch_before);
      }
      before = stage;
      ring.advance();
    }
    patch_before = patches.stage;
    patches.advance();
  }
  issued();
  wait_products<0>();
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
  if (before >= 0) shared.release(before);
  if (patch_before >= 0) shared.release_patch(patch_before);
}
