#pragma once
// Where an element of a contiguous result stands, for expressions that use its coordinates.

#include "launch.cuh"

// The sizes of a result and how far apart neighbours along each dimension lie.
struct ResultShape {
  int rank;
  int64_t sizes[MAX_RANK], strides[MAX_RANK];

  static ResultShape of(const Tensor& result) {
    ResultShape shape = {result.rank, {}, {}};
    int64_t stride = 1;
    for (int d = result.rank - 1; d >= 0; --d) {
      shape.sizes[d] = result.sizes[d];
      shape.strides[d] = stride;
      stride *= result.sizes[d];
    }
    return shape;
  }
};

// An element, found by its index in row-major order. Divides only when it is asked.
struct ResultPlace {
  const ResultShape& shape;
  int64_t index;

  // 1: the column, 2: the row, and so on from the last dimension.
  __device__ __forceinline__ int64_t from_end(int dimension) const {
    const int d = shape.rank - dimension;
    // Division of 64 bits takes several times as long.
    constexpr int64_t SHORT = 0xffffffff;
    if (index <= SHORT && shape.strides[d] <= SHORT && shape.sizes[d] <= SHORT) {
      const uint32_t above = static_cast<uint32_t>(index) / static_cast<uint32_t>(shape.strides[d]);
      return above % static_cast<uint32_t>(shape.sizes[d]);
    }
    return index / shape.strides[d] % shape.sizes[d];
  }
};
