#pragma once
// Slices of a tensor that integers pick, as an embedding picks rows of its table:
//
//   result[outer, place, inner] = source[outer, index[place], inner]
//
// where each of the three may be several dimensions. The result is one run of memory, and threads
// write it in order. A negative index counts from the end; one that is out of range is an error on
// the device, as in PyTorch.

#include <algorithm>

#include "dependent_launch.cuh"
#include "divide.cuh"
#include "launch.cuh"
#include "vector.cuh"

// Dimensions that one number counts, the last one first, and how far a step along each moves.
struct GatherRun {
  int rank = 0;
  int64_t count = 1;
  LongDivisor sizes[MAX_RANK];
  int64_t strides[MAX_RANK] = {};

  // Inside of those that are there already; what is one in memory becomes one dimension.
  void add(int64_t size, int64_t stride) {
    count *= size;
    if (size == 1 || count == 0) return;
    const bool joins = rank > 0 && strides[rank - 1] == size * stride;
    const int64_t before = joins ? sizes[rank - 1].value() : 1;
    if (!joins) ++rank;
    sizes[rank - 1] = LongDivisor(before * size);
    strides[rank - 1] = stride;
  }

  bool is_one_run() const { return rank == 0 || (rank == 1 && strides[0] == 1); }

  __device__ __forceinline__ int64_t offset(int64_t number) const {
    int64_t moved = 0;
#pragma unroll 1
    for (int d = rank - 1; d > 0; --d) {
      const int64_t above = sizes[d].quotient(number);
      moved += (number - above * sizes[d].value()) * strides[d];
      number = above;
    }
    // Of the first one there is nothing left to divide.
    return moved + (rank > 0 ? number * strides[0] : 0);
  }
};

template <class T, class Index>
struct GatherProblem {
  T* result;
  const T* source;
  const Index* index;
  GatherRun outer, places, inner;  // of the source, the index and the source
  int64_t size, stride;            // of the source along the dimension that is picked from
  LongDivisor runs;                // accesses of a slice
  LongDivisor place_count;
  int64_t steps;  // accesses of all

  // `out`: contiguous, of the sizes that the others say.
  static GatherProblem describe(const Tensor& out, const Tensor& source, const Tensor& index,
                                int dim) {
    GatherProblem problem;
    problem.result = static_cast<T*>(out.data);
    problem.source = static_cast<const T*>(source.data);
    problem.index = static_cast<const Index*>(index.data);
    problem.size = source.sizes[dim];
    problem.stride = source.strides[dim];
    for (int d = 0; d < dim; ++d) problem.outer.add(source.sizes[d], source.strides[d]);
    for (int d = 0; d < index.rank; ++d) problem.places.add(index.sizes[d], index.strides[d]);
    for (int d = dim + 1; d < source.rank; ++d)
      problem.inner.add(source.sizes[d], source.strides[d]);
    return problem;
  }

  int64_t elements() const { return outer.count * places.count * inner.count; }

  // Whether all accesses are `width` neighbours, aligned.
  bool has_vectors(int width) const {
    const auto is_whole = [&](int64_t stride) { return stride % width == 0; };
    const auto is_aligned = [&](const T* data) {
      return reinterpret_cast<uintptr_t>(data) % (width * sizeof(T)) == 0;
    };
    return inner.is_one_run() && inner.count % width == 0 && is_whole(stride) &&
           std::all_of(outer.strides, outer.strides + outer.rank, is_whole) && is_aligned(result) &&
           is_aligned(source);
  }

  // `width`: elements of an access.
  void divide(int width) {
    runs = LongDivisor(inner.count / width);
    place_count = LongDivisor(places.count);
    steps = elements() / width;
  }
};

// The body of a kernel of THREADS threads, each with UNROLL accesses of WIDTH elements under way.
template <int THREADS, int UNROLL, int WIDTH, class T, class Index>
__device__ __forceinline__ void gather(const GatherProblem<T, Index>& p) {
  wait_for_previous_kernel();
  constexpr int64_t SPAN = THREADS * UNROLL;
#pragma unroll 1
  for (int64_t first = blockIdx.x * SPAN + threadIdx.x; first < p.steps;
       first += gridDim.x * SPAN) {
    Vector<T, WIDTH> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t step = first + u * THREADS;
      if (step >= p.steps) break;
      const int64_t slice = p.runs.quotient(step), outer = p.place_count.quotient(slice);
      const int64_t place = slice - outer * p.place_count.value();
      int64_t at = p.index[p.places.offset(place)];
      if (at < 0) at += p.size;
      if (at < 0 || at >= p.size) __trap();
      const int64_t inner = (step - slice * p.runs.value()) * WIDTH;
      values[u] = load_vector<WIDTH>(p.source + p.outer.offset(outer) + at * p.stride +
                                     (WIDTH > 1 ? inner : p.inner.offset(inner)));
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int64_t step = first + u * THREADS;
      if (step >= p.steps) break;
      store_vector(p.result + step * WIDTH, values[u]);
    }
  }
}

// Starts the kernel for slices of whole vectors, or the one for any strides and alignment.
template <int THREADS, int UNROLL, int WIDTH, class T, class Index>
cudaError_t launch_gather(GatherProblem<T, Index> problem, cudaStream_t stream,
                          void (*vectors)(GatherProblem<T, Index>),
                          void (*any)(GatherProblem<T, Index>)) {
  constexpr int64_t MOST_BLOCKS = (int64_t{1} << 31) - 1;
  if (problem.elements() == 0) return cudaSuccess;
  const bool has_vectors = problem.has_vectors(WIDTH);
  problem.divide(has_vectors ? WIDTH : 1);
  const int64_t blocks = (problem.steps + THREADS * UNROLL - 1) / (THREADS * UNROLL);
  const auto kernel = has_vectors ? vectors : any;
  return launch_dependent(kernel, static_cast<unsigned>(std::min(blocks, MOST_BLOCKS)), THREADS,
                          stream, problem);
}
