#pragma once
// Host side of kernels over rows: which operands move how far along the rows and from row to row.

#include "divide.cuh"
#include "launch.cuh"

// Some dimensions of a shape, outermost first, and how far one step along each moves in each
// operand (in elements). An index counts along the last one first.
template <int OPERANDS>
struct Axes {
  int rank = 0;
  int64_t count = 1;
  int64_t sizes[MAX_RANK] = {};
  Divisor divisors[MAX_RANK] = {};
  LongDivisor long_divisors[MAX_RANK] = {};
  int64_t strides[MAX_RANK][OPERANDS] = {};

  // Adds to the offsets of the operands in `mask` what `index` moves them by.
  __device__ __forceinline__ void locate(int64_t index, unsigned mask,
                                         int64_t (&offsets)[OPERANDS]) const {
    if (is_short()) {
      locate_short(static_cast<uint32_t>(index), mask, offsets);
    } else {
#pragma unroll 1
      for (int d = rank - 1; d > 0; --d) {
        const int64_t quotient = long_divisors[d].quotient(index);
        step(d, index - quotient * long_divisors[d].value(), mask, offsets);
        index = quotient;
      }
      step(0, index, mask, offsets);
    }
  }

  // The same of what 31 bits count. Offset: int64_t, or int32_t of operands that are within reach.
  template <class Offset>
  __device__ __forceinline__ void locate_short(uint32_t index, unsigned mask,
                                               Offset (&offsets)[OPERANDS]) const {
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const uint32_t quotient = divisors[d].quotient(index);
      step(d, index - quotient * divisors[d].value(), mask, offsets);
      index = quotient;
    }
    step(0, index, mask, offsets);
  }

  __host__ __device__ __forceinline__ bool is_short() const { return count <= MAX_SHORT; }

  // Whether 31 bits count how far an operand's elements are from its first one.
  bool is_within_reach(int operand) const {
    int64_t farthest = 0;
    for (int d = 0; d < rank; ++d) farthest += (sizes[d] - 1) * strides[d][operand];
    return farthest <= MAX_SHORT;
  }

  __host__ __device__ __forceinline__ int64_t inner_stride(int operand) const {
    return rank == 0 ? 0 : strides[rank - 1][operand];
  }

  // Of a place that 31 bits count, the one along the innermost dimension.
  __device__ __forceinline__ uint32_t inner_place(uint32_t index) const {
    const Divisor& size = divisors[rank - 1];
    return index - size.quotient(index) * size.value();
  }

  __device__ __forceinline__ uint32_t inner_size() const { return divisors[rank - 1].value(); }

  // Puts dimension `d` inside of those that are there, in one with the last if memory allows.
  void append(int64_t size, const int64_t (&steps)[OPERANDS]) {
    count *= size;
    if (size == 1) return;
    bool merges = rank > 0;
    for (int o = 0; o < OPERANDS; ++o) {
      merges = merges && strides[rank - 1][o] == steps[o] * size;
    }
    if (!merges) sizes[rank++] = 1;
    sizes[rank - 1] *= size;
    for (int o = 0; o < OPERANDS; ++o) strides[rank - 1][o] = steps[o];
  }

  // The same with dimensions in one where the memory of the operands in `mask` allows.
  Axes merged(unsigned mask) const {
    Axes result;
    for (int d = 0; d < rank; ++d) {
      bool merges = result.rank > 0;
      for (int o = 0; o < OPERANDS && merges; ++o) {
        const bool is_meant = (mask >> o & 1) != 0;
        merges = !is_meant || result.strides[result.rank - 1][o] == strides[d][o] * sizes[d];
      }
      if (!merges) result.sizes[result.rank++] = 1;
      result.count *= sizes[d];
      result.sizes[result.rank - 1] *= sizes[d];
      for (int o = 0; o < OPERANDS; ++o) result.strides[result.rank - 1][o] = strides[d][o];
    }
    return result;
  }

  // The outermost dimension, and the others.
  void split(Axes& outer, Axes& inner) const {
    for (int d = 0; d < rank; ++d) (d == 0 ? outer : inner).append(sizes[d], strides[d]);
  }

  // To be called once, when all dimensions are there.
  void prepare() {
    for (int d = 0; d < rank && count > 0; ++d) {
      if (sizes[d] <= MAX_SHORT) divisors[d] = Divisor(static_cast<uint32_t>(sizes[d]));
      long_divisors[d] = LongDivisor(sizes[d]);
    }
  }

 private:
  static constexpr int64_t MAX_SHORT = (int64_t{1} << 31) - 1;  // what Divisor can divide

  template <class Index, class Offset>
  __device__ __forceinline__ void step(int d, Index index, unsigned mask,
                                       Offset (&offsets)[OPERANDS]) const {
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) {
      if ((mask >> o & 1) != 0) {
        offsets[o] += static_cast<Offset>(index) * static_cast<Offset>(strides[d][o]);
      }
    }
  }
};

// Where along the dimensions of a shape an element stands, found from its row and its place there.
struct RowCoordinates {
  bool is_reduced[MAX_RANK] = {};     // counted from the last dimension, as the others
  LongDivisor passed[MAX_RANK] = {};  // elements of the row, or rows, that one step passes
  LongDivisor sizes[MAX_RANK] = {};
};

struct RowPlace {
  const RowCoordinates& coordinates;
  int64_t row, place;
  int past = 0;  // elements after the first of a vector

  // Whether the element stands at place `wanted` of its row. What 64 bits are needed for is the
  // same for all elements of a vector.
  __device__ __forceinline__ bool is_at(int64_t wanted) const {
    const auto distance = static_cast<uint64_t>(wanted - (place - past));
    const auto near = distance >> 32 == 0 ? static_cast<uint32_t>(distance) : 0xffffffff;
    return near == static_cast<uint32_t>(past);
  }

  // Along dimension `from_end`, 1 for the last.
  __device__ __forceinline__ int64_t coordinate(int from_end) const {
    const int d = from_end - 1;
    const int64_t index = coordinates.is_reduced[d] ? place : row;
    const int64_t steps = coordinates.passed[d].quotient(index);
    const LongDivisor& size = coordinates.sizes[d];
    return steps - size.quotient(steps) * size.value();
  }
};

// The shape of a row program: its sizes where all calls have the same, -1 where operands have them.
template <int RANK>
struct RowShape {
  int64_t sizes[RANK];
  bool is_reduced[RANK];
};

// The rows and their elements as the operands hold them.
template <int OPERANDS>
struct RowSpace {
  char* data[OPERANDS] = {};
  Axes<OPERANDS> kept, reduced;
  RowCoordinates coordinates;
  int leader = 0;  // the operand whose memory is walked in order

  // `leader`: an operand that has all elements, or -1 for the largest. Dimensions are taken in the
  // order in which they lie in its memory, unless the places of elements count.
  template <int RANK>
  static RowSpace describe(RowShape<RANK> shape, const Tensor (&operands)[OPERANDS], int leader,
                           bool places_count) {
    RowSpace space;
    space.leader = leader < 0 ? largest(operands) : leader;
    int64_t strides[RANK][OPERANDS];
    for (int o = 0; o < OPERANDS; ++o) space.data[o] = static_cast<char*>(operands[o].data);
    for (int d = 0; d < RANK; ++d) {
      if (shape.sizes[d] < 0) shape.sizes[d] = size_of(operands, RANK - d);
      for (int o = 0; o < OPERANDS; ++o) {
        const int own = operands[o].rank - (RANK - d);
        const bool repeats = own < 0 || operands[o].sizes[own] == 1;
        strides[d][o] = repeats ? 0 : operands[o].strides[own];
      }
    }
    space.set_coordinates(shape);
    int order[RANK];
    for (int i = 0; i < RANK; ++i) {
      order[i] = i;
      for (int j = i; j > 0 && !places_count; --j) {
        if (strides[order[j - 1]][space.leader] >= strides[order[j]][space.leader]) break;
        const int outer = order[j];
        order[j] = order[j - 1];
        order[j - 1] = outer;
      }
    }
    for (const int d : order) {
      (shape.is_reduced[d] ? space.reduced : space.kept).append(shape.sizes[d], strides[d]);
    }
    space.kept.prepare();
    space.reduced.prepare();
    return space;
  }

  // Whether neighbours in the leader's memory are neighbours in a row.
  bool lies_along() const {
    if (kept.rank == 0) return true;
    return reduced.rank > 0 && reduced.inner_stride(leader) <= kept.inner_stride(leader);
  }

 private:
  static int largest(const Tensor (&operands)[OPERANDS]) {
    int best = 0;
    int64_t most = -1;
    for (int o = 0; o < OPERANDS; ++o) {
      int64_t count = 1;
      for (int d = 0; d < operands[o].rank; ++d) count *= operands[o].sizes[d];
      if (count > most) best = o;
      if (count > most) most = count;
    }
    return best;
  }

  static int64_t size_of(const Tensor (&operands)[OPERANDS], int from_end) {
    for (const Tensor& operand : operands) {
      const int own = operand.rank - from_end;
      if (own >= 0 && operand.sizes[own] != 1) return operand.sizes[own];
    }
    return 1;
  }

  template <int RANK>
  void set_coordinates(const RowShape<RANK>& shape) {
    int64_t passed[2] = {1, 1};
    for (int d = RANK - 1; d >= 0; --d) {
      const int at = RANK - 1 - d;
      coordinates.is_reduced[at] = shape.is_reduced[d];
      // Of a shape without elements nothing is asked.
      const int64_t size = shape.sizes[d] > 0 ? shape.sizes[d] : 1;
      coordinates.passed[at] = LongDivisor(passed[shape.is_reduced[d]]);
      coordinates.sizes[at] = LongDivisor(size);
      passed[shape.is_reduced[d]] *= size;
    }
  }
};
