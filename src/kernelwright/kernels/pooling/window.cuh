#pragma once
// Pooling of an expression over the last one to three dimensions of broadcast operands of any
// strides, alignment and size, and an expression of each pooled value: what all ways share.
//
// An operation is a struct whose members are the run-time scalars, with
//   Value                       type of what is pooled; 16-bit operands arrive as float
//   POOLING                     maximum, sum, or dot: a sum of products with weights, of which each
//                               channel has one for each place of a window; channels are the
//                               dimension before those that are pooled, or (DOT_LAST) the last one
//   DIMS                        how many dimensions are pooled
//   Depth, Height, Width        an Axis for each of the last three; those not pooled are single
//   prologue(place, values...)  what is pooled, from an element of each operand it reads
//   epilogue(place, pooled, values...)  the element of the result

#include <limits>
#include <utility>

#include "convert.cuh"
#include "dependent_launch.cuh"
#include "index_space.cuh"
#include "math.cuh"
#include "pack.cuh"
#include "place.cuh"
#include "reads.cuh"
#include "vector.cuh"

enum class Pooling { MAXIMUM, SUM, DOT, DOT_LAST };

// One dimension of a window: output o pools the positions o * STRIDE - PADDING + j * DILATION.
template <int SIZE_, int STRIDE_, int PADDING_, int DILATION_>
struct Axis {
  static constexpr int SIZE = SIZE_, STRIDE = STRIDE_, PADDING = PADDING_, DILATION = DILATION_;
  static_assert(SIZE > 0 && STRIDE > 0 && PADDING >= 0 && DILATION > 0, "a window has elements");
  // Positions from the first to the last of a window.
  static constexpr int SPAN = (SIZE - 1) * DILATION + 1;
};

// What changes nothing that it is pooled with.
template <Pooling OP, class T>
__device__ __forceinline__ T neutral_pooled() {
  if constexpr (OP != Pooling::MAXIMUM) return T(0);
  if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

template <Pooling OP, class T>
__device__ __forceinline__ T pool(T a, T b) {
  if constexpr (OP != Pooling::MAXIMUM) return a + b;
  return maximum(a, b);
}

// Quotient and rest of index / size; division of 64 bits takes several times as long.
__device__ __forceinline__ int64_t divide(int64_t index, int64_t size, int64_t& rest) {
  constexpr int64_t SHORT = 0xffffffff;
  const int64_t quotient = index <= SHORT && size <= SHORT
                               ? static_cast<uint32_t>(index) / static_cast<uint32_t>(size)
                               : index / size;
  rest = index - quotient * size;
  return quotient;
}

// Where an element stands: its plane, counted over the dimensions that are not pooled, and its
// place along the last three.
template <int DIMS>
struct WindowPlace {
  const ResultShape& planes;
  int64_t plane, depth, row, column;

  // 1: the column, 2: the row, and so on from the last dimension.
  __device__ __forceinline__ int64_t from_end(int dimension) const {
    if (dimension > DIMS) return ResultPlace{planes, plane}.from_end(dimension - DIMS);
    return dimension == 1 ? column : dimension == 2 ? row : depth;
  }
};

// Depth, height and width; 1 where a window has fewer dimensions.
struct Extents {
  int64_t depth, height, width;
};

template <class Operation, class Out, class Before, class After, class Weights = Reads<>>
struct Window;

template <class Operation_, class Out_, class... Before, class... After, class... Weights>
struct Window<Operation_, Out_, Reads<Before...>, Reads<After...>, Reads<Weights...>> {
  using Operation = Operation_;
  using Out = Out_;
  using Value = typename Operation::Value;
  using Place = WindowPlace<Operation::DIMS>;
  static constexpr bool HAS_WEIGHTS = sizeof...(Weights) > 0;
  static constexpr int FIRST_AFTER = 1 + static_cast<int>(sizeof...(Before));
  static constexpr int AFTER = static_cast<int>(sizeof...(After));
  static constexpr int WEIGHTS = FIRST_AFTER + AFTER;  // the operand
  static constexpr int OPERANDS = WEIGHTS + static_cast<int>(HAS_WEIGHTS);
  static_assert(HAS_WEIGHTS == (Operation::POOLING >= Pooling::DOT) && sizeof...(Weights) < 2,
                "products have weights, and nothing else has");
  using BeforeIndices = std::index_sequence_for<Before...>;
  using AfterIndices = std::index_sequence_for<After...>;
  // A T<type> for each operand of the prologue, or of the epilogue.
  template <template <class> class T>
  using BeforePack = Pack<T<Before>...>;
  template <template <class> class T>
  using AfterPack = Pack<T<After>...>;

  __host__ __device__ static constexpr int64_t element_bytes(int operand) {
    constexpr int64_t BYTES[] = {sizeof(Out), sizeof(Before)..., sizeof(After)...,
                                 sizeof(Weights)...};
    return BYTES[operand];
  }

  Operation operation;
  // Operand 0 is the result, then come those of the prologue, those of the epilogue, the weights.
  char* data[OPERANDS];
  Extents source, result;
  // Strides count elements. Those of the prologue's operands are along the source, those of the
  // weights along the window, or along the channels where these are last.
  Extents strides[OPERANDS];
  // The dimensions that are not pooled: as the result has them, and merged.
  ResultShape plane_shape;
  int64_t planes;
  int plane_rank;
  int64_t plane_sizes[MAX_RANK];
  int64_t plane_strides[MAX_RANK][OPERANDS];

  // `source`: sizes of what is pooled along the last three dimensions, for those along which every
  // operand is broadcast; `in`: a tensor for each operand.
  template <class... Tensors>
  static Window describe(const Operation& operation, const Extents& source, const Tensor& out,
                         const Tensors&... in) {
    static_assert(1 + sizeof...(Tensors) == OPERANDS, "one tensor for each operand");
    Window window = {};
    window.operation = operation;
    window.source = source;
    window.result = {1, 1, 1};
    Tensor operands[OPERANDS] = {out, in...};
    Extents taps;
    for (int o = 0; o < OPERANDS; ++o) {
      Extents& sizes = o == 0 || o >= FIRST_AFTER ? window.result : window.source;
      window.strides[o] = take_pooled(operands[o], HAS_WEIGHTS && o == WEIGHTS ? taps : sizes);
    }
    window.plane_shape = ResultShape::of(operands[0]);
    const auto space = make_index_space(operands);
    window.planes = space.count();
    window.plane_rank = space.rank;
    for (int o = 0; o < OPERANDS; ++o) window.data[o] = space.data[o];
    for (int d = 0; d < space.rank; ++d) {
      window.plane_sizes[d] = space.sizes[d];
      for (int o = 0; o < OPERANDS; ++o) window.plane_strides[d][o] = space.strides[d][o];
    }
    return window;
  }

  int64_t count() const { return planes * result.depth * result.height * result.width; }

  // Offsets, in elements, of the first element of a plane in each operand.
  __device__ __forceinline__ void locate(int64_t plane, int64_t (&offsets)[OPERANDS]) const {
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) offsets[o] = 0;
    for (int d = plane_rank - 1; d >= 0; --d) {
      int64_t index = plane;
      if (d > 0) plane = divide(plane, plane_sizes[d], index);
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) offsets[o] += index * plane_strides[d][o];
    }
  }

  template <class T, int OPERAND>
  __device__ __forceinline__ T load(int64_t offset, const Place& at) const {
    const Extents& stride = strides[OPERAND];
    offset += at.depth * stride.depth + at.row * stride.height + at.column * stride.width;
    return load_constant(reinterpret_cast<const T*>(data[OPERAND]) + offset);
  }

  // What is pooled at one position inside of the source.
  template <size_t... AT>
  __device__ __forceinline__ Value pooled_at(const int64_t (&offsets)[OPERANDS], const Place& at,
                                             std::index_sequence<AT...>) const {
    return operation.prologue(at, widen(load<Before, 1 + AT>(offsets[1 + AT], at))...);
  }

  // The weight of one place of the window; where channels are last, `column` is the channel.
  __device__ __forceinline__ Value weight(const int64_t (&offsets)[OPERANDS], int depth, int row,
                                          int64_t column) const {
    const Extents& stride = strides[WEIGHTS];
    return weight_at(offsets[WEIGHTS] + depth * stride.depth + row * stride.height +
                     column * stride.width);
  }
  __device__ __forceinline__ Value weight_at(int64_t at) const {
    return (static_cast<Value>(
                widen(load_constant(reinterpret_cast<const Weights*>(data[WEIGHTS]) + at))),
            ...);
  }

  template <size_t... AT>
  __device__ __forceinline__ Out result_at(const int64_t (&offsets)[OPERANDS], const Place& at,
                                           Value pooled, std::index_sequence<AT...>) const {
    return narrow<Out>(operation.epilogue(
        at, pooled, widen(load<After, FIRST_AFTER + AT>(offsets[FIRST_AFTER + AT], at))...));
  }

 private:
  // Removes the pooled dimensions; returns their strides, 0 where the operand is broadcast.
  static Extents take_pooled(Tensor& tensor, Extents& sizes) {
    int64_t* size[3] = {&sizes.width, &sizes.height, &sizes.depth};
    int64_t stride[3] = {};
    for (int d = 0; d < Operation::DIMS && tensor.rank > 0; ++d) {
      --tensor.rank;
      const int64_t own = tensor.sizes[tensor.rank];
      if (own == 1) continue;
      *size[d] = own;
      stride[d] = tensor.strides[tensor.rank];
    }
    return {stride[2], stride[1], stride[0]};
  }
};
