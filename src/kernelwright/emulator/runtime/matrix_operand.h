// A matrix in shared memory as wgmma reads it, 16 bits of it at a time (along K, TF32 is two of
// these): PTX ISA, "Matrix descriptor" and "Strides".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kwemu {

struct MatrixOperand {
  uint64_t descriptor = 0;
  bool is_transposed = false;  // contiguous along M or N, not K
  bool is_negated = false;

  static constexpr unsigned kDepth = 16;  // of K

  bool operator==(const MatrixOperand&) const = default;
  unsigned base_offset() const { return descriptor >> 49 & 7; }
  // Where 8 neighbours lie, 16 bytes: number `chunk` of those of an operand with `rows` along M or
  // N. Of rows that are contiguous along K there are two for each row; of others, `rows` / 8 for
  // each of the 16 of K.
  size_t chunk_offset(unsigned chunk, unsigned rows) const;
  // Its elements as [row][16] from the shared memory at `memory`, and where each chunk lies.
  void read(const char* memory, unsigned rows, std::vector<uint16_t>& elements,
            std::vector<size_t>& chunks) const;

 private:
  // Bytes from the start to eight neighbours, before the swizzle.
  size_t along_k(unsigned row, unsigned k) const;
  size_t along_rows(unsigned row, unsigned k) const;
  size_t start() const { return (descriptor & 0x3fff) << 4; }
  size_t leading_bytes() const { return (descriptor >> 16 & 0x3fff) << 4; }
  size_t stride_bytes() const { return (descriptor >> 32 & 0x3fff) << 4; }
  // Of the swizzle: 16 for none.
  unsigned span_bytes() const;
};

}  // namespace kwemu
