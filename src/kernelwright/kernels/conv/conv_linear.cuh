#pragma once
// Pixels of a convolution of up to 8 channels as runs: what all taps of a tile meet lies in shared
// memory once, as it lies in the planes, and a tap is a shift of where the operand begins.
//
// A pixel is 16 bytes, so that 8 pixels which follow each other are a core matrix of wgmma without
// a swizzle, from any pixel on, and the two halves of an instruction's K are any two taps. A tile
// is a run of positions of the *input*, from an output's first pixel on: where a row of outputs
// ends it computes what nobody stores, as many as a filter's row has taps after the first. The
// outputs of a tile follow each other in the result: they move together in shared memory on the way
// out. Tiles share sectors (conv_runs.cuh).
//
// The filter stays in shared memory: it is all of a block's stages. Each warpgroup has runs of its
// own, so that neither waits for the other.
//
// For convolutions without strides, padding and groups, whose output channels fit one tile.

#include "conv_halo.cuh"
#include "conv_store.cuh"
#include "gemm_sm90_products.cuh"

// What an instruction of 16 of K adds to the address of a run's first pixel: the shift of its first
// tap, and from there to the second, as descriptors have them.
template <class Tile, class Parameters>
__device__ __forceinline__ uint32_t linear_word(const Parameters& p, int instruction) {
  const ConvShape& shape = p.shape;
  const int taps = ConvPhase{}.taps(shape), spare = taps % 2;
  const auto shift_of = [&](int tap) {
    int shift = 0, step = 1;
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = shape.dimensions[d];
      const int next = tap / dimension.taps[0];
      if (d == 2) step = p.linear.pixels;
      shift += (tap - next * dimension.taps[0]) * (d == 2 ? 1 : dimension.offset_step) * step;
      step *= p.linear.in_width;
      tap = next;
    }
    return shift;
  };
  // Beyond the taps, and at the second one where that is a spare, the filter is zero: any pixels of
  // the run do.
  const int first = 2 * instruction - (instruction > 0 ? spare : 0), second = first + 1;
  if (second >= taps) return 1u << 16;
  const int begin = shift_of(first);
  const int distance = shift_of(second) - begin;
  return static_cast<uint32_t>(begin) | static_cast<uint32_t>(distance) << 16;
}

// Those of all instructions, in shared memory.
template <class Tile, class Parameters>
__device__ __forceinline__ void find_linear_words(const Parameters& p,
                                                  const ConvShared<Tile>& shared) {
  auto* const words = reinterpret_cast<uint32_t*>(shared.places);
  for (int i = threadIdx.x; i < 2 * p.linear.pairs; i += Tile::THREADS) {
    words[i] = linear_word<Tile>(p, i);
  }
}

// A tile: of a slice of an image.
struct LinearWork {
  int image, depth;
  int first;      // output, of the slice
  int64_t pixel;  // of the planes: the first that the first output meets
  int behind;     // pixels that the tile begins before it: no run reaches beyond the planes
  int column;     // of the first output

  template <class Parameters>
  __device__ __forceinline__ LinearWork(const Parameters& p, int unit) {
    const LinearPlan& plan = p.linear;
    const uint32_t of_tile = plan.tiles.quotient(unit), of_image = plan.depths.quotient(of_tile);
    image = of_image;
    depth = of_tile - of_image * plan.depths.value();
    first = (unit - of_tile * plan.tiles.value()) * plan.step;
    const int row = plan.width.quotient(first);
    column = first - row * plan.width.value();
    pixel = image * plan.in_image + depth * plan.in_slice + row * plan.in_width + column;
    const int64_t beyond = pixel + plan.reach - plan.plane_pixels;
    behind = beyond > 0 ? static_cast<int>(beyond) : 0;
  }
};

// A tile's run of a set, of all D that it meets.
template <class Tile, class Parameters>
__device__ __forceinline__ void fetch_run(const Parameters& p, const ConvShared<Tile>& shared,
                                          const LinearWork& work, int set,
                                          const PatchRing<Tile>& ring) {
  const LinearPlan& plan = p.linear;
  const ConvDimension& depths = p.shape.dimensions[2];
  const int bytes = plan.pixels * Tile::CHUNK_BYTES;
  int64_t begin = set * Tile::PLANES * plan.plane_pixels + work.pixel - work.behind;
  Barrier* const full = shared.patch_full + ring.stage;
  wait(shared.patch_empty + ring.stage, ring.phase ^ 1);
  unsigned char* to = shared.patch(ring.stage);
  arrive_expecting(full, bytes * depths.taps[0] * Tile::PLANES);
  for (int tap = 0; tap < depths.taps[0]; ++tap) {
#pragma unroll
    for (int plane = 0; plane < Tile::PLANES; ++plane) {
      copy_bulk(to + plane * (Tile::PATCH_BYTES / Tile::PLANES),
                plan.planes + (plane * plan.plane_pixels + begin) * Tile::CHUNK, bytes, full);
    }
    to += bytes;
    begin += depths.offset_step * plan.in_slice;
  }
}

// For one thread of the block.
template <class Tile, class Parameters>
__device__ __forceinline__ void produce_linear(const Parameters& p, const ConvShared<Tile>& shared,
                                               const ConvPasses& passes) {
  const LinearPlan& plan = p.linear;
  for (int stage = 0; stage < (plan.pairs + 1) / 2; ++stage) {
    arrive_expecting(shared.full + stage, Tile::STAGE_BYTES);
    fetch_filter<Tile>(p, shared, stage, stage * Tile::BLOCK_K, 0, 0);
  }
  PatchRing<Tile> ring;
  for (int first = blockIdx.x; first < p.units.count; first += 2 * gridDim.x) {
    // A pass of the units of both warpgroups: each has every other run.
    for (int pass = passes.first; pass <= ConvPasses::LAST; ++pass) {
      for (int unit = first; unit < first + 2 * static_cast<int>(gridDim.x); unit += gridDim.x) {
        if (unit < p.units.count) {
          fetch_run<Tile>(p, shared, LinearWork(p, unit), ConvPasses::set_of_pixels(pass), ring);
        }
        ring.advance();
      }
    }
  }
}

// Two instructions' worth of K, as multiply_part takes them.
template <class Tile>
class LinearProducts {
 public:
  // `pair` of instructions, whose words are `first` and `second`, of a tile at `begin`.
  __device__ __forceinline__ LinearProducts(const ConvShared<Tile>& shared, int pair,
                                            uint32_t begin, uint32_t first, uint32_t second)
      : filter_(RowsDescriptor<Tile::ROW_BYTES>::of(shared.filter(pair / 2, 0) +
                                                    pair % 2 * 2 * Tile::STEP_K * 2)) {
    words_[0] = __shfl_sync(0xffffffffu, begin + first, 0);
    words_[1] = __shfl_sync(0xffffffffu, begin + second, 0);
  }

  template <int FILTER_PLANE, int PIXEL_PLANE, int STEP, int PART = 0>
  __device__ __forceinline__ void multiply(float (&sums)[Tile::REGISTERS], int accumulate) const {
    constexpr uint64_t EIGHT_PIXELS = uint64_t{8 * Tile::CHUNK_BYTES >> 4} << 32;
    Tile::Instruction::template multiply<0, 0>(
        sums,
        filter_.further(FILTER_PLANE * Tile::FILTER_PLANE +
                        PART * Tile::PART_CHANNELS * Tile::ROW_BYTES + STEP * Tile::STEP_K * 2),
        EIGHT_PIXELS | (words_[STEP] + PIXEL_PLANE * (Tile::PATCH_BYTES / Tile::PLANES >> 4)),
        accumulate);
  }

 private:
  RowsDescriptor<Tile::ROW_BYTES> filter_;
  uint32_t words_[2];
};

// sums += the products of one tile, whose first pixel is at `begin`, as descriptors have it.
template <class Tile>
__device__ __forceinline__ void convolve_linear(const ConvShared<Tile>& shared, uint32_t begin,
                                                int pairs,
                                                float (&sums)[Tile::PARTS][Tile::REGISTERS]) {
  constexpr float LOW = 1.0f / (1 << LOW_BITS);
  const auto* const words = reinterpret_cast<const uint2*>(shared.places);
  if constexpr (Tile::PLANES == 2) {
    float high[Tile::REGISTERS], low[Tile::REGISTERS];
#pragma unroll 1
    for (int pair = 0; pair < pairs; ++pair) {
      const uint2 both = words[pair];
      const LinearProducts<Tile> products(shared, pair, begin, both.x, both.y);
      multiply_part<0>(products, pair > 0, sums[0], high, low, [] {});
    }
    wait_products<0>();
    pin(low);
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS; ++i) sums[0][i] = fmaf(low[i], LOW, sums[0][i]);
  } else {
#pragma unroll 1
    for (int pair = 0; pair < pairs; ++pair) {
      const uint2 both = words[pair];
      const LinearProducts<Tile> products(shared, pair, begin, both.x, both.y);
      fence_products();
      products.template multiply<0, 0, 0>(sums[0], 1);
      products.template multiply<0, 0, 1>(sums[0], 1);
      if constexpr (Tile::PARTS == 2) {
        products.template multiply<0, 0, 0, 1>(sums[1], 1);
        products.template multiply<0, 0, 1, 1>(sums[1], 1);
      }
      commit_products();
      wait_products<1>();
    }
    wait_products<0>();
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) pin(sums[part]);
  }
}

// Where a run's position goes in a row of a warp's buffer, in floats: outputs follow each other,
// and what is none goes to the end.
template <class Tile, class Parameters>
__device__ __forceinline__ int linear_slot(const Parameters& p, const LinearWork& work,
                                           int position) {
  constexpr int NONE = Tile::PART_POSITIONS + RUN;  // each lane has its own
  const int in = p.linear.in_width, out = static_cast<int>(p.linear.width.value());
  int slot = position - work.behind, at = work.column + slot;
  // A run has at most two rows' ends.
#pragma unroll
  for (int end = 0; end < 2; ++end) {
    if (at < in) continue;
    at -= in;
    slot -= in - out;
  }
  return slot >= 0 && at < out ? slot : NONE + position % 8;
}

// Those of a lane's registers.
template <class Tile>
struct LinearSlots {
  int of[Tile::REGISTERS / 2];

  // `slots`: of a warp, in shared memory.
  template <class Parameters>
  __device__ __forceinline__ LinearSlots(const Parameters& p, const LinearWork& work, int* slots) {
    const int lane = threadIdx.x % 32;
    __syncwarp();  // those before have been read
#pragma unroll
    for (int i = 0; i < Tile::PART_POSITIONS; i += 32) {
      slots[i + lane] = linear_slot<Tile>(p, work, i + lane);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS / 2; i += 2) {
      const auto pair = *reinterpret_cast<const int2*>(slots + 4 * i + lane % 4 * 2);
      of[i] = pair.x;
      of[i + 1] = pair.y;
    }
  }
};

// Writes a warp's sums of 16 channels.
template <class Tile, class Parameters>
__device__ __forceinline__ void store_linear(const Parameters& p, const ConvShared<Tile>& shared,
                                             const LinearWork& work, const ConvRows& rows,
                                             int warpgroup, const float (&sums)[Tile::REGISTERS]) {
  using Result = std::remove_pointer_t<decltype(p.out)>;
  constexpr int ROWS = Tile::BUFFER_ROWS;
  using Store =
      SpanStore<Tile::PART_POSITIONS, ROWS, Tile::BUFFER_PITCH, Result, decltype(p.epilogue)>;
  const int lane = threadIdx.x % 32, warp = warpgroup * 4 + threadIdx.x % Tile::WARPGROUP / 32;
  auto& numbers =
      *reinterpret_cast<typename Store::Rows*>(shared.buffers + warp * Tile::BUFFER_BYTES);
  const int64_t place = work.image * p.out_strides.image +
                        rows.first_of_all * p.out_strides.channel +
                        work.depth * p.out_strides.spatial[2] + work.first;
  Result* const out = p.out + place;
  const SectorShift<Result> shift{out, p.out_strides.channel};
  const Store store{p.epilogue,
                    rows.count,
                    out,
                    p.out_strides.channel,
                    {place, rows.first_of_all},
                    SharedSectors::of_slice(p.linear.step, work.first, p.linear.slice)};
  const LinearSlots<Tile> slots(p, work, &shared.slots[warp * Tile::PART_POSITIONS]);
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    __syncwarp();  // the rows before have been read
    float* const row = &numbers[lane / 4][shift(8 * below + lane / 4)];
#pragma unroll
    for (int i = 0; i < Tile::REGISTERS / 2; i += 2) {
      row[slots.of[i]] = sums[2 * i + 2 * below];
      row[slots.of[i + 1]] = sums[2 * i + 2 * below + 1];
    }
    __syncwarp();
    store(8 * below, numbers);
  }
}

// Which of a lane's columns are outputs of the tile and of no other.
template <class Tile, class Parameters>
__device__ __forceinline__ auto own_outputs(const Parameters& p, const LinearWork& work) {
  const int count = min(p.linear.step, p.linear.slice - work.first);
  return columns_where<Tile::REGISTERS / 2>(
      [&](int position) { return linear_slot<Tile>(p, work, position) < count; });
}

// A warpgroup that multiplies.
template <class Tile, class Parameters>
__device__ __forceinline__ void consume_linear(const Parameters& p, const ConvShared<Tile>& shared,
                                               const ConvPasses& passes, int warpgroup,
                                               int exponent) {
  clear_numbers<Tile>(shared, warpgroup);
  for (int stage = 0; stage < (p.linear.pairs + 1) / 2; ++stage) wait(shared.full + stage, 0);
  PatchRing<Tile> ring;
  if (warpgroup == 1) ring.advance();
  for (int unit = blockIdx.x + warpgroup * gridDim.x; unit < p.units.count; unit += 2 * gridDim.x) {
    const LinearWork work(p, unit);
    float sums[Tile::PARTS][Tile::REGISTERS];
    ConvPasses::begin(sums);
    for (int pass = passes.first; pass <= ConvPasses::LAST; ++pass) {
      const uint32_t begin = (shared_address(shared.patch(ring.stage)) & 0x3ffff) >> 4;
      wait(shared.patch_full + ring.stage, ring.phase);
      convolve_linear<Tile>(shared, begin, p.linear.pairs, sums);
      shared.release_patch(ring.stage);
      ring.advance();
      ring.advance();
      ConvPasses::end(pass, sums);
    }
    const ConvWork of_tile = {};
#pragma unroll
    for (int part = 0; part < Tile::PARTS; ++part) {
      finish_sums<Tile>(p, of_tile, warpgroup, part, exponent, sums[part]);
      if constexpr (ANY_MOMENTS && Parameters::MOMENTS != ConvMoments::NONE) {
        write_states<Tile>(p, of_tile, warpgroup, part, p.epilogue.moments.slot(unit, 0, 0),
                           sums[part], own_outputs<Tile>(p, work));
        if constexpr (Parameters::MOMENTS == ConvMoments::ALONE) continue;
      }
      const ConvRows rows = rows_of_warp<Tile>(p, of_tile, warpgroup, part);
      if (rows.count > 0) store_linear<Tile>(p, shared, work, rows, warpgroup, sums[part]);
    }
  }
}
