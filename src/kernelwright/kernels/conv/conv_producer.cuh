#pragma once
// The thread that keeps the ring of stages of a convolution full.

#include "conv_facts.cuh"
#include "conv_tile.cuh"

// The taps of a phase and the chunks of their channels, one after the other.
template <class Tile, class Parameters>
class TapWalk {
 public:
  __device__ __forceinline__ TapWalk(const Parameters& p, const ConvWork& work)
      : p_(p), phase_(work.phase), first_channel_(work.group * p.group_pitch) {
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) number_[d] = 0;
  }

  // Channel and offsets of the next copies. Beyond the last tap the filter is zero: any pixels do.
  __device__ __forceinline__ void place(PixelPlace& place) const {
    place.channel = first_channel_ + chunk_ * Tile::CHUNK_CHANNELS;
#pragma unroll
    for (int d = 0; d < Tile::SPATIAL; ++d) {
      place.offset[d] = p_.shape.dimensions[d].offset(phase_.of[d], number_[d]);
    }
  }
  __device__ __forceinline__ void advance() {
    if (++chunk_ < p_.chunks) return;
    chunk_ = 0;
#pragma unroll
    for (int d = 0; d < Tile::SPATIAL; ++d) {
      if (++number_[d] < phase_.taps(p_.shape, d)) return;
      number_[d] = 0;
    }
  }

 private:
  const Parameters& p_;
  ConvPhase phase_;
  int first_channel_;
  int number_[MAX_SPATIAL];
  int chunk_ = 0;
};

template <class Tile, class Parameters>
__device__ __forceinline__ void fetch_filter(const Parameters& p, const ConvShared<Tile>& shared,
                                             int stage, int k, int row, int set) {
  constexpr int PART = Tile::BLOCK_CHANNELS / Tile::CLUSTER;
  Barrier* const full = shared.full + stage;
#pragma unroll
  for (int plane = 0; plane < Tile::PLANES; ++plane) {
    const int of_all = set * Tile::PLANES + plane;
    if constexpr (Tile::CLUSTER == 1) {
      copy_box(shared.filter(stage, plane), &p.filter_map, k, row, of_all, full);
    } else {
      const int first = cluster_rank() * PART;
      copy_box_to_cluster(shared.filter(stage, plane) + first * Tile::ROW_BYTES, &p.filter_map, k,
                          row + first, of_all, full, 3);
    }
  }
}

// Where the first taps of a unit's pixels are, copy by copy.
template <class Tile, class Parameters>
__device__ __forceinline__ void find_pixels(const Parameters& p, const ConvWork& work,
                                            PixelPlace (&places)[Tile::COPIES]) {
#pragma unroll
  for (int i = 0; i < Tile::COPIES; ++i) {
    int at[MAX_SPATIAL];
    places[i].image = p.divisors.split(work.position + i * Tile::COPY_POSITIONS, at);
#pragma unroll
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvDimension& dimension = p.shape.dimensions[d];
      places[i].at[d] = dimension.lower + at[d] * dimension.step;
    }
  }
}

// Fills the stages of a pass over one phase of a unit.
template <class Tile, class Parameters>
__device__ __forceinline__ void fetch_sum(const Parameters& p, const ConvShared<Tile>& shared,
                                          const ConvWork& work,
                                          const PixelPlace (&places)[Tile::COPIES], int pass,
                                          Ring<Tile::STAGES>& ring) {
  const int images = static_cast<int>(p.shape.images);
  const CUtensorMap* const pixel_map = p.pixel_maps + ConvPasses::set_of_pixels(pass);
  TapWalk<Tile, Parameters> walk(p, work);
  const int row = work.filter_row(p.shape);
  const int steps = conv_steps<Tile>(work, p.chunks);
  for (int step = 0; step < steps; ++step) {
    const int stage = ring.stage;
    wait(shared.empty + stage, ring.phase ^ 1);
    Barrier* const full = shared.full + stage;
    arrive_expecting(full, Tile::STAGE_BYTES);
    fetch_filter<Tile>(p, shared, stage, step * Tile::BLOCK_K, row,
                       ConvPasses::set_of_filter(pass));
#pragma unroll
    for (int chunk = 0; chunk < Tile::CHUNKS; ++chunk) {
#pragma unroll
      for (int i = 0; i < Tile::COPIES; ++i) {
        PixelPlace place = places[i];
        walk.place(place);
#pragma unroll
        for (int plane = 0; plane < Tile::PLANES; ++plane) {
          copy_pixels<Tile::SPATIAL>(shared.pixels(stage, plane) + chunk * Tile::CHUNK_PIXELS +
                                         i * Tile::COPY_POSITIONS * Tile::CHUNK_BYTES,
                                     pixel_map, place, full);
          place.image += images;
        }
      }
      walk.advance();
    }
    ring.advance();
  }
}

// For one thread of the block. A unit's phases come one after the other, those of two units in turn
// where warpgroups take turns.
template <class Tile, class Parameters>
__device__ __forceinline__ void produce_conv(const Parameters& p, const ConvShared<Tile>& shared,
                                             const ConvPasses& passes) {
  constexpr bool HAS_WINDOWS = ANY_WINDOWS && Parameters::WINDOWS != ConvFold::NONE;
  constexpr int UNITS = HAS_WINDOWS && Tile::ALTERNATES ? 2 : 1;
  const int cluster = blockIdx.x / Tile::CLUSTER, clusters = gridDim.x / Tile::CLUSTER;
  const int phases = phases_of_unit(p);
  Ring<Tile::STAGES> ring;
  for (int first = cluster; first < p.units.count; first += UNITS * clusters) {
    ConvWork work[UNITS];
    PixelPlace places[UNITS][Tile::COPIES];
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      work[u] = locate_conv<Tile>(p, first + u * clusters);
      find_pixels<Tile>(p, work[u], places[u]);
    }
    for (int phase = 0; phase < phases; ++phase) {
#pragma unroll
      for (int u = 0; u < UNITS; ++u) {
        if (u > 0 && first + u * clusters >= p.units.count) continue;
        for (int pass = passes.first; pass <= ConvPasses::LAST; ++pass) {
          fetch_sum<Tile>(p, shared, work[u], places[u], pass, ring);
        }
        if (HAS_WINDOWS) work[u].advance_phase(p.shape);
      }
    }
  }
}
