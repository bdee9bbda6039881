#pragma once
// How a product is cut in two launches of gemm_sm90.cuh: the kernel before splits only what the
// first reads, and warps of the first that are idle otherwise split the rest of one factor.

#include "gemm_sm90_tile.cuh"

// The three idle warps of a block split so many elements while the others multiply one step of K:
// measured on an H200 where the first launch takes no longer for it.
constexpr int AHEAD_OF_STEP = 400;
struct Sm90Cut {
  Tiles first, rest;
};

// The smallest first launch that leaves time enough to split the rest, and costs no more waves of
// tiles; all in the first where there is none, or less than LEAST_AHEAD elements were left.
template <class Config, class Tile, class Problem>
Sm90Cut find_cut(const Problem& problem, const Factor& lhs, const Factor& rhs, int at_once) {
  const Tiles all = all_tiles<Tile>(problem);
  const bool by_columns = problem.n >= problem.m;
  const Factor& factor = by_columns ? rhs : lhs;
  const Sm90Cut whole = {all, {}};
  if (ANY_TRIANGLES && problem.triangle != Triangle::NONE) return whole;
  if (problem.batches != 1 || !SplitTile::are_aligned(factor)) return whole;
  const int64_t size = by_columns ? all.columns : all.rows;
  const int64_t across = by_columns ? all.rows : all.columns;
  const int64_t steps = (problem.k + Tile::BLOCK_K - 1) / Tile::BLOCK_K;
  const double elements = static_cast<double>(factor.inner) * static_cast<double>(factor.outer);
  const double of_line = static_cast<double>(across * Tile::CLUSTER) * steps * AHEAD_OF_STEP;
  const auto waves = [&](int64_t lines) { return (lines * across + at_once - 1) / at_once; };
  const auto least = static_cast<int64_t>(size * elements / (elements + size * of_line)) + 1;
  for (int64_t first = least; first < size && first < least + at_once; ++first) {
    const int64_t rest = size - first;
    if (elements * rest / size < Config::LEAST_AHEAD) break;
    if (waves(first) + waves(rest) > waves(size)) continue;
    const int lines = static_cast<int>(first), others = static_cast<int>(rest);
    if (by_columns) return {{0, 0, all.rows, lines}, {0, lines, all.rows, others}};
    return {{0, 0, lines, all.columns}, {lines, 0, others, all.columns}};
  }
  return whole;
}
