#pragma once
// Where in the matrices of a contiguous result an element stands.

#include "divide.cuh"

// The matrices of a contiguous result, one after the other.
struct Matrices {
  const void* first;
  int64_t rows, columns;
  bool are_short;  // the divisors hold: every element has an index below 2^31
  Divisor by_rows, by_columns;
};

// Where in its matrix an element stands, and then each of its neighbours.
struct MatrixPlace {
  int64_t row, column;

  template <class Out>
  __device__ __forceinline__ MatrixPlace(const Matrices& matrices, const Out* address) {
    const int64_t index = address - static_cast<const Out*>(matrices.first);
    if (matrices.are_short) {
      const uint32_t element = static_cast<uint32_t>(index);
      const uint32_t all_rows = matrices.by_columns.quotient(element);
      const uint32_t above = matrices.by_rows.quotient(all_rows);
      row = all_rows - above * matrices.by_rows.value();
      column = element - all_rows * matrices.by_columns.value();
    } else {
      const int64_t all_rows = index / matrices.columns;
      row = all_rows % matrices.rows;
      column = index - all_rows * matrices.columns;
    }
  }

  __device__ __forceinline__ void step(const Matrices& matrices) {
    if (++column < matrices.columns) return;
    column = 0;
    if (++row == matrices.rows) row = 0;
  }
};
