#pragma once
// A batched matrix product as its kernels see it, and the host code that describes one.
//   out[b, m, n] = epilogue(sum over k of lhs[b, m, k] * rhs[b, k, n], extra0[b, m, n], ...)
// Every operand lies in memory as it will; the extras broadcast to out. Where one result of a row
// is kept (gemm_extreme.cuh), out has one column.

#include "convert.cuh"
#include "gemm_extreme.cuh"
#include "gemm_facts.cuh"
#include "gemm_rest.cuh"
#include "launch.cuh"
#include "located.cuh"

constexpr int MAX_BATCH_RANK = MAX_RANK - 2;

// One operand: strides in elements along its two matrix dimensions and each batch dimension.
struct MatrixOperand {
  void* data;
  int64_t row_stride;
  int64_t column_stride;
  [[maybe_unused]] int64_t batch_strides[MAX_BATCH_RANK] = {};
  // Of products together: elements from the first one's operand to that of each.
  [[maybe_unused]] int64_t apart[MOST_TOGETHER] = {};
  // Runs of COLUMN_VECTOR columns can be moved by one aligned access (out and extras).
  [[maybe_unused]] bool has_column_vectors = false;
  [[maybe_unused]] bool has_wide_vectors = false;  // of 16 bytes
};

// Which part of the result the epilogue sets to zero whatever the sums are: kernels may skip them.
enum class Triangle { NONE, UPPER, LOWER };  // the part that is kept

// T: both factors. Epilogue: a struct called with the sum and one value of each extra, 16-bit types
// already widened to float; its members are the run-time scalars.
template <class T, class Out, class Epilogue, class... Extra>
struct Gemm {
  using Factor = T;
  using Result = Out;
  static constexpr int OPERANDS = 3 + static_cast<int>(sizeof...(Extra));
  static constexpr int COLUMN_VECTOR = 16 / sizeof(compute_t<T>);
  static constexpr int64_t ELEMENT_BYTES[OPERANDS] = {sizeof(Out), sizeof(T), sizeof(T),
                                                      sizeof(Extra)...};
  static constexpr bool HAS_PATCHES = false;
  enum Role { OUT, LHS, RHS, FIRST_EXTRA };

  Epilogue epilogue;
  int64_t m, n, k;
  int64_t batches;
  int64_t first_tile;  // of this launch, set by the variant
  GemmRest rest;       // set by the variant
  MatrixOperand operands[OPERANDS];
  [[maybe_unused]] Triangle triangle = Triangle::NONE;
  // Of the first kept element: column - row >= diagonal (UPPER) or <= (LOWER).
  [[maybe_unused]] int64_t diagonal = 0;
  // Whether the kernel before wrote lhs as pairs, see gemm_paired.cuh: it is contiguous.
  [[maybe_unused]] bool lhs_in_pairs = false;
  // Whether the reference's own call rounds the factors to TF32.
  [[maybe_unused]] bool may_round = false;
  // Rows are those of the result's columns, for an epilogue that asks.
  [[maybe_unused]] bool is_transposed = false;
  [[maybe_unused]] int batch_rank = 0;
  [[maybe_unused]] int64_t batch_sizes[MAX_BATCH_RANK] = {};
  // Products of one left factor, of which the first batch dimension is the number; see
  // gemm_together.cuh.
  [[maybe_unused]] int together = 1;
  // Of the rows of all batches, where one result of each is kept; set by the launcher.
  [[maybe_unused]] uint32_t* keys = nullptr;
  // Moments of the columns of each part of the rows, if anybody wants them (column_moments.cuh).
  [[maybe_unused]] float* moments = nullptr;
  [[maybe_unused]] int64_t moment_pitch = 0;  // states from a part to the next one

  // out (..., M, N), lhs (..., M, K), rhs (..., K, N); each extra at most out's rank.
  template <class... Tensors>
  static Gemm describe(const Epilogue& epilogue, const Tensor& out, const Tensor& lhs,
                       const Tensor& rhs, const Tensors&... extras) {
    static_assert(sizeof...(Tensors) == sizeof...(Extra), "a product takes one tensor per extra");
    Gemm problem{epilogue};
    const Tensor tensors[OPERANDS] = {out, lhs, rhs, extras...};
    problem.m = out.sizes[out.rank - 2];
    problem.n = out.sizes[out.rank - 1];
    if constexpr (ANY_EXTREMES && Kept<Epilogue>::IS_ONE) problem.n = rhs.sizes[rhs.rank - 1];
    problem.k = lhs.sizes[lhs.rank - 1];
    problem.batches = 1;
    for (int o = 0; o < OPERANDS; ++o) {
      problem.operands[o].data = tensors[o].data;
      problem.operands[o].row_stride = broadcast_stride(tensors[o], -2);
      problem.operands[o].column_stride = broadcast_stride(tensors[o], -1);
    }
    if constexpr (ANY_BATCHES) {
      for (int d = -out.rank; d < -2; ++d) {
        problem.add_batch_dimension(out.sizes[out.rank + d], tensors, d);
      }
      if (!ANY_LOCATED || !IsLocated<Epilogue>::value) problem.fold_batch_into_rows();
    }
    if constexpr (ANY_EDGES || ANY_EXTRAS) problem.find_column_vectors();
    return problem;
  }

  // Which of the products together a batch belongs to.
  __host__ __device__ int product_of(int64_t batch) const {
    if constexpr (ANY_TOGETHER) {
      if (together > 1) return static_cast<int>(batch / (batches / together));
    }
    return 0;
  }

  // The product of the transposed factors in the other order: the same numbers in the same places.
  Gemm transposed() const {
    Gemm problem = *this;
    problem.m = n;
    problem.n = m;
    problem.is_transposed = !is_transposed;
    problem.operands[LHS] = operands[RHS];
    problem.operands[RHS] = operands[LHS];
    for (MatrixOperand& operand : problem.operands) {
      const int64_t row_stride = operand.row_stride;
      operand.row_stride = operand.column_stride;
      operand.column_stride = row_stride;
    }
    if (triangle != Triangle::NONE) {
      problem.triangle = triangle == Triangle::UPPER ? Triangle::LOWER : Triangle::UPPER;
      problem.diagonal = -diagonal;
    }
    problem.find_column_vectors();
    return problem;
  }

  // Whether the epilogue sets all of these rows and columns to zero.
  __device__ __forceinline__ bool is_zero(int64_t row, int64_t rows, int64_t column,
                                          int64_t columns) const {
    if constexpr (ANY_TRIANGLES) {
      if (triangle == Triangle::UPPER) return column + columns - 1 - row < diagonal;
      if (triangle == Triangle::LOWER) return column - (row + rows - 1) > diagonal;
    }
    return false;
  }

  bool has_results() const { return m > 0 && n > 0 && batches > 0; }
  __host__ __device__ const MatrixOperand& lhs() const { return operands[LHS]; }
  __host__ __device__ const MatrixOperand& rhs() const { return operands[RHS]; }

  // Whole runs of `width` elements along the dimension of stride 1 start at multiples of their
  // size.
  bool is_aligned(int operand, int64_t other_stride, int width) const {
    const MatrixOperand& matrix = operands[operand];
    const int64_t bytes = width * ELEMENT_BYTES[operand];
    const int64_t alignment = bytes < 16 ? bytes : 16;
    bool aligned = reinterpret_cast<uintptr_t>(matrix.data) % alignment == 0 &&
                   other_stride * ELEMENT_BYTES[operand] % alignment == 0;
    if constexpr (ANY_BATCHES) {
      for (int d = 0; d < batch_rank; ++d) {
        aligned = aligned && matrix.batch_strides[d] * ELEMENT_BYTES[operand] % alignment == 0;
      }
    }
    return aligned;
  }

 private:
  // Of dimension `dim` < 0 counted from the end; a missing one and one of size 1 never move.
  static int64_t broadcast_stride(const Tensor& tensor, int dim) {
    const int own = tensor.rank + dim;
    return own < 0 || tensor.sizes[own] == 1 ? 0 : tensor.strides[own];
  }

  void find_column_vectors() {
    for (int o = 0; o < OPERANDS; ++o) {
      operands[o].has_column_vectors = n % COLUMN_VECTOR == 0 && operands[o].column_stride == 1 &&
                                       is_aligned(o, operands[o].row_stride, COLUMN_VECTOR);
      if constexpr (ANY_SHORT) {
        const int wide = 16 / ELEMENT_BYTES[o];
        operands[o].has_wide_vectors = n % wide == 0 && operands[o].column_stride == 1 &&
                                       is_aligned(o, operands[o].row_stride, wide);
      }
    }
  }

  void add_batch_dimension(int64_t size, const Tensor (&tensors)[OPERANDS], int dim) {
    batches *= size;
    if (size == 1) return;
    bool merges = batch_rank > 0;
    for (int o = 0; o < OPERANDS && merges; ++o) {
      merges =
          operands[o].batch_strides[batch_rank - 1] == broadcast_stride(tensors[o], dim) * size;
    }
    if (!merges) batch_sizes[batch_rank++] = 1;
    batch_sizes[batch_rank - 1] *= size;
    for (int o = 0; o < OPERANDS; ++o) {
      operands[o].batch_strides[batch_rank - 1] = broadcast_stride(tensors[o], dim);
    }
  }

  // A batch that shares one right factor is one product with more rows, where memory allows.
  void fold_batch_into_rows() {
    while (batch_rank > 0 && operands[RHS].batch_strides[batch_rank - 1] == 0) {
      const int last = batch_rank - 1;
      for (int o = 0; o < OPERANDS; ++o) {
        if (o == RHS || m == 1) continue;
        if (operands[o].batch_strides[last] != operands[o].row_stride * m) return;
      }
      if (m == 1) {
        for (int o = 0; o < OPERANDS; ++o) {
          if (o != RHS) operands[o].row_stride = operands[o].batch_strides[last];
        }
      }
      m *= batch_sizes[last];
      batches /= batch_sizes[last] > 0 ? batch_sizes[last] : 1;
      --batch_rank;
    }
  }
};

// The index of batch number `batch` in each batch dimension.
template <class Problem>
__device__ __forceinline__ void split_batch(const Problem& problem, int64_t batch,
                                            int64_t (&index)[MAX_BATCH_RANK]) {
#pragma unroll
  for (int d = 0; d < MAX_BATCH_RANK; ++d) index[d] = 0;
  if constexpr (ANY_BATCHES) {
    if (problem.batch_rank == 0) return;
#pragma unroll
    for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
      if (d < problem.batch_rank) {
        index[d] = batch % problem.batch_sizes[d];
        batch /= problem.batch_sizes[d];
      }
    }
  }
}
