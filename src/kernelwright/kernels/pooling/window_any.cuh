#pragma once
// Pooling with any window, of operands of any strides: each thread has one element of the result
// and goes over its window. A config has
//   THREADS  threads of a block

#include "window.cuh"

// The part of a window that lies inside of the source, along one axis.
template <class Axis>
struct Inside {
  // Position of element 0 of the window, and the elements [begin, end) that are inside.
  int64_t first;
  int begin, end;

  __device__ __forceinline__ Inside(int64_t output, int64_t size)
      : first(output * Axis::STRIDE - Axis::PADDING), begin(0), end(Axis::SIZE) {
    while (begin < Axis::SIZE && first + begin * Axis::DILATION < 0) ++begin;
    while (end > begin && first + (end - 1) * Axis::DILATION >= size) --end;
  }
  __device__ __forceinline__ int64_t position(int element) const {
    return first + element * int64_t{Axis::DILATION};
  }
};

template <class Config, class Problem>
__device__ __forceinline__ void window_any(const Problem& problem) {
  wait_for_previous_kernel();
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Place = typename Problem::Place;
  constexpr Pooling POOLING = Operation::POOLING;
  const Extents& result = problem.result;
  const int64_t count = problem.planes * result.depth * result.height * result.width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * Config::THREADS;
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * Config::THREADS + threadIdx.x;
       index < count; index += step) {
    Place at{problem.plane_shape};
    at.plane = divide(index, result.width, at.column);
    at.plane = divide(at.plane, result.height, at.row);
    at.plane = divide(at.plane, result.depth, at.depth);
    int64_t offsets[Problem::OPERANDS];
    problem.locate(at.plane, offsets);
    const Inside<typename Operation::Depth> depths(at.depth, problem.source.depth);
    const Inside<typename Operation::Height> rows(at.row, problem.source.height);
    const Inside<typename Operation::Width> columns(at.column, problem.source.width);
    Value total = neutral_pooled<POOLING, Value>();
    for (int i = depths.begin; i < depths.end; ++i) {
      for (int j = rows.begin; j < rows.end; ++j) {
        Place from{problem.plane_shape, at.plane, depths.position(i), rows.position(j), 0};
        // Each row of the window for itself, so that long sums lose less.
        Value row_total = neutral_pooled<POOLING, Value>();
        for (int k = columns.begin; k < columns.end; ++k) {
          from.column = columns.position(k);
          Value value = problem.pooled_at(offsets, from, typename Problem::BeforeIndices());
          if constexpr (Problem::HAS_WEIGHTS) {
            value *= problem.weight(offsets, i, j, POOLING == Pooling::DOT_LAST ? at.column : k);
          }
          row_total = pool<POOLING>(row_total, value);
        }
        total = pool<POOLING>(total, row_total);
      }
    }
    const Extents& stride = problem.strides[0];
    typename Problem::Out* address = reinterpret_cast<typename Problem::Out*>(problem.data[0]);
    address +=
        offsets[0] + at.depth * stride.depth + at.row * stride.height + at.column * stride.width;
    *address = problem.result_at(offsets, at, total, typename Problem::AfterIndices());
  }
}
