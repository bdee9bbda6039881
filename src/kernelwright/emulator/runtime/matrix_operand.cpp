#include "matrix_operand.h"

#include <cstring>

#include "shared_memory.h"
#include "tensor_map.h"

namespace kwemu {
namespace {

constexpr unsigned kNeighbours = 8;  // elements of 16 bytes
constexpr unsigned kEight = 8;       // rows of a core matrix

}  // namespace

unsigned MatrixOperand::span_bytes() const {
  constexpr unsigned kSpans[] = {16, 128, 64, 32};
  return kSpans[descriptor >> 62];
}

// Eight rows of `span` bytes each, then the next eight a stride away. Without swizzle the two
// halves of K are a leading stride apart.
size_t MatrixOperand::along_k(unsigned row, unsigned k) const {
  const unsigned span = span_bytes();
  const size_t column =
      span == 16 ? k / kNeighbours * leading_bytes() : k / kNeighbours * size_t{16};
  return row / kEight * stride_bytes() + row % kEight * size_t{span} + column;
}

// Eight of K with `span` bytes of neighbours each, then the next eight of K a stride away and the
// next neighbours a leading stride away. Without swizzle it is the other way round.
size_t MatrixOperand::along_rows(unsigned row, unsigned k) const {
  const unsigned span = span_bytes();
  const unsigned across = span / 2;  // elements in a row of the span
  const size_t next_rows = span == 16 ? stride_bytes() : leading_bytes();
  const size_t next_k = span == 16 ? leading_bytes() : stride_bytes();
  return row / across * next_rows + k / kEight * next_k + k % kEight * size_t{span} +
         row % across * size_t{2};
}

size_t MatrixOperand::chunk_offset(unsigned chunk, unsigned rows) const {
  const unsigned runs = rows / kNeighbours;
  const size_t offset = is_transposed ? along_rows(chunk % runs * kNeighbours, chunk / runs)
                                      : along_k(chunk / 2, chunk % 2 * kNeighbours);
  // The device has 18 bits of address.
  return swizzled((start() + offset) & 0x3ffff, span_bytes());
}

void MatrixOperand::read(const char* memory, unsigned rows, std::vector<uint16_t>& elements,
                         std::vector<size_t>& chunks) const {
  const unsigned count = rows * kDepth / kNeighbours;
  const unsigned runs = rows / kNeighbours;
  elements.resize(size_t{rows} * kDepth);
  chunks.resize(count);
  for (unsigned chunk = 0; chunk < count; ++chunk) {
    chunks[chunk] = chunk_offset(chunk, rows);
    uint16_t run[kNeighbours];
    std::memcpy(run, memory + chunks[chunk], sizeof run);
    if (is_transposed) {
      const unsigned row = chunk % runs * kNeighbours, k = chunk / runs;
      for (unsigned i = 0; i < kNeighbours; ++i) elements[(row + i) * kDepth + k] = run[i];
    } else {
      std::memcpy(&elements[chunk * size_t{kNeighbours}], run, sizeof run);
    }
  }
}

}  // namespace kwemu
