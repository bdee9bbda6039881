#pragma once
// What happens to the sums of a matrix product between registers and memory.

#include <utility>

#include "gemm_problem.cuh"
#include "located.cuh"
#include "pack.cuh"
#include "vector.cuh"

// The first element of an operand in this batch.
template <class T>
__device__ __forceinline__ T* batch_base(const MatrixOperand& operand,
                                         const int64_t (&index)[MAX_BATCH_RANK], int rank) {
  int64_t offset = 0;
  if (rank == 0) return static_cast<T*>(operand.data);
#pragma unroll
  for (int d = 0; d < MAX_BATCH_RANK; ++d) {
    if (d < rank) offset += index[d] * operand.batch_strides[d];
  }
  return static_cast<T*>(operand.data) + offset;
}

// WIDTH neighbouring columns of an extra operand, of which the first `valid` exist.
template <class T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> load_columns(const T* address,
                                                         const MatrixOperand& operand, int valid) {
  if (operand.has_column_vectors) return load_constant_vector<WIDTH>(address);
  Vector<T, WIDTH> values = {};
#pragma unroll
  for (int i = 0; i < WIDTH; ++i) {
    if (i < valid) values.element[i] = load_constant(address + i * operand.column_stride);
  }
  return values;
}

// Applies the epilogue to one run of a thread's sums and stores it.
template <class T, class Out, class Epilogue, class... Extra>
class GemmEpilogue {
 public:
  using Problem = Gemm<T, Out, Epilogue, Extra...>;
  template <int WIDTH>
  using Sums = Vector<compute_t<T>, WIDTH>;

  __device__ __forceinline__ GemmEpilogue(const Problem& problem,
                                          const int64_t (&batch)[MAX_BATCH_RANK])
      : problem_(problem),
        out_(batch_base<Out>(problem.operands[Problem::OUT], batch, problem.batch_rank)) {
    set_extras(batch, Indices());
  }

  // Columns [column, column + WIDTH) of a row, WIDTH at most COLUMN_VECTOR; those beyond N do not
  // exist.
  template <int WIDTH>
  __device__ __forceinline__ void apply(const Sums<WIDTH>& sums, int64_t row,
                                        int64_t column) const {
    static_assert(WIDTH <= Problem::COLUMN_VECTOR, "only so many columns are known to be aligned");
    if (row < problem_.m && column < problem_.n) apply_valid(sums, row, column);
  }

  // The results for the same columns, of which only those that exist mean anything.
  template <int WIDTH>
  __device__ __forceinline__ Vector<Out, WIDTH> results(const Sums<WIDTH>& sums, int64_t row,
                                                        int64_t column) const {
    static_assert(WIDTH <= Problem::COLUMN_VECTOR, "only so many columns are known to be aligned");
    if (row >= problem_.m || column >= problem_.n) return {};
    return results(sums, row, column, Indices());
  }

  // An element of the result, and those of the extras that join it.
  struct Place {
    int row, column;  // of products whose sizes fit
    Out* out;
    Pack<const Extra*...> extras;
  };

  __device__ __forceinline__ Place place(int row, int column) const {
    return place(row, column, Indices());
  }

  // Whether out and all extras have column vectors.
  __device__ __forceinline__ bool has_vectors() const { return has_vectors(Indices()); }

  // WIDTH columns of the extras, `rows` below and from `columns` after `place`: all exist, in
  // column vectors.
  template <int WIDTH>
  using Joining = Pack<Vector<Extra, WIDTH>...>;
  template <int WIDTH>
  __device__ __forceinline__ Joining<WIDTH> load_inside(const Place& place, int rows,
                                                        int columns) const {
    static_assert(WIDTH <= Problem::COLUMN_VECTOR, "only so many columns are known to be aligned");
    return load_inside<WIDTH>(place, rows, columns, Indices());
  }

  // The same columns of the result.
  template <int WIDTH>
  __device__ __forceinline__ void apply_inside(const Sums<WIDTH>& sums,
                                               const Joining<WIDTH>& joining, const Place& place,
                                               int rows, int columns) const {
    store_vector(place.out + rows * problem_.operands[Problem::OUT].row_stride + columns,
                 results_inside(sums, joining, place, rows, columns));
  }

  // They are not stored.
  template <int WIDTH>
  __device__ __forceinline__ Vector<Out, WIDTH> results_inside(const Sums<WIDTH>& sums,
                                                               const Joining<WIDTH>& joining,
                                                               const Place& place, int rows,
                                                               int columns) const {
    return compute<WIDTH>(sums, place.row + rows, place.column + columns, joining, Indices());
  }

 private:
  using Indices = std::index_sequence_for<Extra...>;

  __device__ __forceinline__ static int64_t offset(const MatrixOperand& operand, int64_t row,
                                                   int64_t column) {
    return row * operand.row_stride + column * operand.column_stride;
  }

  template <size_t... I>
  __device__ __forceinline__ void set_extras(const int64_t (&batch)[MAX_BATCH_RANK],
                                             std::index_sequence<I...>) {
    ((get<I>(extras_) = batch_base<const Extra>(problem_.operands[Problem::FIRST_EXTRA + I], batch,
                                                problem_.batch_rank)),
     ...);
  }

  __device__ __forceinline__ int valid(int64_t column, int width) const {
    return problem_.n - column < width ? static_cast<int>(problem_.n - column) : width;
  }

  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> results(const Sums<WIDTH>& sums, int64_t row,
                                                        int64_t column,
                                                        std::index_sequence<I...>) const {
    const MatrixOperand* operands = problem_.operands;
    const Pack<Vector<Extra, WIDTH>...> extras = {{{load_columns<Extra, WIDTH>(
        get<I>(extras_) + offset(operands[Problem::FIRST_EXTRA + I], row, column),
        operands[Problem::FIRST_EXTRA + I], valid(column, WIDTH))}...}};
    return compute<WIDTH>(sums, row, column, extras, Indices());
  }

  template <int WIDTH>
  __device__ __forceinline__ void apply_valid(const Sums<WIDTH>& sums, int64_t row,
                                              int64_t column) const {
    const MatrixOperand* operands = problem_.operands;
    const Vector<Out, WIDTH> results = this->results(sums, row, column, Indices());
    Out* address = out_ + offset(operands[Problem::OUT], row, column);
    if (operands[Problem::OUT].has_column_vectors) {
      store_vector(address, results);
    } else {
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) {
        if (i < valid(column, WIDTH))
          address[i * operands[Problem::OUT].column_stride] = results.element[i];
      }
    }
  }

  template <size_t... I>
  __device__ __forceinline__ Place place(int row, int column, std::index_sequence<I...>) const {
    const MatrixOperand* operands = problem_.operands;
    return {row,
            column,
            out_ + offset(operands[Problem::OUT], row, column),
            {{{get<I>(extras_) + offset(operands[Problem::FIRST_EXTRA + I], row, column)}...}}};
  }

  template <size_t... I>
  __device__ __forceinline__ bool has_vectors(std::index_sequence<I...>) const {
    const MatrixOperand* operands = problem_.operands;
    return (operands[Problem::OUT].has_column_vectors && ... &&
            operands[Problem::FIRST_EXTRA + I].has_column_vectors);
  }

  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Joining<WIDTH> load_inside(const Place& place, int rows, int columns,
                                                        std::index_sequence<I...>) const {
    return {{{load_constant_vector<WIDTH>(
        get<I>(place.extras) + rows * problem_.operands[Problem::FIRST_EXTRA + I].row_stride +
        columns)}...}};
  }

  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Vector<Out, WIDTH> compute(const Sums<WIDTH>& sums, int64_t row,
                                                        int64_t column,
                                                        const Pack<Vector<Extra, WIDTH>...>& extras,
                                                        std::index_sequence<I...>) const {
    Vector<Out, WIDTH> results;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      const int64_t at = column + i;
      const bool turned = problem_.is_transposed;
      results.element[i] =
          narrow<Out>(apply_at(problem_.epilogue, turned ? at : row, turned ? row : at,
                               sums.element[i], widen(get<I>(extras).element[i])...));
    }
    return results;
  }

  const Problem& problem_;
  Out* out_;
  Pack<const Extra*...> extras_;
};
