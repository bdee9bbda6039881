#pragma once
// What becomes of the sums of a convolution before they are stored: the bias, an operation, and the
// operands that it reads besides, which broadcast to the result.

#include <utility>

#include "conv_elements.cuh"
#include "conv_facts.cuh"
#include "conv_moments.cuh"
#include "conv_totals.cuh"
#include "convert.cuh"
#include "divide.cuh"
#include "fetched.cuh"
#include "launch.cuh"
#include "pack.cuh"
#include "vector.cuh"

// An operand with one value for each channel, or one in all.
template <class T>
struct ByChannel {
  using Stored = T;
  template <int WIDTH>
  using Joined = Fetched<T, 1>;
  __device__ __forceinline__ static void ask_for(const T*) {}
  static constexpr bool IS_BY_CHANNEL = true;
};

// Any other.
template <class T>
struct ByPlace {
  using Stored = T;
  template <int WIDTH>
  using Joined = Fetched<T, WIDTH>;
  __device__ __forceinline__ static void ask_for(const T* address) { prefetch(address); }
  static constexpr bool IS_BY_CHANNEL = false;
};

// Of an operand: its address and its strides, 0 where it repeats.
template <class T>
struct ConvOperand {
  const T* data;
  int64_t channel_stride;
  int64_t strides[MAX_RANK];  // along the dimensions of ConvPlaces
  bool is_like_result;        // it lies in memory as the result does
};

// The result's dimensions, those that lie furthest apart first: an element's offset in the result
// says where it stands.
struct ConvPlaces {
  int rank;
  LongDivisor strides[MAX_RANK];
};

// When the operation is applied.
enum class ConvFinish {
  SUMS,   // to each register of sums
  STORES  // where elements are stored, in a loop: those that read something by its place
};

// Operation: called with the sum and one value of each operand.
template <ConvFinish WHEN, class Bias, class Operation, class... Operands>
class ConvEpilogue {
 public:
  static constexpr bool IS_LATE = ANY_LATE && WHEN == ConvFinish::STORES;
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::NONE;
  static constexpr ConvMoments MOMENTS = ConvMoments::NONE;
  static_assert(IS_LATE || (true && ... && Operands::IS_BY_CHANNEL), "sums have no place yet");

  // What is the same for all elements of a channel.
  struct Row {
    float bias;
    const Operation& operation;
    Pack<compute_t<typename Operands::Stored>...> values;

    __device__ __forceinline__ float operator()(float sum) const {
      return apply(sum + bias, std::index_sequence_for<Operands...>());
    }

   private:
    template <size_t... I>
    __device__ __forceinline__ float apply(float sum, std::index_sequence<I...>) const {
      if constexpr (IS_LATE) return sum;
      if constexpr (!IS_LATE) return static_cast<float>(operation(sum, get<I>(values)...));
    }
  };

  // What WIDTH elements of a channel that are neighbours in memory read besides their sums.
  template <int WIDTH>
  using Joined = Pack<typename Operands::template Joined<WIDTH>...>;
  // Offsets of an element in the operands. A struct: g++ 13 takes no alias without its parameter.
  template <class Operand>
  struct Offset {
    int64_t of;
  };
  using Spot = Pack<Offset<Operands>...>;

  // `bias` without an address: none.
  template <class... Tensors>
  static ConvEpilogue describe(const Operation& operation, const Tensor& out, const Tensor& bias,
                               const Tensors&... tensors) {
    static_assert(sizeof...(Tensors) == sizeof...(Operands), "a tensor for each operand");
    ConvEpilogue epilogue = {};
    epilogue.operation_ = operation;
    epilogue.bias_ = static_cast<const Bias*>(bias.data);
    epilogue.bias_stride_ = bias.data == nullptr ? 0 : bias.strides[0];
    int order[MAX_RANK];
    epilogue.find_places(out, order);
    epilogue.set_operands(Indices(), out, order, tensors...);
    return epilogue;
  }

  __device__ __forceinline__ Row row(int channel) const { return row(channel, Indices()); }

  // `place`: offset of the element in the result.
  __device__ __forceinline__ float finish(float value, int64_t place, int channel) const {
    if constexpr (IS_LATE) return apply(value, fetch(place, channel, Indices()), Indices());
    return value;
  }

  // The same of several at once: what the operands have is read before any of it is needed.
  template <int COUNT>
  __device__ __forceinline__ void finish(ConvElements<COUNT>& of) const {
    if constexpr (IS_LATE) {
      Values others[COUNT];
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        const bool exists = of.places[i] >= 0;
        others[i] = fetch(exists ? of.places[i] : 0, exists ? of.channels[i] : 0, Indices());
      }
#pragma unroll
      for (int i = 0; i < COUNT; ++i) of.values[i] = apply(of.values[i], others[i], Indices());
    }
  }

  // Whether WIDTH neighbours in the result, from `place` on, are aligned ones in all operands.
  template <int WIDTH>
  __device__ __forceinline__ bool has_neighbours(int64_t place) const {
    return places_.rank == 0 && are_aligned<WIDTH>(place, Indices());
  }

  // Asks the L2 for what an element reads, where that is found without divisions. `place`: offset
  // in the result.
  __device__ __forceinline__ void ask_for(int64_t place) const {
    if (places_.rank == 0) ask_for(place, Indices());
  }

  // `place`: offset in the result of the element of the first channel.
  __device__ __forceinline__ Spot locate(int64_t place, int channel) const {
    return locate(place, channel, Indices());
  }
  __device__ __forceinline__ void advance(Spot& spot, int channels) const {
    advance(spot, channels, Indices());
  }
  template <int WIDTH>
  __device__ __forceinline__ Joined<WIDTH> join(const Spot& spot) const {
    return join<WIDTH>(spot, Indices());
  }
  template <int WIDTH>
  __device__ __forceinline__ void finish(Vector<float, WIDTH>& values,
                                         const Joined<WIDTH>& joined) const {
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
      values.element[i] = apply_joined<WIDTH>(values.element[i], joined, i, Indices());
    }
  }

 private:
  using Indices = std::index_sequence_for<Operands...>;
  using Values = Pack<compute_t<typename Operands::Stored>...>;

  template <size_t... I>
  __device__ __forceinline__ Row row(int channel, std::index_sequence<I...>) const {
    const float bias =
        bias_ == nullptr ? 0.0f : widen(load_constant(bias_ + channel * bias_stride_));
    if constexpr (IS_LATE) return {bias, operation_, {}};
    return {bias,
            operation_,
            {{{widen(load_constant(get<I>(operands_).data +
                                   channel * get<I>(operands_).channel_stride))}...}}};
  }

  // Of the operands, for one element. None asks for its place where all lie as the result does or
  // have one value for each channel.
  template <size_t... I>
  __device__ __forceinline__ Values fetch(int64_t place, int channel,
                                          std::index_sequence<I...>) const {
    int64_t offsets[sizeof...(Operands) + 1] = {};  // not empty
    int64_t rest = place;
#pragma unroll 1
    for (int d = 0; d < places_.rank; ++d) {
      const int64_t at = places_.strides[d].quotient(rest);
      rest -= at * places_.strides[d].value();
      ((offsets[I] += at * get<I>(operands_).strides[d]), ...);
    }
    return {
        {{widen(load_constant(get<I>(operands_).data +
                              (Operands::IS_BY_CHANNEL ? channel * get<I>(operands_).channel_stride
                               : get<I>(operands_).is_like_result ? place
                                                                  : offsets[I])))}...}};
  }

  template <size_t... I>
  __device__ __forceinline__ void ask_for(int64_t place, std::index_sequence<I...>) const {
    (Operands::ask_for(get<I>(operands_).data + place), ...);
  }
  template <size_t... I>
  __device__ __forceinline__ Spot locate(int64_t place, int channel,
                                         std::index_sequence<I...>) const {
    Spot spot = {};
    if (places_.rank == 0) {
      ((get<I>(spot).of = Operands::IS_BY_CHANNEL ? 0 : place), ...);
    } else {
#pragma unroll 1
      for (int d = 0; d < places_.rank; ++d) {
        const int64_t at = places_.strides[d].quotient(place);
        place -= at * places_.strides[d].value();
        ((get<I>(spot).of += Operands::IS_BY_CHANNEL ? 0 : at * get<I>(operands_).strides[d]), ...);
      }
    }
    advance(spot, channel);
    return spot;
  }
  template <size_t... I>
  __device__ __forceinline__ void advance(Spot& spot, int channels,
                                          std::index_sequence<I...>) const {
    ((get<I>(spot).of += channels * get<I>(operands_).channel_stride), ...);
  }
  template <int WIDTH, size_t... I>
  __device__ __forceinline__ bool are_aligned(int64_t place, std::index_sequence<I...>) const {
    return (
        true && ... &&
        (Operands::IS_BY_CHANNEL || reinterpret_cast<uintptr_t>(get<I>(operands_).data + place) %
                                            (WIDTH * sizeof(typename Operands::Stored)) ==
                                        0));
  }
  template <int WIDTH, size_t... I>
  __device__ __forceinline__ Joined<WIDTH> join(const Spot& spot, std::index_sequence<I...>) const {
    return {{{Operands::template Joined<WIDTH>::of(get<I>(operands_).data + get<I>(spot).of)}...}};
  }
  template <int WIDTH, size_t... I>
  __device__ __forceinline__ float apply_joined(float value, const Joined<WIDTH>& joined, int i,
                                                std::index_sequence<I...>) const {
    return static_cast<float>(
        operation_(value, widen(get<I>(joined).at(Operands::IS_BY_CHANNEL ? 0 : i))...));
  }

  template <size_t... I>
  __device__ __forceinline__ float apply(float value, const Values& others,
                                         std::index_sequence<I...>) const {
    return static_cast<float>(operation_(value, get<I>(others)...));
  }

  // `order`: which dimension of the result each place has.
  void find_places(const Tensor& out, int (&order)[MAX_RANK]) {
    int rank = 0;
    for (int d = 0; d < out.rank; ++d) {
      if (out.sizes[d] > 1) order[rank++] = d;
    }
    for (int i = 1; i < rank; ++i) {
      for (int j = i; j > 0 && out.strides[order[j]] > out.strides[order[j - 1]]; --j) {
        const int dimension = order[j];
        order[j] = order[j - 1];
        order[j - 1] = dimension;
      }
    }
    places_.rank = rank;
    for (int i = 0; i < rank; ++i) places_.strides[i] = LongDivisor(out.strides[order[i]]);
  }

  template <size_t... I, class... Tensors>
  void set_operands(std::index_sequence<I...>, const Tensor& out, const int (&order)[MAX_RANK],
                    const Tensors&... tensors) {
    bool are_like_result = true;
    (set_operand(get<I>(operands_), out, order, tensors), ...);
    (..., (are_like_result &= Operands::IS_BY_CHANNEL || get<I>(operands_).is_like_result));
    // What lies like the result asks for no division.
    if (are_like_result) places_.rank = 0;
  }

  template <class T>
  void set_operand(ConvOperand<T>& operand, const Tensor& out, const int (&order)[MAX_RANK],
                   const Tensor& tensor) {
    operand.data = static_cast<const T*>(tensor.data);
    operand.channel_stride = stride_along(tensor, out.rank - 1);
    operand.is_like_result = true;
    for (int i = 0; i < places_.rank; ++i) {
      operand.strides[i] = stride_along(tensor, out.rank - order[i]);
      if (operand.strides[i] != out.strides[order[i]]) operand.is_like_result = false;
    }
  }

  // Of dimension number `from_end`, counted from 1; one that is missing or repeated does not move.
  static int64_t stride_along(const Tensor& tensor, int from_end) {
    const int own = tensor.rank - from_end;
    return own < 0 || tensor.sizes[own] == 1 ? 0 : tensor.strides[own];
  }

  Operation operation_;
  const Bias* bias_;
  int64_t bias_stride_;
  ConvPlaces places_;
  Pack<ConvOperand<typename Operands::Stored>...> operands_;
};

// An epilogue in two steps, and something between them or nothing: `Before` has a row for each
// channel, `After` finishes what is stored.
template <class Before, class After>
struct ConvTwoSteps {
  static constexpr bool IS_LATE = After::IS_LATE;
  static constexpr ConvMoments MOMENTS = ConvMoments::NONE;
  static_assert(!Before::IS_LATE, "nothing is stored before the second step");

  Before before;
  After after;

  __device__ __forceinline__ auto row(int channel) const { return before.row(channel); }
  __device__ __forceinline__ float finish(float value, int64_t place, int channel) const {
    return after.finish(value, place, channel);
  }
  template <int COUNT>
  __device__ __forceinline__ void finish(ConvElements<COUNT>& of) const {
    after.finish(of);
  }

  // What an After that reads nothing by its place does not have is asked of no one.
  template <int WIDTH>
  __device__ __forceinline__ bool has_neighbours(int64_t place) const {
    return after.template has_neighbours<WIDTH>(place);
  }
  __device__ __forceinline__ void ask_for(int64_t place) const { after.ask_for(place); }
  __device__ __forceinline__ auto locate(int64_t place, int channel) const {
    return after.locate(place, channel);
  }
  template <class Spot>
  __device__ __forceinline__ void advance(Spot& spot, int channels) const {
    after.advance(spot, channels);
  }
  template <int WIDTH, class Spot>
  __device__ __forceinline__ auto join(const Spot& spot) const {
    return after.template join<WIDTH>(spot);
  }
  template <int WIDTH, class Of>
  __device__ __forceinline__ void finish(Vector<float, WIDTH>& values, const Of& joined) const {
    after.finish(values, joined);
  }
};

// Nothing is between the steps: the first is what can be done before an element's place is known,
// and spares each element its operands.
template <class Before, class After>
struct ConvInPlace : ConvTwoSteps<Before, After> {
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::NONE;
};

// Elements are reduced between the steps, over windows of outputs, then over channels.
template <ConvFold OVER_WINDOWS, ConvFold OVER_CHANNELS, class Before, class After>
struct ConvReducing : ConvTwoSteps<Before, After> {
  static constexpr ConvFold WINDOWS = OVER_WINDOWS, CHANNELS = OVER_CHANNELS;
};

// The channels of an output are a row of a program between the steps (conv_totals.cuh). `After` has
// a row for each channel, too, where each channel has a result.
template <class Row, class Before, class After>
struct ConvRowProgram : ConvTwoSteps<Before, After> {
  using Program = Row;
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::EXP_SUM;
};

// The moments of each channel are made of what the first step gives.
template <ConvMoments HOW, class Before, class After>
struct ConvWithMoments : ConvTwoSteps<Before, After> {
  static constexpr ConvMoments MOMENTS = HOW;
  static constexpr ConvFold WINDOWS = ConvFold::NONE, CHANNELS = ConvFold::NONE;
  static_assert(!After::IS_LATE, "moments are those of what is stored");

  MomentStates moments;
};
