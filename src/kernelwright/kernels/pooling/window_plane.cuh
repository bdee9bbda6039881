#pragma once
// Windows of planes that are runs of memory: what the ways to pool them share.

#include "divide.cuh"
#include "window.cuh"

// How many neighbouring planes of this size lie one after the other in an operand's memory: 0 where
// a plane itself is no run of memory.
template <class Problem>
int64_t planes_in_run(const Problem& problem, int operand, const Extents& size) {
  if (reinterpret_cast<uintptr_t>(problem.data[operand]) % Problem::element_bytes(operand) != 0) {
    return 0;
  }
  const Extents& stride = problem.strides[operand];
  int64_t run = 1;
  const auto continues = [&](int64_t own, int64_t step) {
    const bool is_next = own == 1 || step == run;
    run *= own;
    return is_next;
  };
  if (!continues(size.width, stride.width) || !continues(size.height, stride.height) ||
      !continues(size.depth, stride.depth)) {
    return 0;
  }
  int64_t planes = 1;
  for (int d = problem.plane_rank - 1; d >= 0; --d) {
    if (!continues(problem.plane_sizes[d], problem.plane_strides[d][operand])) break;
    planes *= problem.plane_sizes[d];
  }
  return planes;
}

// Whether an operand has planes of this size, one after the other in memory.
template <class Problem>
bool is_run_of_planes(const Problem& problem, int operand, const Extents& size) {
  return planes_in_run(problem, operand, size) == problem.planes;
}

// Pools windows of the first operand, of which a plane is at hand; others have few elements.
template <class Problem>
struct PlaneWindows {
  using Operation = typename Problem::Operation;
  using Value = typename Problem::Value;
  using Place = typename Problem::Place;
  using Depth = typename Operation::Depth;
  using Height = typename Operation::Height;
  using Width = typename Operation::Width;
  template <class T>
  using Own = T;
  template <size_t AT>
  using InAt = std::remove_reference_t<decltype(get<AT>(
      std::declval<typename Problem::template BeforePack<Own>&>()))>;
  static constexpr Pooling POOLING = Operation::POOLING;
  static constexpr int ROWS = Depth::SIZE * Height::SIZE;  // of a window

  const Problem& problem;

  // Whether no window reaches beyond the source.
  static bool are_inside(const Extents& source, const Extents& result) {
    return is_within<Depth>(result.depth, source.depth) &&
           is_within<Height>(result.height, source.height) &&
           is_within<Width>(result.width, source.width);
  }

  // `source`: where the plane would begin.
  template <bool CHECKED, class In>
  __device__ __forceinline__ Value pool_window(const In* source, const Place& place,
                                               const int64_t (&offsets)[Problem::OPERANDS]) const {
    const Extents& size = problem.source;
    Value total = neutral_pooled<POOLING, Value>();
#pragma unroll(ROWS* Width::SIZE <= 32 ? ROWS : 1)
    for (int line = 0; line < ROWS; ++line) {
      const int depth = position<Depth>(place.depth, line / Height::SIZE);
      const int row = position<Height>(place.row, line % Height::SIZE);
      const bool is_line = !CHECKED || (is_in(depth, size.depth) && is_in(row, size.height));
      const In* elements =
          source + (depth * static_cast<int>(size.height) + row) * static_cast<int>(size.width);
      // Each row of the window for itself, so that long sums lose less.
      Value own = neutral_pooled<POOLING, Value>();
#pragma unroll(Width::SIZE <= 32 ? Width::SIZE : 8)
      for (int k = 0; k < Width::SIZE; ++k) {
        const int column = position<Width>(place.column, k);
        if (is_line && (!CHECKED || is_in(column, size.width))) {
          const Place at{place.planes, place.plane, depth, row, column};
          own = pool<POOLING>(
              own, pooled_at(elements[column], offsets, at, typename Problem::BeforeIndices()));
        }
      }
      total = pool<POOLING>(total, own);
    }
    return total;
  }

 private:
  template <class Axis>
  static bool is_within(int64_t result, int64_t source) {
    return Axis::PADDING == 0 && (result - 1) * Axis::STRIDE + Axis::SPAN <= source;
  }

  template <class Axis>
  __device__ __forceinline__ static int position(int64_t output, int k) {
    return static_cast<int>(output) * Axis::STRIDE - Axis::PADDING + k * Axis::DILATION;
  }
  __device__ __forceinline__ static bool is_in(int position, int64_t size) {
    return static_cast<unsigned>(position) < static_cast<unsigned>(size);
  }

  // What is pooled at a position, where the first operand has `element`.
  template <class In, size_t... AT>
  __device__ __forceinline__ Value pooled_at(const In& element,
                                             const int64_t (&offsets)[Problem::OPERANDS],
                                             const Place& at, std::index_sequence<AT...>) const {
    return problem.operation.prologue(at, input<AT>(element, offsets, at)...);
  }
  template <size_t AT, class In>
  __device__ __forceinline__ auto input(const In& element,
                                        const int64_t (&offsets)[Problem::OPERANDS],
                                        const Place& at) const {
    if constexpr (AT == 0) {
      return widen(element);
    } else {
      using Other = InAt<AT>;
      return widen(problem.template load<Other, 1 + AT>(offsets[1 + AT], at));
    }
  }
};
