#pragma once
// The workspace of rows in parts: the states of the folds of each part, fold by fold.

#include <cstring>

#include "row_program.cuh"

// Bytes of the states of all folds before FOLD.
template <class Program, int FOLD>
__host__ __device__ __forceinline__ int64_t state_bytes(int64_t states) {
  if constexpr (FOLD == 0) {
    return 0;
  } else {
    using Fold = typename RowTypes<Program>::template FoldAt<FOLD - 1>;
    const int64_t own = states * static_cast<int64_t>(sizeof(typename Fold::State));
    return state_bytes<Program, FOLD - 1>(states) + (own + 15) / 16 * 16;
  }
}

// Where the states of the parts of a row lie.
template <class Program>
struct PartStates {
  char* workspace;
  int64_t rows, parts, row;

  template <int FOLD>
  __device__ __forceinline__ auto of() const {
    using State = typename RowTypes<Program>::template FoldAt<FOLD>::State;
    char* const first = workspace + state_bytes<Program, FOLD>(rows * parts);
    return reinterpret_cast<State*>(first) + row * parts;
  }
};

// What another block has written: not from this multiprocessor's cache.
template <class State>
__device__ __forceinline__ State load_state(const State* state) {
  constexpr int WORDS = sizeof(State) / 4;
  uint32_t words[WORDS];
#pragma unroll
  for (int i = 0; i < WORDS; ++i) words[i] = __ldcg(reinterpret_cast<const uint32_t*>(state) + i);
  State result;
  memcpy(&result, words, sizeof(State));
  return result;
}
