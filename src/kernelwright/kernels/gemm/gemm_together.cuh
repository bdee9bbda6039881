#pragma once
// Several products of one left factor as one batched product: the factor is split, and read, once
// for all. Each has a right factor, extras and a result of its own, wherever they are.

#include "gemm_problem.cuh"

// From the operand of one product to that of another.
inline int64_t bytes_between(const MatrixOperand& first, const MatrixOperand& other) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(other.data) -
                              reinterpret_cast<intptr_t>(first.data));
}

// Whether two products differ only in where right factor, extras and result are, and the right
// factor has no batches.
template <class Problem>
bool are_alike(const Problem& first, const Problem& other) {
  bool alike = first.m == other.m && first.n == other.n && first.k == other.k &&
               first.batch_rank == other.batch_rank && first.lhs().data == other.lhs().data;
  for (int o = 0; o < Problem::OPERANDS; ++o) {
    const MatrixOperand &own = first.operands[o], &its = other.operands[o];
    alike = alike && own.row_stride == its.row_stride && own.column_stride == its.column_stride &&
            bytes_between(own, its) % Problem::ELEMENT_BYTES[o] == 0;
    for (int d = 0; d < first.batch_rank; ++d) {
      alike = alike && first.batch_sizes[d] == other.batch_sizes[d] &&
              own.batch_strides[d] == its.batch_strides[d] &&
              (o != Problem::RHS || own.batch_strides[d] == 0);
    }
  }
  return alike;
}

// The products as one, of which the first batch dimension is the number of a product.
template <class Problem, int COUNT>
Problem joined(const Problem (&each)[COUNT]) {
  static_assert(COUNT <= MOST_TOGETHER, "the header has a scale for each right factor");
  Problem whole = each[0];
  const int rank = whole.batch_rank;
  for (int d = rank; d > 0; --d) whole.batch_sizes[d] = whole.batch_sizes[d - 1];
  whole.batch_sizes[0] = COUNT;
  whole.batch_rank = rank + 1;
  whole.batches *= COUNT;
  whole.together = COUNT;
  for (int o = 0; o < Problem::OPERANDS; ++o) {
    MatrixOperand& own = whole.operands[o];
    for (int d = rank; d > 0; --d) own.batch_strides[d] = own.batch_strides[d - 1];
    // All read one lhs. For the others this only says that they differ: `apart` says by how much.
    own.batch_strides[0] = o == Problem::LHS ? 0 : 1;
    for (int p = 0; p < COUNT; ++p) {
      const MatrixOperand& its = each[p].operands[o];
      own.apart[p] = bytes_between(each[0].operands[o], its) / Problem::ELEMENT_BYTES[o];
      own.has_column_vectors = own.has_column_vectors && its.has_column_vectors;
      own.has_wide_vectors = own.has_wide_vectors && its.has_wide_vectors;
    }
  }
  return whole;
}

// Calls visit(problem), which returns a status, for all products as one, or for one after the other
// where their operands do not lie alike.
template <class Problem, int COUNT, class Visit>
cudaError_t visit_together(const Problem (&each)[COUNT], const Visit& visit) {
  bool alike = each[0].batch_rank < MAX_BATCH_RANK;
  for (const Problem& other : each) alike = alike && are_alike(each[0], other);
  if (alike) return visit(joined(each));
  cudaError_t status = cudaSuccess;
  for (const Problem& one : each) {
    if (status == cudaSuccess) status = visit(one);
  }
  return status;
}

// Bytes of the most that one of them needs, by bytes_of(problem).
template <class Problem, int COUNT, class BytesOf>
int64_t most_bytes(const Problem (&each)[COUNT], const BytesOf& bytes_of) {
  int64_t bytes = 0;
  static_cast<void>(visit_together(each, [&](const Problem& problem) {
    const int64_t own = bytes_of(problem);
    bytes = own > bytes ? own : bytes;
    return cudaSuccess;
  }));
  return bytes;
}
