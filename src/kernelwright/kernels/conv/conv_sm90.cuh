#pragma once
// Convolution on the tensor cores of compute capability 9.0: an implicit matrix product.
//
//   result[channel][position] = sum over taps and input channels of filter * pixel
//
// The filter is the operand A, 64 output channels a warpgroup; the pixels that a tap meets are the
// operand B, 128 or 256 positions, which the mode im2col of the tensor memory accelerator brings
// across rows and images. So a lane's neighbours are neighbouring positions, which lie side by side
// in a channels-first result, and few output channels waste no bandwidth.
//
// One fp16 product has the eleven bits of cuDNN's TF32. Three products of pairs (gemm_guard.cuh)
// are as accurate as float32. Wide ranges take more passes over K (conv_passes.cuh); what no planes
// carry, infinities and NaN, the CUDA cores compute in the same kernel.
//
// Blocks are persistent. One thread of the first warpgroup fetches, two warpgroups multiply.

#include "conv_facts.cuh"
#include "conv_linear.cuh"
#include "conv_producer.cuh"
#include "conv_products.cuh"
#include "conv_simt.cuh"
#include "conv_store.cuh"
#include "conv_wide.cuh"
#include "gemm_sm90_products.cuh"

// The products of one stage, of 64 channels.
template <int PART, class Tile>
__device__ __forceinline__ void multiply_stage(const ConvProducts<Tile>& products,
                                               float (&sums)[Tile::REGISTERS]) {
  products.template multiply<0, 0, 0, PART>(sums, 1);
  products.template multiply<0, 0, 1, PART>(sums, 1);
  products.template multiply<0, 0, 2, PART>(sums, 1);
  if constexpr (Tile::CHUNKS * Tile::CHUNK_STEPS == 4) {
    products.template multiply<0, 0, 3, PART>(sums, 1);
  }
}

// sums += one product over `steps` stages, in one chain; calls issued() once all stages have come.
// The last stage, which is not released, is returned.
template <class Tile, class Issued>
__device__ __forceinline__ void convolve_plain(const ConvShared<Tile>& shared, int warpgroup,
                                               Ring<Tile::STAGES>& ring, int steps,
                                               float (&sums)[Tile::PARTS][Tile::REGISTERS],
                                               const Issued& issued) {
  int before = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.full + stage, ring.phase);
    const ConvProducts<Tile> products(shared, warpgroup, stage);
    fence_products();
    multiply_stage<0>(products, sums[0]);
    if constexpr (Tile::PARTS > 1) multiply_stage<1>(products, sums[1]);
    if constexpr (Tile::PARTS > 2) multiply_stage<2>(products, sums[2]);
    if constexpr (Tile::PARTS > 2) multiply_stage<3>(products, sums[3]);
    commit_products();
    wait_products<1>();
    if (step > 0) shared.release(before);
    before = stage;
    ring.advance();
  }
  issued();
  wait_products<0>();
#pragma unroll
  for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
  if (steps > 0) shared.release(before);
}

// The same of pairs: three products, as in multiply_pairs.
template <class Tile, class Issued>
__device__ __forceinline__ void convolve_pairs(const ConvShared<Tile>& shared, int warpgroup,
                                               Ring<Tile::STAGES>& ring, int steps,
                                               float (&sums)[Tile::REGISTERS],
                                               const Issued& issued) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  float high[Tile::REGISTERS], low[Tile::REGISTERS];
  int before = 0;
  for (int done = 0; done < steps; done += Tile::FOLD_STEPS) {
    const int end = min(steps, done + Tile::FOLD_STEPS);
    for (int step = done; step < end; ++step) {
      const int stage = ring.stage;
      wait(shared.full + stage, ring.phase);
      const ConvProducts<Tile> products(shared, warpgroup, stage);
      multiply_part<0>(products, step > done, sums, high, low, [&] {
        if (step > 0) shared.release(before);
      });
      multiply_part<2>(products, 1, sums, high, low, [] {});
      before = stage;
      ring.advance();
    }
    wait_products<0>();
    pin(low);
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; ++i) sums[i] = fmaf(low[i], LOW, sums[i]);
  }
  issued();
  if (steps > 0) shared.release(before);
}

// Passes what the other warpgroup takes of the rings for its unit: for one phase, this one's, where
// windows are reduced.
template <class Tile, class Parameters>
__device__ __forceinline__ void skip_sum(const Parameters& p, const ConvWork& own, int unit,
                                         int passes, Ring<Tile::STAGES>& ring,
                                         PatchRing<Tile>& patches) {
  if constexpr (Parameters::WINDOWS != ConvFold::NONE) {
    skip_stages(ring, passes * conv_steps<Tile>(own, p.chunks));
  } else if constexpr (Tile::HAS_PATCHES) {
    const PatchCounts<Tile> counts(p, locate_conv<Tile>(p, unit));
    skip_stages(ring, passes * counts.patches * counts.groups);
    skip_stages(patches, passes * counts.patches);
  } else {
    skip_stages(ring, passes * conv_steps<Tile>(locate_conv<Tile>(p, unit), p.chunks));
  }
}

// A warpgroup that multiplies: what produce_conv fetches, in its order.
template <class Tile, class Parameters>
__device__ __forceinline__ void consume_conv(const Parameters& p, const ConvShared<Tile>& shared,
                                             const ConvPasses& passes, int warpgroup,
                                             int exponent) {
  constexpr bool HAS_WINDOWS = ANY_WINDOWS && Parameters::WINDOWS != ConvFold::NONE;
  static_assert(!HAS_WINDOWS || (!Tile::JOINS && !Tile::HAS_PATCHES),
                "the phases of windows are copied");
  static_assert(!HAS_WINDOWS || Tile::REGISTERS * Tile::PARTS * Tile::PLANES <= 64,
                "sums and what is left of a window do not fit registers");
  const int cluster = blockIdx.x / Tile::CLUSTER, clusters = gridDim.x / Tile::CLUSTER;
  const int step = Tile::ALTERNATES ? 2 * clusters : clusters;
  const int phases = phases_of_unit(p);
  const int64_t* const places = shared.places + warpgroup * Tile::PART_POSITIONS;
  Ring<Tile::STAGES> ring;
  PatchRing<Tile> patches;
  if constexpr (Tile::CAN_SHARE_SECTORS) clear_numbers<Tile>(shared, warpgroup);
  for (int first = cluster; first < p.units.count; first += step) {
    const int unit = first + (Tile::ALTERNATES ? warpgroup * clusters : 0);
    const int other = first + (Tile::ALTERNATES ? (1 - warpgroup) * clusters : 0);
    if (unit >= p.units.count) break;
    const bool has_other = Tile::ALTERNATES && other < p.units.count;
    const bool has_more = first + step < p.units.count;
    ConvWork work = locate_conv<Tile>(p, unit);
    float values[Tile::PARTS][Tile::REGISTERS];  // of windows
    for (int phase = 0; phase < phases; ++phase) {
      if (Tile::ALTERNATES && warpgroup == 1)
        skip_sum<Tile>(p, work, other, passes.count(), ring, patches);
      if (phase == 0) find_places<Tile>(p, shared, work, warpgroup);
      if constexpr (ANY_LATE && STORES_LATE<Tile, Parameters> && !HAS_WINDOWS) {
        ask_for_late_parts<Tile>(p, shared, work, warpgroup);
      }
      const bool waits = warpgroup == 1 || (phase > 0 ? has_other : first != cluster);
      const bool gives = warpgroup == 1 ? phase + 1 < phases || has_more : has_other;
      if (Tile::ALTERNATES && waits) ConvTurns::wait_for<Tile>(warpgroup);
      float sums[Tile::PARTS][Tile::REGISTERS];
      ConvPasses::begin(sums);
      for (int pass = passes.first; pass <= ConvPasses::LAST; ++pass) {
        const auto issued = [&] {
          if (Tile::ALTERNATES && gives && pass == ConvPasses::LAST) {
            ConvTurns::give_to<Tile>(1 - warpgroup);
          }
        };
        if constexpr (Tile::HAS_PATCHES) {
          convolve_patches<Tile>(p, shared, warpgroup, work, ring, patches, sums, issued);
        } else {
          const int steps = conv_steps<Tile>(work, p.chunks);
          if constexpr (Tile::PLANES == 1) {
            convolve_plain<Tile>(shared, warpgroup, ring, steps, sums, issued);
          } else {
            convolve_pairs<Tile>(shared, warpgroup, ring, steps, sums[0], issued);
          }
        }
        ConvPasses::end(pass, sums);
      }
      if (Tile::ALTERNATES && warpgroup == 0 && has_other) {
        skip_sum<Tile>(p, work, other, passes.count(), ring, patches);
      }
#pragma unroll
      for (int part = 0; part < Tile::PARTS; ++part) {
        finish_sums<Tile>(p, work, warpgroup, part, exponent, sums[part]);
      }
      if constexpr (HAS_WINDOWS) {
#pragma unroll
        for (int part = 0; part < Tile::PARTS; ++part) {
          fold_window<Parameters::WINDOWS>(values[part], sums[part], phase == 0, p.has_window_parts,
                                           work.phase, places);
        }
        work.advance_phase(p.shape);
      } else {
        store_sums<Tile>(p, shared, work, unit, warpgroup, sums);
      }
    }
    if constexpr (HAS_WINDOWS) {
      if (p.has_window_parts) forget_window_parts<Tile>(shared, warpgroup);
      store_sums<Tile>(p, shared, work, unit, warpgroup, values);
    }
  }
}

// The body of a kernel of THREADS threads and SHARED_BYTES of dynamic shared memory, in clusters of
// CLUSTER blocks.
template <class Config, class Parameters>
__device__ __forceinline__ void conv_sm90(const Parameters& p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Tile = ConvTile<Config>;
  extern __shared__ unsigned char conv_shared[];
  __shared__ int exponent;
  const ConvShared<Tile> shared(conv_shared);
  const int warpgroup = threadIdx.x / Tile::WARPGROUP;
  if (threadIdx.x == 0) {
    prefetch_map(p.pixel_maps);
    prefetch_map(&p.filter_map);
    shared.init();
  }
  wait_for_previous_kernel();
  if (threadIdx.x == 0) exponent = p.rest.header->exponents[0];
  ConvPasses passes;
  if (!pairs_were_exact(p.rest)) {
    passes = write_second_set<Config>(p, exponent, shared.places);
    if (passes.first == ConvPasses::NONE) {
      if constexpr (!ANY_MOMENTS || Parameters::MOMENTS != ConvMoments::ALONE) {
        convolve_on_cuda_cores<Tile>(p);
      }
      if constexpr (ANY_MOMENTS && Parameters::MOMENTS != ConvMoments::NONE) {
        if (blockIdx.x == 0 && threadIdx.x == 0) p.epilogue.moments.leave();
      }
      return;
    }
  }
  if constexpr (Tile::IS_LINEAR) find_linear_words<Tile>(p, shared);
  if constexpr (Tile::CLUSTER > 1) {
    sync_cluster();
  } else {
    __syncthreads();
  }
  if (warpgroup == 0) {
    give_registers_back<Tile::PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) {
      if constexpr (Tile::IS_LINEAR) {
        produce_linear<Tile>(p, shared, passes);
      } else if constexpr (Tile::HAS_PATCHES) {
        produce_patches<Tile>(p, shared, passes);
      } else {
        produce_conv<Tile>(p, shared, passes);
      }
    }
  } else {
    take_registers<Tile::CONSUMER_REGISTERS>();
    if constexpr (Tile::IS_LINEAR) {
      consume_linear<Tile>(p, shared, passes, warpgroup - 1, exponent);
    } else {
      consume_conv<Tile>(p, shared, passes, warpgroup - 1, exponent);
    }
  }
  // Nobody leaves while the others may still write to its shared memory.
  if constexpr (Tile::CLUSTER > 1) sync_cluster();
#endif
}
