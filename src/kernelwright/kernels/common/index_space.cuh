#pragma once
// Host side of kernels over broadcast operands: the fewest dimensions that walk them all.

#include "launch.cuh"

// Every index of the result, outermost dimension first, and how far one step along each dimension
// moves in each operand (in elements). Operand 0 is the result; the others broadcast to it.
template <int OPERANDS>
struct IndexSpace {
  int rank = 0;
  int64_t sizes[MAX_RANK] = {};
  int64_t strides[MAX_RANK][OPERANDS] = {};
  char* data[OPERANDS] = {};

  int64_t count() const {
    int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= sizes[d];
    return product;
  }
  // Two parts of about half the indices, cut across the largest dimension; the innermost one only
  // at multiples of `width`. Needs the size of an element of each operand to move its address.
  void halve(int width, const int64_t (&element_bytes)[OPERANDS], IndexSpace (&halves)[2]) const {
    int largest = 0;
    for (int d = 1; d < rank; ++d) largest = sizes[d] > sizes[largest] ? d : largest;
    const int64_t unit = largest == rank - 1 ? width : 1;
    halves[0] = halves[1] = *this;
    halves[0].sizes[largest] = sizes[largest] / 2 / unit * unit;
    halves[1].sizes[largest] = sizes[largest] - halves[0].sizes[largest];
    for (int o = 0; o < OPERANDS; ++o) {
      halves[1].data[o] += halves[0].sizes[largest] * strides[largest][o] * element_bytes[o];
    }
  }

  int64_t inner_size() const { return rank == 0 ? 1 : sizes[rank - 1]; }
  int64_t inner_stride(int operand) const { return rank == 0 ? 0 : strides[rank - 1][operand]; }

  void swap_dimensions(int i, int j) {
    const IndexSpace before = *this;
    sizes[i] = before.sizes[j];
    sizes[j] = before.sizes[i];
    for (int o = 0; o < OPERANDS; ++o) {
      strides[i][o] = before.strides[j][o];
      strides[j][o] = before.strides[i][o];
    }
  }

  // Stepping past the end of `inner` equals one step of `outer`, in every operand.
  bool mergeable(int outer, int inner) const {
    for (int o = 0; o < OPERANDS; ++o) {
      if (strides[outer][o] != strides[inner][o] * sizes[inner]) return false;
    }
    return true;
  }
};

// Aligns the operands at their last dimensions (size 1 or missing: stride 0), drops dimensions of
// size 1, puts the result's fastest dimension last and merges dimensions that are one in memory.
template <int OPERANDS>
IndexSpace<OPERANDS> make_index_space(const Tensor (&operands)[OPERANDS]) {
  const Tensor& result = operands[0];
  IndexSpace<OPERANDS> space;
  for (int o = 0; o < OPERANDS; ++o) space.data[o] = static_cast<char*>(operands[o].data);
  for (int d = 0; d < result.rank; ++d) {
    if (result.sizes[d] == 1) continue;
    const int at = space.rank++;
    space.sizes[at] = result.sizes[d];
    for (int o = 0; o < OPERANDS; ++o) {
      const int own = d - (result.rank - operands[o].rank);
      const bool broadcast = own < 0 || operands[o].sizes[own] == 1;
      space.strides[at][o] = broadcast ? 0 : operands[o].strides[own];
    }
  }
  for (int i = 1; i < space.rank; ++i) {
    for (int j = i; j > 0 && space.strides[j - 1][0] < space.strides[j][0]; --j) {
      space.swap_dimensions(j - 1, j);
    }
  }
  int last = 0;
  for (int d = 1; d < space.rank; ++d) {
    if (space.mergeable(last, d)) {
      space.sizes[last] *= space.sizes[d];
      for (int o = 0; o < OPERANDS; ++o) space.strides[last][o] = space.strides[d][o];
    } else {
      space.swap_dimensions(++last, d);
    }
  }
  if (space.rank > 0) space.rank = last + 1;
  return space;
}
