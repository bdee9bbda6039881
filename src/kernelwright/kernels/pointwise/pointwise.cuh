#pragma once
// One fused pointwise kernel: out[i] = operation(in0[i], in1[i], ...) over broadcast operands of
// any strides, alignment and size. It moves each byte of its operands once, so memory sets its
// speed.
//
// An operation is a struct whose call operator takes one value of each input, 16-bit types already
// widened to float, and whose members are the run-time scalars. The result of one that is told
// where its element stands (located.cuh) is contiguous. A config has
//   THREADS  threads of a block
//   WIDTH    neighbouring elements moved by one access
//   UNROLL   accesses of every input in flight at once in a thread

#include "convert.cuh"
#include "divide.cuh"
#include "index_space.cuh"
#include "located.cuh"
#include "matrix_place.cuh"
#include "pack.cuh"
#include "pointwise_strided.cuh"
#include "vector.cuh"

template <class Config, class Operation, class Out, class... In>
struct Pointwise {
  static constexpr int THREADS = Config::THREADS;
  static constexpr int WIDTH = Config::WIDTH;
  static constexpr int UNROLL = Config::UNROLL;
  static constexpr int OPERANDS = 1 + static_cast<int>(sizeof...(In));
  static_assert(THREADS % 32 == 0 && THREADS <= 1024, "a block has 1 to 32 whole warps");
  static_assert(UNROLL > 0, "a thread computes at least one vector");

  using Space = IndexSpace<OPERANDS>;
  using InputIndices = std::index_sequence_for<In...>;

  // What goes to `address` and the N - 1 places after it.
  template <int N, size_t... INPUT>
  __device__ __forceinline__ static void compute(Out* address, const Operation& operation,
                                                 const Matrices& matrices,
                                                 const Pack<Vector<In, N>...>& inputs,
                                                 std::index_sequence<INPUT...>) {
    Vector<Out, N> result;
    if constexpr (IsLocated<Operation>::value) {
      MatrixPlace at(matrices, address);
      if (at.column + N <= matrices.columns) {
        // Nearly every vector is part of one row.
#pragma unroll
        for (int i = 0; i < N; ++i) {
          result.element[i] = narrow<Out>(
              operation(at.row, at.column + i, widen(get<INPUT>(inputs).element[i])...));
        }
      } else {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          result.element[i] =
              narrow<Out>(operation(at.row, at.column, widen(get<INPUT>(inputs).element[i])...));
          at.step(matrices);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        result.element[i] = narrow<Out>(operation(widen(get<INPUT>(inputs).element[i])...));
      }
    }
    store_vector(address, result);
  }

  // Every operand is one run of memory: no index arithmetic at all.
  struct Contiguous {
    Operation operation;
    Out* out;
    Pack<const In*...> in;
    int64_t count;
    uint32_t whole_blocks;  // that have a vector for each access of each thread
    Matrices matrices;

    template <int N, size_t... INPUT>
    __device__ __forceinline__ void load(Pack<Vector<In, N>...>& values, int64_t element,
                                         std::index_sequence<INPUT...>) const {
      ((get<INPUT>(values) = load_vector<N>(get<INPUT>(in) + element)), ...);
    }

    __device__ __forceinline__ void run() const {
      wait_for_previous_kernel();
      if (blockIdx.x < whole_blocks) {
        run_whole();
      } else {
        run_last();
      }
    }

   private:
    // Nearly every block: there is nothing to ask.
    __device__ __forceinline__ void run_whole() const {
      constexpr int STEP = THREADS * WIDTH;
      const int64_t first = int64_t{blockIdx.x} * (STEP * UNROLL) + threadIdx.x * WIDTH;
      Pack<Vector<In, WIDTH>...> values[UNROLL];
      // All loads before the first use, so that a thread waits for memory once.
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) load<WIDTH>(values[u], first + u * STEP, InputIndices());
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        compute<WIDTH>(out + first + u * STEP, operation, matrices, values[u], InputIndices());
      }
    }

    // What is left: vectors, and fewer elements than one has.
    __device__ __forceinline__ void run_last() const {
      const int64_t vectors = count / WIDTH;
      const int64_t first = int64_t{blockIdx.x} * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll 1
      for (int u = 0; u < UNROLL; ++u) {
        const int64_t vector = first + u * THREADS;
        if (vector < vectors) run_one<WIDTH>(vector * WIDTH);
      }
      const int64_t rest = vectors * WIDTH + threadIdx.x;
      if (blockIdx.x + 1 == gridDim.x && rest < count) run_one<1>(rest);
    }

    template <int N>
    __device__ __forceinline__ void run_one(int64_t element) const {
      Pack<Vector<In, N>...> values;
      load<N>(values, element, InputIndices());
      compute<N>(out + element, operation, matrices, values, InputIndices());
    }
  };

  template <int N>
  using Indexed = IndexedPointwise<Pointwise, N, Operation, Out, In...>;
  using Rows = Indexed<WIDTH>;
  using Strided = StridedPointwise<Pointwise, WIDTH, Operation, Out, In...>;

  // The kernels that the launcher chooses from; each runs `parameters.run()`.
  struct Kernels {
    void (*contiguous)(Contiguous);
    void (*rows)(Rows);
    void (*strided)(Strided);
  };

  // `in`: one Tensor for each input. Any size; an empty result launches nothing.
  template <class... Tensors>
  static cudaError_t launch(const Kernels& kernels, const Operation& operation, cudaStream_t stream,
                            const Tensor& out, const Tensors&... in) {
    static_assert(sizeof...(Tensors) == sizeof...(In),
                  "a pointwise kernel takes one tensor per input");
    const Tensor operands[OPERANDS] = {out, in...};
    const Space space = make_index_space(operands);
    if (space.count() == 0) return cudaSuccess;
    const Matrices matrices = matrices_of(out);
    if (is_contiguous(space)) {
      return launch_contiguous(kernels, operation, matrices, stream, space, InputIndices());
    }
    if (has_vector_rows(space)) {
      return launch_indexed<WIDTH>(kernels.rows, operation, matrices, stream, space);
    }
    const unsigned whole = whole_operands(space);
    const bool is_uneven = has_uneven_rows(space) && fills_lines(uneven_steps(space));
    // To find what each line has one of takes less time than the edges of all lines.
    if (is_uneven && (whole == 0 || !are_repeated(space, ~whole))) {
      return launch_uneven(kernels.strided, operation, matrices, stream, space);
    }
    if (whole != 0) {
      return launch_whole(kernels.strided, operation, matrices, stream, space, whole);
    }
    if (has_uneven_rows(space) && half_fills_lines(uneven_steps(space))) {
      return launch_uneven(kernels.strided, operation, matrices, stream, space);
    }
    return launch_indexed<1>(kernels.strided, operation, matrices, stream, space);
  }

 protected:
  static constexpr int64_t ELEMENT_BYTES[OPERANDS] = {sizeof(Out), sizeof(In)...};
  static constexpr int64_t MAX_STEPS = (int64_t{1} << 31) - 1;  // what Divisor can divide

  static Matrices matrices_of(const Tensor& out) {
    const int64_t rows = out.rank < 2 ? 1 : out.sizes[out.rank - 2];
    const int64_t columns = out.rank < 1 ? 1 : out.sizes[out.rank - 1];
    Matrices matrices{out.data, rows, columns};
    int64_t count = 1;
    for (int d = 0; d < out.rank; ++d) count *= out.sizes[d];
    matrices.are_short = count > 0 && count <= MAX_STEPS;
    if (matrices.are_short) {
      matrices.by_rows = Divisor(static_cast<uint32_t>(rows));
      matrices.by_columns = Divisor(static_cast<uint32_t>(columns));
    }
    return matrices;
  }

  // Every vector of the operand starts at a multiple of its access width.
  static bool is_aligned(const Space& space, int operand) {
    const int64_t alignment = access_bytes(WIDTH * ELEMENT_BYTES[operand]);
    if (reinterpret_cast<uintptr_t>(space.data[operand]) % alignment != 0) return false;
    for (int d = 0; d + 1 < space.rank; ++d) {
      if (space.strides[d][operand] * ELEMENT_BYTES[operand] % alignment != 0) return false;
    }
    return true;
  }

  static bool is_contiguous(const Space& space) {
    if (space.rank != 1) return false;
    for (int o = 0; o < OPERANDS; ++o) {
      if (space.inner_stride(o) != 1 || !is_aligned(space, o)) return false;
    }
    return true;
  }

  static bool has_vector_rows(const Space& space) {
    if (space.inner_size() % WIDTH != 0 || space.inner_stride(0) != 1) return false;
    for (int o = 0; o < OPERANDS; ++o) {
      if (space.inner_stride(o) == 0) continue;
      if (space.inner_stride(o) != 1 || !is_aligned(space, o)) return false;
    }
    return true;
  }

  // Lines that all operands which are not repeated begin as far behind a vector's beginning.
  static bool has_uneven_rows(const Space& space) {
    if (WIDTH == 1 || space.rank < 2 || space.inner_stride(0) != 1) return false;
    for (int o = 0; o < OPERANDS; ++o) {
      if (space.inner_stride(o) == 0) continue;
      const int64_t bytes = ELEMENT_BYTES[o];
      if (space.inner_stride(o) != 1) return false;
      if (reinterpret_cast<uintptr_t>(space.data[o]) % access_bytes(WIDTH * bytes) != 0)
        return false;
      for (int d = 0; d + 1 < space.rank; ++d) {
        if ((space.strides[d][o] - space.strides[d][0]) % WIDTH != 0) return false;
      }
    }
    const int64_t line_steps = uneven_steps(space);
    const int64_t blocks = space.count() / space.inner_size() * blocks_for(line_steps);
    return space.inner_size() <= MAX_STEPS && blocks <= MAX_STEPS;
  }

  // Operands that are one run of memory, of which vectors begin where the space does, if the result
  // is one of them; else none.
  static unsigned whole_operands(const Space& space) {
    const int64_t count = space.count();
    if (WIDTH == 1 || space.inner_size() < WIDTH || count > MAX_STEPS) return 0;
    unsigned whole = 0;
    for (int o = 0; o < OPERANDS; ++o) {
      const auto address = reinterpret_cast<uintptr_t>(space.data[o]);
      bool is_whole = address % access_bytes(WIDTH * ELEMENT_BYTES[o]) == 0;
      int64_t run = 1, elements = 1, farthest = 0;
      for (int d = space.rank - 1; d >= 0; --d) {
        is_whole = is_whole && space.strides[d][o] == run;
        run *= space.sizes[d];
        if (space.strides[d][o] != 0) elements *= space.sizes[d];
        farthest += (space.sizes[d] - 1) * space.strides[d][o];
      }
      if (is_whole) whole |= 1u << o;
      // Of others a thread reads one element at a time, found with 32 bits: of few, which the cache
      // has, or of neighbours, which the threads of a warp want together.
      const bool is_near = space.inner_stride(o) == 1 || elements <= count / WIDTH;
      if (!is_whole && (o == 0 || !is_near || farthest > MAX_STEPS)) return 0;
    }
    return whole;
  }

  // Whether lines have one element of each of these operands.
  static bool are_repeated(const Space& space, unsigned operands) {
    for (int o = 0; o < OPERANDS; ++o) {
      if ((operands >> o & 1) != 0 && space.inner_stride(o) != 0) return false;
    }
    return true;
  }

  // Whether every operand's elements lie within 31 bits of its first one.
  static bool are_near(const Space& space) {
    for (int o = 0; o < OPERANDS; ++o) {
      double farthest = 0;
      for (int d = 0; d < space.rank; ++d) {
        farthest += static_cast<double>(space.sizes[d]) *
                    static_cast<double>(space.strides[d][o] < 0 ? -space.strides[d][o]
                                                                : space.strides[d][o]);
      }
      if (farthest > static_cast<double>(MAX_STEPS)) return false;
    }
    return true;
  }

  // Vectors that a line may touch.
  static int64_t uneven_steps(const Space& space) {
    return (space.inner_size() + 2 * WIDTH - 2) / WIDTH;
  }

  static unsigned blocks_for(int64_t steps) {
    constexpr int64_t STEPS_PER_BLOCK = int64_t{THREADS} * UNROLL;
    return static_cast<unsigned>((steps + STEPS_PER_BLOCK - 1) / STEPS_PER_BLOCK);
  }

  // Whether blocks that each stay on a line of so many steps have work for nearly all threads.
  static bool fills_lines(int64_t line_steps) {
    return int64_t{blocks_for(line_steps)} * (THREADS * UNROLL) <= line_steps / 8 * 9;
  }

  // Or for half of them, which takes less time than to move elements one by one.
  static bool half_fills_lines(int64_t line_steps) {
    return int64_t{blocks_for(line_steps)} * (THREADS * UNROLL) <= 2 * line_steps;
  }

 private:
  template <size_t... INPUT>
  static cudaError_t launch_contiguous(const Kernels& kernels, const Operation& operation,
                                       const Matrices& matrices, cudaStream_t stream,
                                       const Space& space, std::index_sequence<INPUT...>) {
    Contiguous parameters{operation, reinterpret_cast<Out*>(space.data[0]), {}, space.count(), 0,
                          matrices};
    parameters.whole_blocks =
        static_cast<uint32_t>(space.count() / (int64_t{THREADS} * UNROLL * WIDTH));
    ((get<INPUT>(parameters.in) = reinterpret_cast<const In*>(space.data[INPUT + 1])), ...);
    const unsigned blocks = blocks_for((space.count() + WIDTH - 1) / WIDTH);
    return launch_dependent(kernels.contiguous, blocks, THREADS, stream, parameters);
  }

  template <int N>
  static Indexed<N> describe_indexed(const Operation& operation, const Matrices& matrices,
                                     const Space& space) {
    Indexed<N> parameters{operation, matrices};
    for (int d = 0; d + 1 < space.rank; ++d) parameters.outer.add(space.sizes[d], space.strides[d]);
    for (int o = 0; o < OPERANDS; ++o) {
      parameters.data[o] = space.data[o];
      parameters.inner_strides[o] = space.inner_stride(o);
    }
    parameters.are_near = are_near(space);
    return parameters;
  }

  static cudaError_t launch_uneven(void (*uneven)(Strided), const Operation& operation,
                                   const Matrices& matrices, cudaStream_t stream,
                                   const Space& space) {
    Strided parameters{describe_indexed<1>(operation, matrices, space)};
    const uint32_t line_blocks = blocks_for(uneven_steps(space));
    parameters.line_size = space.inner_size();
    parameters.is_uneven = true;
    parameters.line_blocks = Divisor(line_blocks);
    const int64_t lines = space.count() / space.inner_size();
    return launch_dependent(uneven, static_cast<unsigned>(lines * line_blocks), THREADS, stream,
                            parameters);
  }

  static cudaError_t launch_whole(void (*unbroken)(Strided), const Operation& operation,
                                  const Matrices& matrices, cudaStream_t stream, const Space& space,
                                  unsigned whole) {
    Strided parameters{describe_indexed<1>(operation, matrices, space)};
    parameters.steps = static_cast<uint32_t>(space.count());
    parameters.line_sizes = Divisor(static_cast<uint32_t>(space.inner_size()));
    parameters.whole = whole;
    const unsigned blocks = blocks_for((space.count() + WIDTH - 1) / WIDTH);
    return launch_dependent(unbroken, blocks, THREADS, stream, parameters);
  }

  template <int N, class Parameters>
  static cudaError_t launch_indexed(void (*kernel)(Parameters), const Operation& operation,
                                    const Matrices& matrices, cudaStream_t stream,
                                    const Space& space) {
    const int64_t steps = space.count() / N;
    if (steps > MAX_STEPS) {
      Space halves[2];
      space.halve(N, ELEMENT_BYTES, halves);
      const cudaError_t status = launch_indexed<N>(kernel, operation, matrices, stream, halves[0]);
      if (status != cudaSuccess) return status;
      return launch_indexed<N>(kernel, operation, matrices, stream, halves[1]);
    }
    Parameters parameters{describe_indexed<N>(operation, matrices, space)};
    parameters.steps = static_cast<uint32_t>(steps);
    parameters.inner_steps = Divisor(static_cast<uint32_t>(space.inner_size() / N));
    unsigned blocks = blocks_for(steps);
    const uint32_t line_steps = parameters.inner_steps.value();
    parameters.stays_on_line = N > 1 && fills_lines(line_steps);
    if (parameters.stays_on_line) {
      const uint32_t line_blocks = blocks_for(line_steps);
      parameters.line_blocks = Divisor(line_blocks);
      blocks = static_cast<unsigned>(steps / line_steps) * line_blocks;
    }
    return launch_dependent(kernel, blocks, THREADS, stream, parameters);
  }
};
