#pragma once
// Loops that carry a value along the first dimension of a result: a thread has an element and takes
// all its steps, with the carried value in a register.
//
// The operation is that of a scan (scan.cuh) with another meaning:
//   prologue(place, first)             the value before the first step
//   epilogue(place, carried, values...)  the value after a step
// A config has
//   AHEAD  steps whose operands are read before the first of them is taken
//   BLOCK  threads of a block

#include "scan.cuh"

template <class Config, class Problem>
struct LoopWalk {
  using Value = typename Problem::Value;
  using Out = typename Problem::Out;
  using Inputs = typename Problem::template AfterVectors<1>;
  static constexpr int OPERANDS = Problem::OPERANDS, AHEAD = Config::AHEAD;

  const Problem& problem;
  int64_t offsets[OPERANDS];  // of the element before any step, in each operand

  template <class T, int OPERAND>
  __device__ __forceinline__ Vector<T, 1> load(int64_t step) const {
    return load_constant_vector<1>(reinterpret_cast<const T*>(problem.data[OPERAND]) +
                                   offsets[OPERAND] + step * problem.steps[OPERAND]);
  }
  template <int FIRST, class... Ts, size_t... AT>
  __device__ __forceinline__ void load_all(Pack<Vector<Ts, 1>...>& inputs, int64_t step,
                                           std::index_sequence<AT...>) const {
    ((get<AT>(inputs) = load<Ts, FIRST + static_cast<int>(AT)>(step)), ...);
  }

  __device__ __forceinline__ void load_steps(Inputs (&inputs)[AHEAD], int64_t first) const {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      if (first + i < problem.length) {
        load_all<Problem::FIRST_AFTER>(inputs[i], first + i, typename Problem::AfterIndices());
      }
    }
  }

  __device__ __forceinline__ Value first_value() const {
    typename Problem::template BeforeVectors<1> inputs;
    load_all<1>(inputs, 0, typename Problem::BeforeIndices());
    Value first[1];
    problem.template accumulated<1>(first, offsets[0], inputs, typename Problem::BeforeIndices());
    return first[0];
  }

  __device__ __forceinline__ void run() const {
    Value carried[1] = {first_value()};
    Inputs now[AHEAD], next[AHEAD];
    load_steps(now, 0);
    for (int64_t first = 0; first < problem.length; first += AHEAD) {
      load_steps(next, first + AHEAD);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (first + i >= problem.length) break;
        const int64_t at = offsets[0] + (first + i) * problem.steps[0];
        const Vector<Out, 1> result =
            problem.template results<1>(carried, at, now[i], typename Problem::AfterIndices());
        store_vector(reinterpret_cast<Out*>(problem.data[0]) + at, result);
        carried[0] = widen(result.element[0]);
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) now[i] = next[i];
    }
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void walk_loop(const Problem& problem) {
  wait_for_previous_kernel();
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; row < problem.rows;
       row += stride) {
    LoopWalk<Config, Problem> walk{problem, {}};
    problem.locate(row, walk.offsets);
    walk.run();
  }
}
