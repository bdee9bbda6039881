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
    wait_for_previous_kernel();
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
  // The vectors of a result that is one run of memory, `steps` elements: all that a thread has are
  // on their way before any of them is used.
  __device__ __forceinline__ void walk_whole() const {
    const uint32_t own = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    Pack<Vector<In, WIDTH>...> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t first = int64_t{own + u * THREADS} * WIDTH;
      if (first + WIDTH <= this->steps)
        load_at_element<WIDTH>(values[u], static_cast<uint32_t>(first));
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t first = int64_t{own + u * THREADS} * WIDTH;
      if (first + WIDTH <= this->steps) {
        write<WIDTH>(static_cast<uint32_t>(first), values[u]);
      } else {
#pragma unroll 1
        for (int64_t element = first; element < this->steps; ++element) {
          Pack<Vector<In, 1>...> single;
          load_at_element<1>(single, static_cast<uint32_t>(element));
          write<1>(static_cast<uint32_t>(element), single);
        }
      }
    }
  }

  template <int M>
  __device__ __forceinline__ void write(uint32_t element,
                                        const Pack<Vector<In, M>...>& values) const {
    Pointwise::template compute<M>(static_cast<Out*>(this->data[0]) + element, this->operation,
                                   this->matrices, values, InputIndices());
  }

  // What the inputs have for M elements of it from `element` on. These are of one line, or of two:
  // none is shorter than a vector.
  template <int M>
  __device__ __forceinline__ void load_at_element(Pack<Vector<In, M>...>& values,
                                                  uint32_t element) const {
    const uint32_t line = line_sizes.quotient(element);
    const uint32_t place = element - line * line_sizes.value();
    const int rest = static_cast<int>(line_sizes.value() - place);
    int32_t offsets[OPERANDS] = {}, next[OPERANDS] = {};
    this->outer.move(line, offsets);
    // The next line's, where the vector goes on there.
    if (rest < M) this->outer.move(line + 1, next);
    load_inputs<M>(values, element, static_cast<int32_t>(place), rest, offsets, next,
                   InputIndices());
  }

  template <int M, size_t... INPUT>
  __device__ __forceinline__ void load_inputs(Pack<Vector<In, M>...>& values, uint32_t element,
                                              int32_t place, int rest,
                                              const int32_t (&offsets)[OPERANDS],
                                              const int32_t (&next)[OPERANDS],
                                              std::index_sequence<INPUT...>) const {
    (load_input(get<INPUT>(values), static_cast<const In*>(this->data[INPUT + 1]), INPUT + 1,
                element, place, rest, offsets[INPUT + 1], next[INPUT + 1]),
     ...);
  }

  template <class T, int M>
  __device__ __forceinline__ void load_input(Vector<T, M>& values, const T* data, int operand,
                                             uint32_t element, int32_t place, int rest,
                                             int32_t offset, int32_t next) const {
    if ((whole >> operand & 1) != 0) {
      values = load_vector<M>(data + element);
      return;
    }
    const auto stride = static_cast<int32_t>(this->inner_strides[operand]);
    // Of this line, and of the next one, what would be the vector's first element.
    const T* const own = data + offset + place * stride;
    const T* const other = rest < M ? data + next - rest * stride : own;
    if (stride == 0) {
      const T value = *own, after = *other;
#pragma unroll
      for (int i = 0; i < M; ++i) values.element[i] = i < rest ? value : after;
      return;
    }
#pragma unroll
    for (int i = 0; i < M; ++i) values.element[i] = (i < rest ? own : other)[i * stride];
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
