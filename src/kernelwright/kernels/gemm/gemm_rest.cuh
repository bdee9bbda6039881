#pragma once
// What the tensor-core kernel of a product leaves to the kernel after it.

#include <cstdint>

constexpr int MAX_GUARD_WORDS = 2048;

// Beginning of the workspace.
struct GemmHeader {
  int exponents[2];  // of the scales of lhs and rhs
  uint32_t unused[2];
  uint32_t guard[MAX_GUARD_WORDS];  // see gemm_guard.cuh
};

// Without a header there is nothing before: everything is left.
struct GemmRest {
  const GemmHeader* header;
  int guard_words;
  int64_t small_elements;  // so many do no harm
  // With more than one, the result is their sum.
  [[maybe_unused]] int slices = 0;
  [[maybe_unused]] const float* partials = nullptr;  // [slice][batch][m][partial_pitch]
  [[maybe_unused]] int64_t partial_pitch = 0;
};
