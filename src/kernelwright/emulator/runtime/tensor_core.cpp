#include "tensor_core.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "vectors.h"

namespace kwemu {
namespace {

constexpr unsigned kRows = 64, kMostDepth = 16, kMostColumns = 256;
constexpr unsigned kAtOnce = 8;     // products whose sum fits 32 bits
constexpr int kPlaces = 25;         // binary places that terms keep
constexpr int kNoExponent = -4096;  // of zero: below all others
constexpr int kFp32Places = 23, kFp32Bias = 127, kFp32Least = -126;
constexpr uint32_t kNan = 0x7fffffff;

// Numbers as significand * 2^(exponent - places).
struct Format {
  int places;
  int bias;
  int special;     // exponent bits of infinities and NaNs
  unsigned depth;  // of K, of one instruction

  int sign_place() const { return special == 31 ? places + 5 : places + 8; }
};
constexpr Format kFormats[] = {{10, 15, 31, 16}, {7, 127, 255, 16}, {10, 127, 255, 8}};

Format format_of(ProductElement element) { return kFormats[static_cast<int>(element)]; }

// Number `at` of a matrix: of TF32 the bits that the tensor core looks at.
uint32_t bits_at(const std::vector<uint16_t>& elements, size_t at, const Format& format) {
  constexpr int kIgnored = 13;
  if (format.depth == kMostDepth) return elements[at];
  return (elements[2 * at] | static_cast<uint32_t>(elements[2 * at + 1]) << 16) >> kIgnored;
}

struct Numbers {
  std::vector<int32_t> significands, exponents;
  std::vector<bool> is_special;  // of each row
  bool has_special = false;
};

// One row of sums, while products are added to each.
struct Row {
  int32_t own[kMostColumns], before[kMostColumns];  // exponents and significands of the sums so far
  int32_t largest[kMostColumns];                    // exponents of all terms
  double total[kMostColumns];                       // in units of 2^(largest - 25): whole numbers
  float sums[kMostColumns];
};

float value_of(uint32_t bits, const Format& format) {
  const auto exponent = static_cast<int>(bits >> format.places) & format.special;
  const auto mantissa = static_cast<int>(bits & ((1u << format.places) - 1));
  const float sign = bits >> format.sign_place() != 0 ? -1.0f : 1.0f;
  if (exponent == format.special) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  }
  const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.places;
  return std::ldexp(sign * static_cast<float>(whole),
                    std::max(exponent, 1) - format.bias - format.places);
}

// [rows][depth] to significands and exponents as [depth][rows].
Numbers decode(const std::vector<uint16_t>& elements, unsigned rows, const Format& format) {
  Numbers numbers;
  numbers.significands.resize(size_t{rows} * format.depth);
  numbers.exponents.resize(size_t{rows} * format.depth);
  numbers.is_special.assign(rows, false);
  for (unsigned row = 0; row < rows; ++row) {
    for (unsigned k = 0; k < format.depth; ++k) {
      const uint32_t bits = bits_at(elements, size_t{row} * format.depth + k, format);
      const auto exponent = static_cast<int>(bits >> format.places) & format.special;
      const auto mantissa = static_cast<int>(bits & ((1u << format.places) - 1));
      const int whole = exponent == 0 ? mantissa : mantissa | 1 << format.places;
      if (exponent == format.special) numbers.is_special[row] = numbers.has_special = true;
      const size_t at = size_t{k} * rows + row;
      numbers.significands[at] = bits >> format.sign_place() != 0 ? -whole : whole;
      numbers.exponents[at] = whole == 0 ? kNoExponent : std::max(exponent, 1) - format.bias;
    }
  }
  return numbers;
}

// Significands and exponents of `n` sums. Whether all are finite.
KWEMU_VECTORS bool split_sums(const float* sums, unsigned n, Row& row) {
  int32_t most = 0;
  for (unsigned i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(int32_t, sums[i]);
    const int32_t field = bits >> kFp32Places & 0xff;
    const int32_t whole = (bits & 0x7fffff) | (field == 0 ? 0 : 0x800000);
    row.before[i] = bits < 0 ? -whole : whole;
    row.own[i] = whole == 0 ? kNoExponent : std::max(field, 1) - kFp32Bias;
    row.largest[i] = row.own[i];
    row.total[i] = 0;
    most = std::max(most, field);
  }
  return most < 255;
}

// The `depth` products of each of `n` sums, which are independent.
KWEMU_VECTORS void add_products(const int32_t* lhs, const int32_t* lhs_exponents,
                                const int32_t* rhs, const int32_t* rhs_exponents, unsigned n,
                                unsigned depth, int shift, Row& row) {
  int32_t* const largest = row.largest;
  for (unsigned k = 0; k < depth; ++k) {
    const int32_t* exponents = rhs_exponents + k * n;
    const int32_t mine = lhs_exponents[k];
    for (unsigned i = 0; i < n; ++i) largest[i] = std::max(largest[i], mine + exponents[i]);
  }
  for (unsigned first = 0; first < depth; first += kAtOnce) {
    int32_t sums[kMostColumns] = {};  // of terms below 2^28
    for (unsigned k = first; k < first + kAtOnce; ++k) {
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
    for (unsigned i = 0; i < n; ++i) row.total[i] += sums[i];
  }
}

// The sums so far join the products, and all of it is truncated to normal numbers of fp32, of which
// doubles hold more than enough. Whether a result is smaller than those are.
KWEMU_VECTORS bool join_sums(unsigned n, Row& row) {
  constexpr int kDoublePlaces = 52, kDoubleBias = 1023, kDoubleLeast = -1000;
  constexpr uint64_t kKept = ~uint64_t{0} << (kDoublePlaces - kFp32Places);
  constexpr int64_t kLeastNormal = __builtin_bit_cast(int64_t, 0x1p-126);
  int64_t small = 0;  // negative where one is between 0 and that
  for (unsigned i = 0; i < n; ++i) {
    const int32_t below = std::min(row.largest[i] - row.own[i], 31);
    const int32_t before = row.before[i];
    const int32_t sign = before >> 31;  // all ones or none: branches make no vectors
    const int32_t kept = ((before ^ sign) - sign) << (kPlaces - kFp32Places) >> below;
    row.total[i] += (kept ^ sign) - sign;
    const int64_t exponent = std::max(row.largest[i], kDoubleLeast) - kPlaces + kDoubleBias;
    const auto unit = __builtin_bit_cast(double, exponent << kDoublePlaces);
    const uint64_t bits = __builtin_bit_cast(uint64_t, row.total[i]) & kKept;
    const double sum = __builtin_bit_cast(double, bits) * unit;
    const int64_t size = __builtin_bit_cast(int64_t, sum) & std::numeric_limits<int64_t>::max();
    small |= (size - kLeastNormal) & -size;
    row.sums[i] = static_cast<float>(sum);
  }
  return small < 0;
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

// Infinities and NaNs among the terms: what IEEE says of their sum.
float special_sum(const ProductTerms& terms, unsigned row, unsigned column, float sum) {
  const Format format = format_of(terms.element);
  const auto value = [&](const std::vector<uint16_t>& elements, unsigned own, unsigned k) {
    return value_of(bits_at(elements, size_t{own} * format.depth + k, format), format);
  };
  double total = sum;
  for (unsigned k = 0; k < format.depth; ++k) {
    const double product = double{value(terms.lhs, row, k)} * value(terms.rhs, column, k);
    total += terms.is_negated ? -product : product;
  }
  return std::isnan(total) ? __builtin_bit_cast(float, kNan) : static_cast<float>(total);
}

}  // namespace

void multiply_tile(const ProductTerms& terms, float* sums) {
  const unsigned n = terms.n;
  const Format format = format_of(terms.element);
  const int shift = kPlaces - 2 * format.places;
  const Numbers lhs = decode(terms.lhs, kRows, format);
  const Numbers rhs = decode(terms.rhs, n, format);
  static const float kZeros[kMostColumns] = {};
  Row row;
  for (unsigned number = 0; number < kRows; ++number) {
    int32_t factors[kMostDepth], exponents[kMostDepth];
    for (unsigned k = 0; k < format.depth; ++k) {
      factors[k] = (terms.is_negated ? -1 : 1) * lhs.significands[k * kRows + number];
      exponents[k] = lhs.exponents[k * kRows + number];
    }
    float* const line = sums + size_t{number} * n;
    const float* const so_far = terms.accumulates ? line : kZeros;
    const bool is_finite = split_sums(so_far, n, row);
    add_products(factors, exponents, rhs.significands.data(), rhs.exponents.data(), n, format.depth,
                 shift, row);
    if (join_sums(n, row)) {
      for (unsigned i = 0; i < n; ++i) {
        row.sums[i] = truncated(static_cast<int64_t>(row.total[i]), row.largest[i]);
      }
    }
    if (!is_finite || lhs.is_special[number] || rhs.has_special) {
      for (unsigned i = 0; i < n; ++i) {
        const bool is_special =
            lhs.is_special[number] || rhs.is_special[i] || !std::isfinite(so_far[i]);
        if (is_special) row.sums[i] = special_sum(terms, number, i, so_far[i]);
      }
    }
    std::copy(row.sums, row.sums + n, line);
  }
}

}  // namespace kwemu
