#pragma once
// What joins the sums of a matrix product: where it is, and how it comes.

#include "fetched.cuh"
#include "gemm_facts.cuh"
#include "gemm_problem.cuh"
#include "pack.cuh"
#include "vector.cuh"

// The first element of an operand in this batch.
template <class T, class Problem>
__device__ __forceinline__ T* batch_base(const Problem& problem, int operand,
                                         const int64_t (&index)[MAX_BATCH_RANK]) {
  const MatrixOperand& matrix = problem.operands[operand];
  if constexpr (ANY_BATCHES) {
    int64_t offset = 0;
    if (problem.batch_rank == 0) return static_cast<T*>(matrix.data);
#pragma unroll
    for (int d = 0; d < MAX_BATCH_RANK; ++d) {
      if (ANY_TOGETHER && d == 0 && problem.together > 1) {
        offset = matrix.apart[index[0]];
      } else if (d < problem.batch_rank) {
        offset += index[d] * matrix.batch_strides[d];
      }
    }
    return static_cast<T*>(matrix.data) + offset;
  }
  return static_cast<T*>(matrix.data);
}

// The value that an extra operand has in all columns of a row.
template <class T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> repeated(T value) {
  Vector<T, WIDTH> values;
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) values.element[i] = value;
  return values;
}

// WIDTH columns of an extra operand, from `column` of this row on: all exist, in vectors where they
// differ.
template <class T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> load_inner_columns(const T* row,
                                                               const MatrixOperand& operand,
                                                               int column) {
  if constexpr (ANY_REPEATED) {
    if (operand.column_stride == 0) return repeated<T, WIDTH>(load_constant(row));
  }
  return load_constant_vector<WIDTH>(row + column);
}

// The number of the lowest bit; 0 where there is none.
constexpr int first_bit(unsigned bits) {
  return bits == 0 || bits % 2 != 0 ? 0 : 1 + first_bit(bits / 2);
}

// What is known of the extras where the text is compiled: a bit for each that has one value for a
// row of the result, for a column, or else its own for each column of a row. There is none for
// those that may have one value for all.
template <unsigned ROW, unsigned COLUMN, unsigned PLACE>
struct JoiningMasks {
  static constexpr unsigned BY_ROW = ROW, BY_COLUMN = COLUMN, BY_PLACE = PLACE;
  static constexpr int PLACED = first_bit(PLACE);
};

// WIDTH columns of what is not needed yet, of which `row` has one or all.
template <class T, int WIDTH, bool HAS_COLUMNS>
__device__ __forceinline__ Fetched<T, WIDTH> fetch_columns(const T* row,
                                                           const MatrixOperand& operand,
                                                           int column) {
  if constexpr (WIDTH == 1) return Fetched<T, 1>::of(row);
  if constexpr (ANY_REPEATED && !HAS_COLUMNS) {
    if (operand.column_stride == 0) return Fetched<T, WIDTH>::repeated(row);
  }
  return Fetched<T, WIDTH>::of(row + column);
}

// WIDTH neighbouring columns of an extra operand, of which the first `valid` exist.
template <class T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> load_columns(const T* address,
                                                         const MatrixOperand& operand, int valid) {
  if constexpr (ANY_REPEATED) {
    if (operand.column_stride == 0) return repeated<T, WIDTH>(load_constant(address));
  }
  if (operand.has_column_vectors) return load_constant_vector<WIDTH>(address);
  Vector<T, WIDTH> values = {};
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    if (i < valid) values.element[i] = load_constant(address + i * operand.column_stride);
  }
  return values;
}

// An element of the result, and those of the extras that join it.
template <class Out, class... Extra>
struct ProductPlace {
  int row, column;  // of products whose sizes fit
  Out* out;
  [[maybe_unused]] Pack<const Extra*...> joining = {};
};
