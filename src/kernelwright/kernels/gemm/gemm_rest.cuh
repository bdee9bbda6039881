#pragma once
// What the tensor-core kernel of a product leaves to the kernel after it.

#include <cstdint>

#include "gemm_facts.cuh"

constexpr int MAX_GUARD_WORDS = 2048;
constexpr int MOST_TOGETHER = 3;  // products of one left factor in one launch, as q, k and v are
constexpr int SCALES = ANY_TOGETHER ? 1 + MOST_TOGETHER : 2;  // of lhs, and of each rhs

// Beginning of the workspace.
struct GemmHeader {
  int exponents[1 + MOST_TOGETHER];  // of the scales of lhs, and of each rhs
  uint32_t guard[MAX_GUARD_WORDS];   // see gemm_guard.cuh
};

// Without a header there is nothing before: everything is left.
struct GemmRest {
  const GemmHeader* header;
  int guard_words;
  int64_t small_elements;  // so many do no harm
  // Where there are any, the result is their sum.
  [[maybe_unused]] int slices = 0;
  [[maybe_unused]] const float* partials = nullptr;  // [slice][batch][m][partial_pitch]
  [[maybe_unused]] int64_t partial_pitch = 0;
};

// Blocks of so many threads for the kernel after it, which may have to compute all tiles.
template <class Problem>
unsigned blocks_of_rest(const Problem& problem, int64_t tiles, int threads, int64_t at_once) {
  int64_t all = tiles;
  if (ANY_SLICES && problem.rest.slices > 0) {
    // To add slices each thread has a few neighbours, however few the tiles are.
    const int64_t sums = problem.batches * problem.m * problem.rest.partial_pitch;
    const int64_t shares = (sums + 4 * threads - 1) / (4 * threads);
    all = all > shares ? all : shares;
  }
  return static_cast<unsigned>(all < at_once ? all : at_once);
}
