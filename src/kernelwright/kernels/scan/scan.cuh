#pragma once
// Running totals of an expression along one dimension of broadcast operands of any strides,
// alignment and size, and an expression of each of them: what all ways to compute them share.
//
// An operation is a struct whose members are the run-time scalars, with
//   Value                       type of the totals: float, double or int64_t
//   RUNNING                     sum or product
//   REVERSE, EXCLUSIVE          from the end; without the element itself
//   prologue(place, values...)  what is accumulated, from an element of each operand it reads
//   epilogue(place, total, values...)  the element of the result
// 16-bit operands arrive as float.

#include <type_traits>
#include <utility>

#include "convert.cuh"
#include "dependent_launch.cuh"
#include "index_space.cuh"
#include "pack.cuh"
#include "place.cuh"
#include "reads.cuh"
#include "running.cuh"
#include "vector.cuh"

template <class Operation, class Out, class Before, class After>
struct Scan;

template <class Operation_, class Out_, class... Before, class... After>
struct Scan<Operation_, Out_, Reads<Before...>, Reads<After...>> {
  using Operation = Operation_;
  using Out = Out_;
  using Value = typename Operation::Value;
  static constexpr Running RUNNING = Operation::RUNNING;
  using Part = Partial<RUNNING, Value>;
  static constexpr int OPERANDS = 1 + static_cast<int>(sizeof...(Before) + sizeof...(After));
  static constexpr int FIRST_AFTER = 1 + static_cast<int>(sizeof...(Before));
  __host__ __device__ static constexpr int64_t element_bytes(int operand) {
    constexpr int64_t BYTES[OPERANDS] = {sizeof(Out), sizeof(Before)..., sizeof(After)...};
    return BYTES[operand];
  }
  using BeforeIndices = std::index_sequence_for<Before...>;
  using AfterIndices = std::index_sequence_for<After...>;
  template <int N>
  using BeforeVectors = Pack<Vector<Before, N>...>;
  template <int N>
  using AfterVectors = Pack<Vector<After, N>...>;

  Operation operation;
  ResultShape shape;
  // Operand 0 is the result; steps are strides along the scanned dimension, in elements.
  char* data[OPERANDS];
  int64_t length;
  int64_t steps[OPERANDS];
  // What is left without the scanned dimension, merged where it is one in memory.
  int64_t rows;
  int row_rank;
  int64_t row_sizes[MAX_RANK];
  int64_t row_strides[MAX_RANK][OPERANDS];
  // Rows that few blocks would share are cut: segments of `segment_slots` vectors each, whose
  // totals another kernel has written (null where a row is one segment).
  int64_t segments, segment_slots;
  Part* totals;

  // `dim`: the scanned dimension of the result, counted from 0; `in`: a tensor for each operand
  // of the prologue, then of the epilogue.
  template <class... Tensors>
  static Scan describe(const Operation& operation, int dim, const Tensor& out,
                       const Tensors&... in) {
    static_assert(1 + sizeof...(Tensors) == OPERANDS, "one tensor for each operand");
    Scan scan = {};
    scan.operation = operation;
    scan.shape = ResultShape::of(out);
    scan.length = out.sizes[dim];
    scan.segments = 1;
    Tensor operands[OPERANDS] = {out, in...};
    for (int o = 0; o < OPERANDS; ++o) {
      scan.steps[o] = take_dimension(operands[o], dim - (out.rank - operands[o].rank));
    }
    const auto space = make_index_space(operands);
    scan.rows = space.count();
    scan.row_rank = space.rank;
    for (int o = 0; o < OPERANDS; ++o) scan.data[o] = space.data[o];
    for (int d = 0; d < space.rank; ++d) {
      scan.row_sizes[d] = space.sizes[d];
      for (int o = 0; o < OPERANDS; ++o) scan.row_strides[d][o] = space.strides[d][o];
    }
    return scan;
  }

  bool is_empty() const { return rows == 0 || length == 0; }

  // Offsets, in elements, of the first element of a row in each operand.
  __device__ __forceinline__ void locate(int64_t row, int64_t (&offsets)[OPERANDS]) const {
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) offsets[o] = 0;
    for (int d = row_rank - 1; d >= 0; --d) {
      const int64_t rest = d > 0 ? row / row_sizes[d] : 0, index = row - rest * row_sizes[d];
      row = rest;
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) offsets[o] += index * row_strides[d][o];
    }
  }

  __device__ __forceinline__ ResultPlace place(int64_t element) const { return {shape, element}; }

  // What is accumulated of N neighbours of the result, the first being number `element` in it.
  template <int N, size_t... AT>
  __device__ __forceinline__ void accumulated(Value (&values)[N], int64_t element,
                                              const BeforeVectors<N>& inputs,
                                              std::index_sequence<AT...>) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = operation.prologue(place(element + i), widen(get<AT>(inputs).element[i])...);
    }
  }

  template <int N, size_t... AT>
  __device__ __forceinline__ Vector<Out, N> results(const Value (&totals)[N], int64_t element,
                                                    const AfterVectors<N>& inputs,
                                                    std::index_sequence<AT...>) const {
    Vector<Out, N> result;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      result.element[i] = narrow<Out>(
          operation.epilogue(place(element + i), totals[i], widen(get<AT>(inputs).element[i])...));
    }
    return result;
  }

 private:
  // Removes a dimension, which an operand of lower rank may lack; returns its stride.
  static int64_t take_dimension(Tensor& tensor, int dim) {
    if (dim < 0) return 0;
    const int64_t stride = tensor.sizes[dim] == 1 ? 0 : tensor.strides[dim];
    for (int d = dim; d + 1 < tensor.rank; ++d) {
      tensor.sizes[d] = tensor.sizes[d + 1];
      tensor.strides[d] = tensor.strides[d + 1];
    }
    --tensor.rank;
    return stride;
  }
};
