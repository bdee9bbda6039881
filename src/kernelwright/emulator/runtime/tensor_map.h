// What the tensor memory accelerator knows of a tensor: the content of a CUtensorMap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kwemu {

struct TensorMap {
  static constexpr uint32_t kMagic = 0x6d746b77;
  static constexpr unsigned kMaxRank = 5;

  uint32_t magic;
  uint8_t rank;
  uint8_t element_bytes;
  uint8_t span_bytes;  // of the swizzle: 16 (none), 32, 64, 128
  uint8_t fills_nan;
  uint64_t address;
  uint64_t sizes[kMaxRank];        // elements, innermost first
  uint64_t strides[kMaxRank - 1];  // bytes
  uint16_t box[kMaxRank];          // elements; of im2col: channels, and pixels
  uint16_t type;                   // CUtensorMapDataType
  uint8_t is_im2col;
  uint8_t steps[kMaxRank];  // of im2col, from one pixel to the next; 1 of channels and batch
  // Of im2col: the corners of the bounding box for W, H, D, from the first and the last element.
  int16_t lower[kMaxRank - 2], upper[kMaxRank - 2];

  size_t row_bytes() const { return size_t{box[0]} * element_bytes; }
  size_t rows() const;
  unsigned spatial() const { return rank - 2; }  // dimensions of im2col's bounding box
  size_t box_bytes() const { return rows() * row_bytes(); }
  bool is_real() const;     // floating-point
  bool is_rounded() const;  // fp32 numbers that arrive as TF32
};

// Shared memory's byte `offset` under a swizzle over `span_bytes`: chunks of 16 bytes change places
// with each other by the number of the 128 bytes that they lie in.
constexpr size_t swizzled(size_t offset, unsigned span_bytes) {
  const size_t chunks = span_bytes / 16;
  return offset ^ ((offset >> 7 & (chunks - 1)) << 4);
}

}  // namespace kwemu
