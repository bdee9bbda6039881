// The arithmetic of a tensor core of compute capability 9.0, bit by bit.
//
// An instruction adds the products along 32 bytes of K to each sum at once: 16, or 8 of TF32. All
// terms are aligned to the largest
// exponent among them and lose what lies more than 25 binary places below it; the rest is summed
// exactly and truncated to fp32. Subnormal numbers count as what they are, on both sides.
// Sources: github.com/microsoft/MMA-Sim; arXiv 2512.07004.
#pragma once

#include <cstdint>
#include <vector>

#include "kwemu/abi.h"

namespace kwemu {

struct ProductTerms {
  const std::vector<uint16_t>& lhs;  // [64][16], or words of TF32: two of these each
  const std::vector<uint16_t>& rhs;  // [n][16]
  unsigned n;
  ProductElement element;
  bool accumulates;  // false: the sums count as zero
  bool is_negated;   // the products are subtracted
};

// sums [64][n] += lhs * rhs^T
void multiply_tile(const ProductTerms& terms, float* sums);

}  // namespace kwemu
