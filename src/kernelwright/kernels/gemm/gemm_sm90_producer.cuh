#pragma once
// The thread that keeps the ring of stages of a tensor-core product full.

#include "gemm_patches.cuh"
#include "gemm_sm90_tile.cuh"

// Boxes have rows of 128 bytes. COUNT elements along a factor's own dimension from `first`, BLOCK_K
// along K; to BLOCKS blocks of the cluster.
template <class Tile, Major MAJOR, int COUNT, int BLOCKS>
__device__ __forceinline__ void fetch_plane(unsigned char* target, const CUtensorMap* map, int k,
                                            int first, int plane, Barrier* barrier) {
  constexpr uint16_t EVERY_BLOCK = (1 << BLOCKS) - 1;
  constexpr int ROW = 64;  // elements
  constexpr int BOX = MAJOR == Major::K ? COUNT : ROW;
  static_assert(COUNT % BOX == 0, "a plane is a whole number of boxes");
#pragma unroll
  for (int i = 0; i < COUNT; i += BOX) {
    const int x = MAJOR == Major::K ? k : first + i;
    const int y = MAJOR == Major::K ? first : k;
    unsigned char* const box = target + i * Tile::ROW_BYTES;
    if constexpr (BLOCKS == 1) {
      copy_box(box, map, x, y, plane, barrier);
    } else {
      copy_box_to_cluster(box, map, x, y, plane, barrier, EVERY_BLOCK);
    }
  }
}

// The same of fp32 numbers: rows of 32.
template <class Tile, Major MAJOR, int COUNT>
__device__ __forceinline__ void fetch_raw(unsigned char* target, const CUtensorMap* map, int k,
                                          int first, int batch, Barrier* barrier) {
  constexpr int ROW = 32;
  constexpr int BOXES = (MAJOR == Major::K ? Tile::BLOCK_K : COUNT) / ROW;
  constexpr int BOX_BYTES = COUNT * Tile::BLOCK_K * 4 / BOXES;
#pragma unroll
  for (int i = 0; i < BOXES; ++i) {
    const int x = (MAJOR == Major::K ? k : first) + i * ROW;
    const int y = MAJOR == Major::K ? first : k;
    copy_box(target + i * BOX_BYTES, map, x, y, batch, barrier);
  }
}

// A stage's part of rhs: both blocks of a cluster read it, and each fetches a half for both.
template <class Config, class Tile>
__device__ __forceinline__ void fetch_rhs(const CUtensorMap* map, const Sm90Shared<Tile>& shared,
                                          int stage, int k, int column, int batch, int rank) {
  constexpr int CLUSTER = Tile::CLUSTER, PLANES = Tile::PLANES;
  Barrier* const full = shared.full + stage;
  const int plane = batch * PLANES;
  if constexpr (CLUSTER == 1) {
#pragma unroll
    for (int i = 0; i < PLANES; ++i) {
      fetch_plane<Tile, Config::RHS, Tile::BLOCK_N, 1>(shared.rhs(stage, i), map, k, column,
                                                       plane + i, full);
    }
  } else if constexpr (PLANES == CLUSTER) {
    // Each block fetches one plane for both.
    fetch_plane<Tile, Config::RHS, Tile::BLOCK_N, CLUSTER>(shared.rhs(stage, rank), map, k, column,
                                                           plane + rank, full);
  } else {
    // Each block fetches half of the columns for both.
    constexpr int PART = Tile::BLOCK_N / CLUSTER;
    fetch_plane<Tile, Config::RHS, PART, CLUSTER>(
        shared.rhs(stage, 0) + rank * PART * Tile::ROW_BYTES, map, k, column + rank * PART, plane,
        full);
  }
}

template <class Config, class Tile, class Problem>
__device__ __forceinline__ void fetch_stage(const Sm90Parameters<Problem>& p,
                                            const Sm90Shared<Tile>& shared, int stage, int k,
                                            const Sm90Work& work, int lhs_plane, int rhs_plane,
                                            int rank) {
  constexpr int PLANES = Tile::PLANES;
  Barrier* const full = shared.full + stage;
  arrive_expecting(full, Tile::STAGE_BYTES);
  if constexpr (Tile::FEED == Feed::CONVERT || (ANY_PAIRED && Tile::IS_PAIRED)) {
    fetch_raw<Tile, Config::LHS, Tile::BLOCK_M>(shared.lhs(stage), &p.lhs_map, k, work.row,
                                                lhs_plane, full);
  } else {
#pragma unroll
    for (int plane = 0; plane < PLANES; ++plane) {
      fetch_plane<Tile, Config::LHS, Tile::BLOCK_M, 1>(shared.lhs(stage) + plane * Tile::LHS_PLANE,
                                                       &p.lhs_map, k, work.row,
                                                       lhs_plane * PLANES + plane, full);
    }
  }
  if constexpr (ANY_TOGETHER && PLANES == 1) {
    if (p.problem.together > 1) {
      const CUtensorMap* const map = p.rhs_maps + rhs_plane;  // the number of a product
      return fetch_rhs<Config>(map, shared, stage, k, work.column, 0, rank);
    }
  }
  fetch_rhs<Config>(&p.rhs_map, shared, stage, k, work.column, rhs_plane, rank);
}

// The stages of a unit whose rows are patches.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void fetch_patches(const Sm90Parameters<Problem>& p,
                                              const Sm90Shared<Tile>& shared, const Sm90Work& work,
                                              Ring<Tile::STAGES>& ring) {
  const auto first = static_cast<int>(work.batch * p.problem.m + work.row);
  PatchSteps<Tile::BLOCK_K> walk(p.problem.patches, first);
  if constexpr (Config::SLICES > 1) walk.begin_at(work.first_step);
  for (int step = 0; step < work.steps; ++step) {
    wait(shared.empty + ring.stage, ring.phase ^ 1);
    Barrier* const full = shared.full + ring.stage;
    arrive_expecting(full, Tile::STAGE_BYTES);
    copy_pixels<2>(shared.lhs(ring.stage), &p.lhs_map, walk.place(), full);
    fetch_rhs<Config>(&p.rhs_map, shared, ring.stage, walk.place().channel, work.column, walk.tap(),
                      Sm90Place<Tile>::rank());
    ring.advance();
    walk.advance();
  }
}

// The same where taps share pixels: all taps of a chunk of channels each.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void fetch_band(const Sm90Parameters<Problem>& p,
                                           const Sm90Shared<Tile>& shared, const Sm90Work& work,
                                           Ring<Tile::STAGES>& ring) {
  PixelPlace place = p.problem.patches.place(work.batch * p.band_rows + work.row);
  for (int step = 0; step < work.steps; ++step, place.channel += Tile::BLOCK_K) {
    wait(shared.empty + ring.stage, ring.phase ^ 1);
    Barrier* const full = shared.full + ring.stage;
    arrive_expecting(full, Tile::STAGE_BYTES);
    copy_pixels<2>(shared.lhs(ring.stage), &p.lhs_map, place, full);
    copy_box(shared.rhs(ring.stage, 0), &p.rhs_map, place.channel, work.column, 0, full);
    ring.advance();
  }
}

// For one thread of the block.
template <class Config, class Tile, class Problem>
__device__ __forceinline__ void produce(const Sm90Parameters<Problem>& p,
                                        const Sm90Shared<Tile>& shared) {
  using Place = Sm90Place<Tile>;
  Ring<Tile::STAGES> ring;
  for (int unit = Place::cluster(); unit < p.units.count; unit += Place::clusters()) {
    const Sm90Work work = locate_work<Tile>(p, p.units, unit);
    if constexpr (Tile::FEED == Feed::BAND) {
      fetch_band<Config>(p, shared, work, ring);
    } else if constexpr (ANY_PATCHES && Problem::HAS_PATCHES) {
      fetch_patches<Config>(p, shared, work, ring);
    } else {
      int lhs_plane = 0, rhs_plane = 0;
      if constexpr (ANY_BATCHES) {
        lhs_plane = plane_batch(p.problem, work.batch, p.lhs_batch_steps);
        rhs_plane = plane_batch(p.problem, work.batch, p.rhs_batch_steps);
      }
      for (int step = 0; step < work.steps; ++step) {
        wait(shared.empty + ring.stage, ring.phase ^ 1);
        fetch_stage<Config>(p, shared, ring.stage, (work.first_step + step) * Tile::BLOCK_K, work,
                            lhs_plane, rhs_plane, Place::rank());
        ring.advance();
      }
    }
  }
}
