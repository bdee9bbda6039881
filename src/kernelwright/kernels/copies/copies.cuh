#pragma once
// Many tensors, each written densely in the order of its own dimensions, in one launch. They are
// small, as filters are whose channels have to lie last: a launch of its own would take longer than
// what it moves.
//
//   result[row, i, j, column] = source[row, i, j, column]
//
// A block writes some columns of one row. Where a source has its columns first and i, j after them
// (a filter as PyTorch keeps it), the block reads its part in one run, turns it in shared memory
// and writes runs of columns. Any other strides are read element by element.

#include <climits>

#include "dependent_launch.cuh"
#include "launch.cuh"
#include "vector.cuh"

template <class T>
struct DenseCopy {
  static constexpr int RANK = 4;

  const T* source;
  T* result;
  int64_t strides[RANK];  // of the source
  int64_t sizes[RANK];
  int columns, parts;  // of a block; blocks of a row
  int first_block;
  bool is_turned, has_vectors;  // the run of a block: whole aligned accesses

  __host__ __device__ __forceinline__ int64_t places() const { return sizes[1] * sizes[2]; }
};

// The copies of a launch.
template <class T, int COUNT>
struct DenseCopies {
  static constexpr int TILE_BYTES = 16 << 10;  // of shared memory
  static constexpr int TILE = TILE_BYTES / sizeof(T);
  static constexpr int WIDTH = 16 / sizeof(T);

  DenseCopy<T> copies[COUNT];
  int64_t blocks = 0;
  bool is_too_large = false;

  static constexpr int MOST = 40;  // `MOST_COPIES`: parameters have 4 KB
  static_assert(COUNT <= MOST && MOST * sizeof(DenseCopy<T>) + 16 <= 4096,
                "one launch's parameters");

  void describe(int at, const Tensor& result, const Tensor& source) {
    DenseCopy<T>& copy = copies[at];
    copy.source = static_cast<const T*>(source.data);
    copy.result = static_cast<T*>(result.data);
    for (int d = 0; d < copy.RANK; ++d) {
      copy.sizes[d] = source.sizes[d];
      copy.strides[d] = source.strides[d];
    }
    const int64_t places = copy.places(), columns = copy.sizes[3];
    is_too_large = is_too_large || copy.sizes[0] > INT_MAX || places > INT_MAX || columns > INT_MAX;
    copy.is_turned = copy.strides[2] == 1 && copy.strides[1] == copy.sizes[2] &&
                     copy.strides[3] == places && places <= TILE / WIDTH;
    const int64_t most = copy.is_turned ? TILE / places / WIDTH * WIDTH : TILE;
    copy.columns = static_cast<int>(columns < most ? columns : most);
    copy.has_vectors = columns % WIDTH == 0 && copy.strides[0] % WIDTH == 0 &&
                       reinterpret_cast<uintptr_t>(copy.source) % 16 == 0;
    const int64_t parts = copy.columns == 0 ? 0 : (columns + copy.columns - 1) / copy.columns;
    copy.parts = static_cast<int>(parts);
    copy.first_block = static_cast<int>(blocks);
    if (places > 0) blocks += copy.sizes[0] * parts;
  }

  cudaError_t launch(void (*kernel)(DenseCopies), int threads, cudaStream_t stream) const {
    if (blocks == 0) return cudaSuccess;
    if (is_too_large || blocks > INT_MAX) return cudaErrorInvalidValue;
    return launch_dependent(kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
                            stream, *this);
  }
};

// tile[0, count) = run[0, count)
template <int THREADS, class T, int WIDTH>
__device__ __forceinline__ void read_run(T* tile, const T* run, int count) {
#pragma unroll 4
  for (int i = threadIdx.x * WIDTH; i < count; i += THREADS * WIDTH) {
    store_vector(tile + i, load_vector<WIDTH>(run + i));
  }
}

template <int THREADS, class T, int COUNT>
__device__ __forceinline__ void copy_densely(const DenseCopies<T, COUNT>& all) {
  using Copies = DenseCopies<T, COUNT>;
  constexpr int LANES = 32, WARPS = THREADS / LANES;
  __shared__ alignas(16) T tile[Copies::TILE];
  const int block = static_cast<int>(blockIdx.x);
  int at = 0;
#pragma unroll 1
  for (int i = 1; i < COUNT; ++i) at = block >= all.copies[i].first_block ? i : at;
  const DenseCopy<T>& copy = all.copies[at];
  const int unit = block - copy.first_block;
  const int row = unit / copy.parts, first = (unit - row * copy.parts) * copy.columns;
  const auto width = static_cast<int>(copy.sizes[3]), places = static_cast<int>(copy.places());
  const int columns = min(copy.columns, width - first);
  const T* const source = copy.source + row * copy.strides[0] + first * copy.strides[3];
  T* const result = copy.result + static_cast<int64_t>(row) * places * width + first;
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  wait_for_previous_kernel();
  if (copy.is_turned) {
    if (copy.has_vectors) {
      read_run<THREADS, T, Copies::WIDTH>(tile, source, columns * places);
    } else {
      read_run<THREADS, T, 1>(tile, source, columns * places);
    }
    __syncthreads();
    for (int place = warp; place < places; place += WARPS) {
      for (int column = lane; column < columns; column += LANES) {
        result[static_cast<int64_t>(place) * width + column] = tile[column * places + place];
      }
    }
    return;
  }
  const auto across = static_cast<int>(copy.sizes[2]);
  for (int place = warp; place < places; place += WARPS) {
    const int i = place / across, j = place - i * across;
    const T* const line = source + i * copy.strides[1] + j * copy.strides[2];
    for (int column = lane; column < columns; column += LANES) {
      result[static_cast<int64_t>(place) * width + column] = line[column * copy.strides[3]];
    }
  }
}
