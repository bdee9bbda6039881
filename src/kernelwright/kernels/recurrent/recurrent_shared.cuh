#pragma once
// What the blocks of a cluster share: barriers.

#include "mbarrier.cuh"

template <class Tile>
struct RecurrentShared {
  Barrier x_full[Tile::STAGES], x_empty[Tile::STAGES];
  Barrier h_full[2];  // the other blocks' units have come
  uint32_t lane;
};
