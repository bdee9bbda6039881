#pragma once
// A pointwise kernel over lines of neighbours in memory, where some inputs have one element for
// each line. Which ones is known when it is compiled, so that it is short: code comes from memory,
// too, and the first blocks of 134 MB wait for it as long as 2 % of the rest take.

#include "pointwise.cuh"

// `Pointwise` with one more kernel. The config has besides
//   ONES  a bit for each input with one element for a line
template <class Config, class Operation, class Out, class... In>
struct LinePointwise : Pointwise<Config, Operation, Out, In...> {
  using Base = Pointwise<Config, Operation, Out, In...>;
  using Space = typename Base::Space;
  using InputIndices = typename Base::InputIndices;
  static constexpr int THREADS = Base::THREADS, WIDTH = Base::WIDTH, UNROLL = Base::UNROLL;
  static constexpr int OPERANDS = Base::OPERANDS;
  static constexpr unsigned ONES = Config::ONES;

  struct Lines {
    Operation operation;
    uint32_t vectors;  // of a line
    Divisor blocks;    // of a line
    Out* out;
    Pack<const In*...> in;
    int64_t steps[OPERANDS];  // from line to line, in elements
    Matrices matrices;

    __device__ __forceinline__ void run() const {
      wait_for_previous_kernel();
      run_on(InputIndices());
    }

   private:
    template <size_t... INPUT>
    __device__ __forceinline__ void run_on(std::index_sequence<INPUT...>) const {
      const uint32_t line = blocks.quotient(blockIdx.x);
      const uint32_t block = blockIdx.x - line * blocks.value();
      const uint32_t first = block * (THREADS * UNROLL) + threadIdx.x;
      const Pack<const In*...> from = {
          get<INPUT>(in) + int64_t{line} * steps[INPUT + 1] +
          ((ONES >> INPUT & 1) != 0 ? int64_t{0} : int64_t{first} * WIDTH)...};
      // All loads before the first use, so that a thread waits for memory once.
      Pack<Vector<In, WIDTH>...> values[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS < vectors) (load<INPUT>(values[u], from, u), ...);
      }
      Pack<In...> ones = {};
      (load_one<INPUT>(ones, from), ...);
      Out* const to = out + int64_t{line} * steps[0] + int64_t{first} * WIDTH;
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        if (first + u * THREADS < vectors) {
          (repeat_one<INPUT>(values[u], ones), ...);
          Base::template compute<WIDTH>(to + u * THREADS * WIDTH, operation, matrices, values[u],
                                        InputIndices());
        }
      }
    }

    template <size_t INPUT>
    __device__ __forceinline__ void load(Pack<Vector<In, WIDTH>...>& values,
                                         const Pack<const In*...>& from, int u) const {
      if constexpr ((ONES >> INPUT & 1) == 0) {
        get<INPUT>(values) = load_vector<WIDTH>(get<INPUT>(from) + u * THREADS * WIDTH);
      }
    }

    template <size_t INPUT>
    __device__ __forceinline__ void load_one(Pack<In...>& ones,
                                             const Pack<const In*...>& from) const {
      if constexpr ((ONES >> INPUT & 1) != 0) get<INPUT>(ones) = *get<INPUT>(from);
    }

    template <size_t INPUT>
    __device__ __forceinline__ void repeat_one(Pack<Vector<In, WIDTH>...>& values,
                                               const Pack<In...>& ones) const {
      if constexpr ((ONES >> INPUT & 1) != 0) {
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) get<INPUT>(values).element[i] = get<INPUT>(ones);
      }
    }
  };

  // As `Pointwise::launch`; `lines` runs `parameters.run()`, too.
  template <class... Tensors>
  static cudaError_t launch(const typename Base::Kernels& kernels, void (*lines)(Lines),
                            const Operation& operation, cudaStream_t stream, const Tensor& out,
                            const Tensors&... in) {
    const Tensor operands[OPERANDS] = {out, in...};
    const Space space = make_index_space(operands);
    Lines parameters{operation};
    const unsigned blocks = set_lines(space, parameters, InputIndices());
    if (blocks == 0) return Base::launch(kernels, operation, stream, out, in...);
    parameters.matrices = Base::matrices_of(out);
    return launch_dependent(lines, blocks, THREADS, stream, parameters);
  }

 private:
  // The number of blocks, or 0 where these are not lines.
  template <size_t... INPUT>
  static unsigned set_lines(const Space& space, Lines& parameters, std::index_sequence<INPUT...>) {
    if (space.count() == 0 || space.rank > 2 || !Base::has_vector_rows(space)) return 0;
    for (int o = 1; o < OPERANDS; ++o) {
      if ((space.inner_stride(o) == 0) != ((ONES >> (o - 1) & 1) != 0)) return 0;
    }
    const int64_t vectors = space.inner_size() / WIDTH;
    const int64_t lines = space.rank == 2 ? space.sizes[0] : 1;
    if (vectors > Base::MAX_STEPS) return 0;
    const int64_t line_blocks = Base::blocks_for(vectors);
    if (!Base::fills_lines(vectors) || lines * line_blocks > Base::MAX_STEPS) return 0;
    parameters.vectors = static_cast<uint32_t>(vectors);
    parameters.blocks = Divisor(static_cast<uint32_t>(line_blocks));
    parameters.out = reinterpret_cast<Out*>(space.data[0]);
    ((get<INPUT>(parameters.in) = reinterpret_cast<const In*>(space.data[INPUT + 1])), ...);
    for (int o = 0; o < OPERANDS; ++o) {
      parameters.steps[o] = space.rank == 2 ? space.strides[0][o] : 0;
    }
    return static_cast<unsigned>(lines * line_blocks);
  }
};
