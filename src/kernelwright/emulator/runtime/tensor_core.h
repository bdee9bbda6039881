// The arithmetic of a tensor core of compute capability 9.0, bit by bit.
//
// An instruction adds 16 products to each sum at once. All 17 terms are aligned to the largest
// exponent among them and lose what lies more than 25 binary places below it; the rest is summed
// exactly and truncated to fp32. Subnormal numbers count as what they are, on both sides.
// Sources: github.com/microsoft/MMA-Sim; arXiv 2512.07004.
#pragma once

#include <cstdint>
#include <vector>

namespace kwemu {

struct ProductTerms {
  const std::vector<uint16_t>& lhs;  // [64][16]
  const std::vector<uint16_t>& rhs;  // [n][16]
  unsigned n;
  bool is_bfloat16;
  bool accumulates;  // false: the sums count as zero
  bool is_negated;   // the products are subtracted
};

// sums [64][n] += lhs * rhs^T
void multiply_tile(const ProductTerms& terms, float* sums);

}  // namespace kwemu
