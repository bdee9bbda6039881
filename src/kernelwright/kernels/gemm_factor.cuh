#pragma once
// A factor of a product as the tensor cores want it: 16-bit planes of one orientation and pitch.

#include <cstdint>

#include "gemm_problem.cuh"
#include "gemm_tile.cuh"
#include "tma.cuh"

// Rows of a plane start at multiples of 128 bytes: boxes that straddle two such lines cost 5 %.
constexpr int64_t PLANE_PITCH = 64;

// One factor: `inner` runs along the dimension in which its planes are contiguous, `outer` along
// the other of its two; batches that it repeats are counted once.
struct Factor {
  const void* data;
  int64_t inner, outer, batches;
  int64_t inner_stride, outer_stride;
  int batch_rank;
  int64_t batch_sizes[MAX_BATCH_RANK];
  int64_t batch_strides[MAX_BATCH_RANK];
  int64_t pitch;  // of the planes

  // Of `operand`, whose own dimension has `size` elements.
  template <class Problem>
  static Factor of(const Problem& problem, const MatrixOperand& operand, Major major, int64_t size,
                   int64_t own_stride, int64_t k_stride) {
    Factor factor = {};
    const bool along_k = major == Major::K;
    factor.data = operand.data;
    factor.inner = along_k ? problem.k : size;
    factor.outer = along_k ? size : problem.k;
    factor.inner_stride = along_k ? k_stride : own_stride;
    factor.outer_stride = along_k ? own_stride : k_stride;
    factor.batches = 1;
    for (int d = 0; d < problem.batch_rank; ++d) {
      if (operand.batch_strides[d] == 0) continue;
      factor.batch_sizes[factor.batch_rank] = problem.batch_sizes[d];
      factor.batch_strides[factor.batch_rank++] = operand.batch_strides[d];
      factor.batches *= problem.batch_sizes[d];
    }
    factor.pitch = (factor.inner + PLANE_PITCH - 1) / PLANE_PITCH * PLANE_PITCH;
    return factor;
  }

  int64_t plane_elements() const { return outer * pitch; }

  // Of batch number `batch` of its own batches.
  __device__ __forceinline__ int64_t batch_offset(int64_t batch) const {
    int64_t offset = 0;
#pragma unroll
    for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
      if (d < batch_rank) {
        offset += batch % batch_sizes[d] * batch_strides[d];
        batch /= batch_sizes[d];
      }
    }
    return offset;
  }
};

// Where a batch of the result finds its planes: one factor of each batch dimension, 0 for repeated
// ones.
template <class Problem>
void set_batch_steps(const Problem& problem, const MatrixOperand& operand,
                     int (&steps)[MAX_BATCH_RANK]) {
  int64_t step = 1;
  for (int d = problem.batch_rank - 1; d >= 0; --d) {
    const bool own = operand.batch_strides[d] != 0;
    steps[d] = own ? static_cast<int>(step) : 0;
    if (own) step *= problem.batch_sizes[d];
  }
}
