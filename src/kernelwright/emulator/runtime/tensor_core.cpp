#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "vectors.h"

namespace kwemu {
namespace {

constexpr unsigned kRows = 64, kDepth = 16, kMostColumns = 256;
constexpr int kPlaces = 25;         // binary places that terms keep
constexpr int kNoExponent = -4096;  // of zero: below all others
constexpr int kFp32Places = 23, kFp32Bias = 127, kFp32Least = -126;
constexpr uint32_t kNan = 0x7fffffff;

// Numbers as significand * 2^(exponent - places).
struct Format {
  int places;
  int bias;
  int special;  // exponent bits of infinities and NaNs
};
constexpr Format kHalf{10, 15, 31}, kBfloat16{7, 127, 255};

struct Numbers {
  std::vector<int32_t> significands, exponents;
  std::vector<bool> is_special;  // of each row
};

float value_of(uint16_t bits, bool is_bfloat16) {
  const Format& format = is_bfloat16 ? kBfloat16 : kHalf;
  const int exponent = bits >> format.places & format.special;
  const int mantissa = bits & ((1 << format.places) - 1);
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == format.special) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  }
  const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.places;
  return std::ldexp(sign * static_cast<float>(whole),
                    std::max(exponent, 1) - format.bias - format.places);
}

// [rows][16] to significands and exponents as [16][rows].
Numbers decode(const std::vector<uint16_t>& elements, unsigned rows, const Format& format) {
  Numbers numbers;
  numbers.significands.resize(elements.size());
  numbers.exponents.resize(elements.size());
  numbers.is_special.assign(rows, false);
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned k = 0; k < kDepth; ++k) {
      const uint16_t bits = elements[row * kDepth + k];
      const int exponent = bits >> format.places & format.special;
      const int mantissa = bits & ((1 << format.places) - 1);
      const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.places;
      if (exponent == format.special) numbers.is_special[row] = true;
      const size_t at = size_t{k} * rows + row;
      numbers.significands[at] = bits >> 15 != 0 ? -whole : whole;
      numbers.exponents[at] = whole == 0 ? kNoExponent : std::max(exponent, 1) - format.bias;
    }
  }
  return numbers;
}

// The 16 products of each of `n` sums, which are independent. `largest` comes with the exponents of
// the sums so far, and goes with those of all terms; `total` is in units of 2^(largest - 25).
KWEMU_VECTORS void add_products(const int32_t* lhs, const int32_t* lhs_exponents,
                                const int32_t* rhs, const int32_t* rhs_exponents, unsigned n,
                                int shift, int32_t* largest, int64_t* total) {
  for (unsigned k = 0; k < kDepth; ++k) {
    const int32_t* exponents = rhs_exponents + k * n;
    const int32_t mine = lhs_exponents[k];
    for (unsigned i = 0; i < n; ++i) largest[i] = std::max(largest[i], mine + exponents[i]);
  }
  for (unsigned half = 0; half < kDepth; half += kDepth / 2) {
    int32_t sums[kMostColumns] = {};  // of eight terms below 2^28
    for (unsigned k = half; k < half + kDepth / 2; ++k) {
      const int32_t factor = lhs[k], mine = lhs_exponents[k];
      const int32_t* factors = rhs + k * n;
      const int32_t* exponents = rhs_exponents + k * n;
      for (unsigned i = 0; i < n; ++i) {
        const int32_t product = factor * factors[i];
        const int32_t below = std::min(largest[i] - (mine + exponents[i]), 31);
        const auto magnitude = static_cast<uint32_t>(product < 0 ? -product : product) << shift;
        const auto kept = static_cast<int32_t>(magnitude >> below);
        sums[i] += product < 0 ? -kept : kept;
      }
    }
    for (unsigned i = 0; i < n; ++i) total[i] += sums[i];
  }
}

// total * 2^(exponent - 25), truncated.
float truncated(int64_t total, int exponent) {
  if (total == 0) return 0.0f;
  const uint32_t sign = total < 0 ? 0x80000000u : 0;
  const auto magnitude = static_cast<uint64_t>(total < 0 ? -total : total);
  const int top = 63 - __builtin_clzll(magnitude);
  const int power = std::max(top + exponent - kPlaces, kFp32Least);
  if (power > kFp32Bias) return sign != 0 ? -INFINITY : INFINITY;
  const int shift = exponent - kPlaces - (power - kFp32Places);
  const uint64_t whole = shift >= 0 ? magnitude << shift : shift > -64 ? magnitude >> -shift : 0;
  // The leading one of a normal number carries into the exponent.
  const auto bits =
      static_cast<uint32_t>(whole) + (static_cast<uint32_t>(power - kFp32Least) << kFp32Places);
  return __builtin_bit_cast(float, sign | bits);
}

void split_sum(float sum, int32_t& exponent, int64_t& significand) {
  const auto bits = __builtin_bit_cast(uint32_t, sum);
  const int field = static_cast<int>(bits >> kFp32Places & 0xff);
  const int64_t mantissa = bits & 0x7fffff;
  const int64_t whole = field == 0 ? mantissa : mantissa | 0x800000;
  significand = bits >> 31 != 0 ? -whole : whole;
  exponent = whole == 0 ? kNoExponent : std::max(field, 1) - kFp32Bias;
}

// Infinities and NaNs among the terms: what IEEE says of their sum.
float special_sum(const ProductTerms& terms, unsigned row, unsigned column, float sum) {
  double total = terms.accumulates ? sum : 0.0;
  for (unsigned k = 0; k < kDepth; ++k) {
    const double product =
        static_cast<double>(value_of(terms.lhs[row * kDepth + k], terms.is_bfloat16)) *
        value_of(terms.rhs[column * kDepth + k], terms.is_bfloat16);
    total += terms.is_negated ? -product : product;
  }
  return std::isnan(total) ? __builtin_bit_cast(float, kNan) : static_cast<float>(total);
}

}  // namespace

void multiply_tile(const ProductTerms& terms, float* sums) {
  const unsigned n = terms.n;
  const Format& format = terms.is_bfloat16 ? kBfloat16 : kHalf;
  const int shift = kPlaces - 2 * format.places;
  const Numbers lhs = decode(terms.lhs, kRows, format);
  const Numbers rhs = decode(terms.rhs, n, format);
  int32_t largest[kMostColumns];
  int64_t total[kMostColumns];
  for (unsigned row = 0; row < kRows; ++row) {
    int32_t factors[kDepth], exponents[kDepth];
    for (unsigned k = 0; k < kDepth; ++k) {
      factors[k] = (terms.is_negated ? -1 : 1) * lhs.significands[k * kRows + row];
      exponents[k] = lhs.exponents[k * kRows + row];
    }
    float* const line = sums + size_t{row} * n;
    int32_t own[kMostColumns];
    int64_t before[kMostColumns];
    for (unsigned i = 0; i < n; ++i) {
      split_sum(terms.accumulates ? line[i] : 0.0f, own[i], before[i]);
      largest[i] = own[i];
      total[i] = 0;
    }
    add_products(factors, exponents, rhs.significands.data(), rhs.exponents.data(), n, shift,
                 largest, total);
    for (unsigned i = 0; i < n; ++i) {
      const bool special = lhs.is_special[row] || rhs.is_special[i] ||
                           (terms.accumulates && !std::isfinite(line[i]));
      if (special) {
        line[i] = special_sum(terms, row, i, line[i]);
        continue;
      }
      const int below = std::min(largest[i] - own[i], 63);
      const int64_t kept = (std::abs(before[i]) << (kPlaces - kFp32Places)) >> below;
      line[i] = truncated(total[i] + (before[i] < 0 ? -kept : kept), largest[i]);
    }
  }
}

}  // namespace kwemu
