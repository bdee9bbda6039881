#pragma once
// Moments of the columns of a float32 matrix that lies in memory, in any number of parts
// (column_moments.cuh): for results of kernels that do not make them.

#include "column_moments.cuh"
#include "dependent_launch.cuh"

struct ColumnMoments {
  float* states;        // [parts][columns][MOMENT_WORDS]
  const float* matrix;  // [rows][columns]
  int64_t rows, columns, parts;
  int64_t pitch;      // states from a part to the next one
  int64_t row_pitch;  // numbers from a row to the next one

  static constexpr int THREADS = 256;

  unsigned blocks() const {
    return static_cast<unsigned>((parts * columns + THREADS - 1) / THREADS);
  }
};

// Each thread has a column of a part.
__device__ __forceinline__ void moments_of_columns(const ColumnMoments& moments) {
  wait_for_previous_kernel();
  const int64_t unit = blockIdx.x * int64_t{ColumnMoments::THREADS} + threadIdx.x;
  if (unit >= moments.parts * moments.columns) return;
  const int64_t part = unit / moments.columns, column = unit - part * moments.columns;
  const int64_t begin = moments.rows * part / moments.parts;
  const int64_t end = moments.rows * (part + 1) / moments.parts;
  const float* const own = moments.matrix + column;
  float sum = 0.0f, squares = 0.0f;
  for (int64_t row = begin; row < end; ++row) sum += own[row * moments.row_pitch];
  const auto count = static_cast<float>(end - begin);
  const float mean = end > begin ? sum / count : 0.0f;
  for (int64_t row = begin; row < end; ++row) {
    const float distance = own[row * moments.row_pitch] - mean;
    squares += distance * distance;
  }
  float* const to = moments.states + (part * moments.pitch + column) * MOMENT_WORDS;
  to[0] = count;
  to[1] = mean;
  to[2] = squares;
}

using MomentKernel = void (*)(ColumnMoments);

inline cudaError_t launch_moments(MomentKernel kernel, const ColumnMoments& moments,
                                  cudaStream_t stream) {
  return launch_dependent(kernel, moments.blocks(), ColumnMoments::THREADS, stream, moments);
}
