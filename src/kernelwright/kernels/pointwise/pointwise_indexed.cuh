#pragma once
// The parameters and threads of a pointwise kernel over operands of any strides.

#include "divide.cuh"
#include "matrix_place.cuh"
#include "outer_dimensions.cuh"
#include "pack.cuh"
#include "vector.cuh"

// Any strides. A step of the innermost dimension covers N elements: with N > 1 each operand is
// there either contiguous or one repeated element (a row of a matrix, or its scale). Lines that
// begin between vectors are walked in one of two other ways. Long ones that begin alike have blocks
// of their own, whose vectors begin where the memory is aligned: elements at both ends go one by
// one. Elsewhere, where the result is one run of memory, its vectors are walked as if there were no
// lines, and inputs that are no such run are found for each vector.
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
  bool stays_on_line;   // a block is at work on one line of the innermost dimension
  Divisor line_blocks;  // blocks of each, then
  bool is_uneven;       // lines begin or end between vectors
  int64_t line_size;    // elements of each, then
  unsigned whole;       // operands that are one run of memory; without the result: none is asked
  Divisor line_sizes;   // elements of each line, where the result is

  // Offsets in elements of the operands at `step`, counted along the innermost dimension first.
  __device__ __forceinline__ void locate(uint32_t step, int64_t (&offsets)[OPERANDS]) const {
    const uint32_t line = inner_steps.quotient(step);
    const int64_t inner = static_cast<int64_t>(step - line * inner_steps.value()) * N;
#pragma unroll
    for (int o = 0; o < OPERANDS; ++o) offsets[o] = inner * inner_strides[o];
    outer.move(line, offsets);
  }

  template <class T, int M>
  __device__ __forceinline__ Vector<T, M> load(int operand, int64_t offset) const {
    const T* address = static_cast<const T*>(data[operand]) + offset;
    if (M == 1 || inner_strides[operand] != 0) return load_vector<M>(address);
    Vector<T, M> repeated;
    const T value = *address;
#pragma unroll
    for (int i = 0; i < M; ++i) repeated.element[i] = value;
    return repeated;
  }

  template <size_t... INPUT>
  __device__ __forceinline__ void load_all(Pack<Vector<In, N>...>& values,
                                           const int64_t (&offsets)[OPERANDS],
                                           std::index_sequence<INPUT...>) const {
    ((get<INPUT>(values) = load<In, N>(INPUT + 1, offsets[INPUT + 1])), ...);
  }

  __device__ __forceinline__ void run() const {
    if (N > 1 && stays_on_line) {
      // The same for all of its threads.
      const uint32_t line = line_blocks.quotient(blockIdx.x);
      int64_t starts[OPERANDS] = {};
      outer.move(line, starts);
      const uint32_t block = blockIdx.x - line * line_blocks.value();
      if (is_uneven) {
        walk_uneven(block, starts);
        return;
      }
      walk(block, inner_steps.value(), [&](uint32_t step, int64_t (&offsets)[OPERANDS]) {
        const int64_t inner = int64_t{step} * N;
#pragma unroll
        for (int o = 0; o < OPERANDS; ++o) offsets[o] = starts[o] + inner * inner_strides[o];
      });
    } else if (N > 1 && whole != 0) {
      walk_whole();
    } else {
      walk(blockIdx.x, steps,
           [&](uint32_t step, int64_t (&offsets)[OPERANDS]) { locate(step, offsets); });
    }
  }

 private:
  // The vectors of a result that is one run of memory, `steps` elements.
  __device__ __forceinline__ void walk_whole() const {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const uint32_t vector = blockIdx.x * (THREADS * UNROLL) + threadIdx.x + u * THREADS;
      const int64_t first = int64_t{vector} * N;
      if (first + N <= steps) {
        compute_whole<N>(static_cast<uint32_t>(first));
      } else {
#pragma unroll 1
        for (int64_t element = first; element < steps; ++element) {
          compute_whole<1>(static_cast<uint32_t>(element));
        }
      }
    }
  }

  // M elements of it from `element` on.
  template <int M>
  __device__ __forceinline__ void compute_whole(uint32_t element) const {
    Pack<Vector<In, M>...> values;
    load_whole<M>(values, element, InputIndices());
    uint32_t line = line_sizes.quotient(element);
    uint32_t place = element - line * line_sizes.value();
    int begin = 0;
    // Elements of one line, or of two: none is shorter than a vector.
#pragma unroll 1
    do {
      int32_t offsets[OPERANDS] = {};
      outer.move(line, offsets);
      const int rest = begin + static_cast<int>(line_sizes.value() - place);
      load_parts<M>(values, place, offsets, begin, rest, InputIndices());
      begin = rest;
      place = 0;
      ++line;
    } while (begin < M);
    Pointwise::template compute<M>(static_cast<Out*>(data[0]) + element, operation, matrices,
                                   values, InputIndices());
  }

  // Of the inputs that are one run of memory.
  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_whole(Pack<Vector<In, M>...>& values, uint32_t element,
                                             std::index_sequence<INPUT...>) const {
    (((whole >> (INPUT + 1) & 1) != 0 ? void(get<INPUT>(values) = load_vector<M>(
                                                 static_cast<const In*>(data[INPUT + 1]) + element))
                                      : void()),
     ...);
  }

  // Of the others, the elements from `begin` to `end` of the vectors: from place `place` of the
  // line on that `offsets` lead to.
  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_parts(Pack<Vector<In, M>...>& values, uint32_t place,
                                             const int32_t (&offsets)[OPERANDS], int begin, int end,
                                             std::index_sequence<INPUT...>) const {
    (((whole >> (INPUT + 1) & 1) != 0
          ? void()
          : load_part(
                get<INPUT>(values),
                static_cast<const In*>(data[INPUT + 1]) + offsets[INPUT + 1] +
                    static_cast<int32_t>(place) * static_cast<int32_t>(inner_strides[INPUT + 1]),
                inner_strides[INPUT + 1], begin, end)),
     ...);
  }

  template <class T, int M>
  __device__ __forceinline__ static void load_part(Vector<T, M>& values, const T* from,
                                                   int64_t stride, int begin, int end) {
    const T first = *from;
#pragma unroll
    for (int i = 0; i < M; ++i) {
      if (i < begin || i >= end) continue;
      values.element[i] = stride == 0 || i == begin ? first : from[(i - begin) * stride];
    }
  }

  // The elements of one step of a line, from its element `inner` on.
  template <int M>
  __device__ __forceinline__ void compute_at(int64_t inner,
                                             const int64_t (&starts)[OPERANDS]) const {
    Pack<Vector<In, M>...> values;
    load_at<M>(values, inner, starts, InputIndices());
    Pointwise::template compute<M>(static_cast<Out*>(data[0]) + starts[0] + inner, operation,
                                   matrices, values, InputIndices());
  }

  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_at(Pack<Vector<In, M>...>& values, int64_t inner,
                                          const int64_t (&starts)[OPERANDS],
                                          std::index_sequence<INPUT...>) const {
    ((get<INPUT>(values) =
          load<In, M>(INPUT + 1, starts[INPUT + 1] + inner * inner_strides[INPUT + 1])),
     ...);
  }

  // A block's steps of a line: step 0 ends where a vector of every operand does.
  __device__ __forceinline__ void walk_uneven(uint32_t block,
                                              const int64_t (&starts)[OPERANDS]) const {
    const int shift = static_cast<int>(static_cast<uint64_t>(starts[0]) % N);
    const int64_t size = line_size;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t step = block * (THREADS * UNROLL) + threadIdx.x + u * THREADS;
      const int64_t first = step * N - shift;
      if (first >= 0 && first + N <= size) {
        compute_at<N>(first, starts);
      } else {
#pragma unroll 1
        for (int i = 0; i < N; ++i) {
          if (first + i >= 0 && first + i < size) compute_at<1>(first + i, starts);
        }
      }
    }
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
