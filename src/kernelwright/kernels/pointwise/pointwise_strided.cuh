#pragma once
// The parameters and threads of a pointwise kernel whose lines begin between vectors, or whose
// operands have any other strides.

#include "pointwise_indexed.cuh"

// One element at a time, but for two kinds of lines. Long ones that begin alike have blocks of
// their own, whose vectors begin where the memory is aligned: elements at both ends go one by one.
// Elsewhere, where the result is one run of memory, its vectors are walked as if there were no
// lines, and inputs that are no such run are found for each vector. That code is here, and not with
// lines of whole vectors, because those wait for theirs.
template <class Pointwise, int WIDTH, class Operation, class Out, class... In>
struct StridedPointwise : IndexedPointwise<Pointwise, 1, Operation, Out, In...> {
  using Base = IndexedPointwise<Pointwise, 1, Operation, Out, In...>;
  static constexpr int THREADS = Base::THREADS, UNROLL = Base::UNROLL, OPERANDS = Base::OPERANDS;
  using InputIndices = typename Base::InputIndices;

  bool is_uneven;      // lines that begin alike
  int64_t line_size;   // elements of each, then
  unsigned whole;      // operands that are one run of memory; without the result: none is asked
  Divisor line_sizes;  // elements of each line, where the result is

  __device__ __forceinline__ void run() const {
    if (WIDTH > 1 && is_uneven) {
      const uint32_t line = this->line_blocks.quotient(blockIdx.x);
      int64_t starts[OPERANDS] = {};
      this->outer.move(line, starts);
      walk_uneven(blockIdx.x - line * this->line_blocks.value(), starts);
    } else if (WIDTH > 1 && whole != 0) {
      walk_whole();
    } else {
      Base::run();
    }
  }

 private:
  // The vectors of a result that is one run of memory, `steps` elements.
  __device__ __forceinline__ void walk_whole() const {
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const uint32_t vector = blockIdx.x * (THREADS * UNROLL) + threadIdx.x + u * THREADS;
      const int64_t first = int64_t{vector} * WIDTH;
      if (first + WIDTH <= this->steps) {
        compute_whole<WIDTH>(static_cast<uint32_t>(first));
      } else {
#pragma unroll 1
        for (int64_t element = first; element < this->steps; ++element) {
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
      this->outer.move(line, offsets);
      const int rest = begin + static_cast<int>(line_sizes.value() - place);
      load_parts<M>(values, place, offsets, begin, rest, InputIndices());
      begin = rest;
      place = 0;
      ++line;
    } while (begin < M);
    Pointwise::template compute<M>(static_cast<Out*>(this->data[0]) + element, this->operation,
                                   this->matrices, values, InputIndices());
  }

  // Of the inputs that are one run of memory.
  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_whole(Pack<Vector<In, M>...>& values, uint32_t element,
                                             std::index_sequence<INPUT...>) const {
    (((whole >> (INPUT + 1) & 1) != 0
          ? void(get<INPUT>(values) =
                     load_vector<M>(static_cast<const In*>(this->data[INPUT + 1]) + element))
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
          : load_part(get<INPUT>(values),
                      static_cast<const In*>(this->data[INPUT + 1]) + offsets[INPUT + 1] +
                          static_cast<int32_t>(place) *
                              static_cast<int32_t>(this->inner_strides[INPUT + 1]),
                      this->inner_strides[INPUT + 1], begin, end)),
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
    Pointwise::template compute<M>(static_cast<Out*>(this->data[0]) + starts[0] + inner,
                                   this->operation, this->matrices, values, InputIndices());
  }

  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_at(Pack<Vector<In, M>...>& values, int64_t inner,
                                          const int64_t (&starts)[OPERANDS],
                                          std::index_sequence<INPUT...>) const {
    ((get<INPUT>(values) = Base::template load<In, M>(
          INPUT + 1, starts[INPUT + 1] + inner * this->inner_strides[INPUT + 1])),
     ...);
  }

  // A block's steps of a line: step 0 ends where a vector of every operand does.
  __device__ __forceinline__ void walk_uneven(uint32_t block,
                                              const int64_t (&starts)[OPERANDS]) const {
    const int shift = static_cast<int>(static_cast<uint64_t>(starts[0]) % WIDTH);
    const int64_t size = line_size;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t step = block * (THREADS * UNROLL) + threadIdx.x + u * THREADS;
      const int64_t first = step * WIDTH - shift;
      if (first >= 0 && first + WIDTH <= size) {
        compute_at<WIDTH>(first, starts);
      } else {
#pragma unroll 1
        for (int i = 0; i < WIDTH; ++i) {
          if (first + i >= 0 && first + i < size) compute_at<1>(first + i, starts);
        }
      }
    }
  }
};
