#pragma once
// The parameters and threads of a pointwise kernel over operands of any strides.

#include "dependent_launch.cuh"
#include "divide.cuh"
#include "matrix_place.cuh"
#include "outer_dimensions.cuh"
#include "pack.cuh"
#include "vector.cuh"

// Any strides. A step of the innermost dimension covers N elements: with N > 1 each operand is
// there either contiguous or one repeated element (a row of a matrix, or its scale).
template <class Pointwise, int N, class Operation, class Out, class... In>
struct IndexedPointwise {
  static constexpr int THREADS = Pointwise::THREADS, UNROLL = Pointwise::UNROLL;
  static constexpr int OPERANDS = Pointwise::OPERANDS;
  using InputIndices = typename Pointwise::InputIndices;

  Operation operation;
  Matrices matrices;
  void* data[OPERANDS];
  uint32_t steps;
  Divisor inner_steps;
  int64_t inner_strides[OPERANDS];
  OuterDimensions<OPERANDS> outer;
  bool are_near;        // offsets fit 31 bits
  bool stays_on_line;   // a block is at work on one line of the innermost dimension
  Divisor line_blocks;  // blocks of each, then

  // Offsets in elements of the operands at `step`, counted along the innermost dimension first.
  __device__ __forceinline__ void locate(uint32_t step, int64_t (&offsets)[OPERANDS]) const {
    if (are_near) {
      int32_t near[OPERANDS];
      locate_as(step, near);
#pragma unroll
      for (int o = 0; o < OPERANDS; ++o) offsets[o] = near[o];
    } else {
      locate_as(step, offsets);
    }
  }

  template <class T, int M>
  __device__ __forceinline__ Vector<T, M> load(int operand, int64_t offset) const {
    const T* address = static_cast<const T*>(data[operand]) + offset;
    return load_run_or_repeat<M>(address, M == 1 || inner_strides[operand] != 0);
  }

  template <size_t... INPUT>
  __device__ __forceinline__ void load_all(Pack<Vector<In, N>...>& values,
                                           const int64_t (&offsets)[OPERANDS],
                                           std::index_sequence<INPUT...>) const {
    ((get<INPUT>(values) = load<In, N>(INPUT + 1, offsets[INPUT + 1])), ...);
  }

  __device__ __forceinline__ void run() const {
    wait_for_previous_kernel();
    if (N > 1 && stays_on_line) {
      // The same for all of its threads.
      const uint32_t line = line_blocks.quotient(blockIdx.x);
      int64_t starts[OPERANDS] = {};
      outer.move(line, starts);
      const uint32_t block = blockIdx.x - line * line_blocks.value();
      walk(block, inner_steps.value(), [&](uint32_t step, int64_t (&offsets)[OPERANDS]) {
        const int64_t inner = int64_t{step} * N;
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) offsets[o] = starts[o] + inner * inner_strides[o];
      });
    } else {
      walk(blockIdx.x, steps,
           [&](uint32_t step, int64_t (&offsets)[OPERANDS]) { locate(step, offsets); });
    }
  }

 private:
  template <class Offset>
  __device__ __forceinline__ void locate_as(uint32_t step, Offset (&offsets)[OPERANDS]) const {
    const uint32_t line = inner_steps.quotient(step);
    const auto inner = static_cast<Offset>(step - line * inner_steps.value()) * N;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) offsets[o] = inner * static_cast<Offset>(inner_strides[o]);
    outer.move(line, offsets);
  }

  // A block's steps, those before `end`.
  template <class Locate>
  __device__ __forceinline__ void walk(uint32_t block, uint32_t end, const Locate& where) const {
    const uint32_t first = block * (THREADS * UNROLL) + threadIdx.x;
    Pack<Vector<In, N>...> values[UNROLL];
    int64_t result_offsets[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (first + u * THREADS < end) {
        int64_t offsets[OPERANDS];
        where(first + u * THREADS, offsets);
        result_offsets[u] = offsets[0];
        load_all(values[u], offsets, InputIndices());
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      if (first + u * THREADS < end) {
        Pointwise::template compute<N>(static_cast<Out*>(data[0]) + result_offsets[u], operation,
                                       matrices, values[u], InputIndices());
      }
    }
  }
};
