#pragma once
// A factor of a product as the tensor cores want it: 16-bit planes of one orientation and pitch.

#include <cstdint>

#include "gemm_paired.cuh"
#include "gemm_problem.cuh"
#include "gemm_tile.cuh"
#include "tma.cuh"

// Rows of a plane start at multiples of 128 bytes: boxes that straddle two such lines cost 5 %.
constexpr int64_t PLANE_PITCH = 64;

// Place of column k: of each 16, columns 4q to 4q + 3 go to 2q, 2q + 1, 2q + 8 and 2q + 9.
__host__ __device__ constexpr int64_t permuted_k(int64_t k) {
  const int64_t in_step = k % 16, in_run = k % 4;
  return k - in_step + in_step / 4 * 2 + in_run % 2 + in_run / 2 * 8;
}

// One factor: `inner` runs along the dimension in which its planes are contiguous, `outer` along
// the other of its two; batches that it repeats are counted once.
struct Factor {
  const void* data;
  int64_t inner, outer, batches;
  int64_t inner_stride, outer_stride;
  int64_t plane_inner, plane_outer, pitch;  // of the planes
  // Planes number K within steps of 16 as gemm_sm90_raw.cuh reads the other factor.
  [[maybe_unused]] bool permutes_inner = false, permutes_outer = false;
  // Planes share lines, see gemm_paired.cuh, and these are where the factor lies: nothing is split.
  [[maybe_unused]] bool in_lines = false, in_place = false;
  [[maybe_unused]] int batch_rank = 0;
  [[maybe_unused]] int64_t batch_sizes[MAX_BATCH_RANK] = {};
  [[maybe_unused]] int64_t batch_strides[MAX_BATCH_RANK] = {};
  // With more than one, its batches are those of products together, which lie so far apart.
  [[maybe_unused]] int together = 1;
  [[maybe_unused]] int64_t apart[MOST_TOGETHER] = {};

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
    if constexpr (ANY_BATCHES) {
      for (int d = 0; d < problem.batch_rank; ++d) {
        if (operand.batch_strides[d] == 0) continue;
        factor.batch_sizes[factor.batch_rank] = problem.batch_sizes[d];
        factor.batch_strides[factor.batch_rank++] = operand.batch_strides[d];
        factor.batches *= problem.batch_sizes[d];
      }
    }
    if constexpr (ANY_TOGETHER) {
      if (operand.batch_strides[0] != 0) factor.together = problem.together;
      for (int p = 0; p < factor.together; ++p) factor.apart[p] = operand.apart[p];
    }
    factor.plane_inner = factor.inner;
    factor.plane_outer = factor.outer;
    factor.pitch = (factor.plane_inner + PLANE_PITCH - 1) / PLANE_PITCH * PLANE_PITCH;
    return factor;
  }

  // With planes that fill whole steps of K.
  Factor permuted(Major major) const {
    Factor factor = *this;
    factor.permutes_inner = major == Major::K;
    factor.permutes_outer = major != Major::K;
    int64_t& plane_k = major == Major::K ? factor.plane_inner : factor.plane_outer;
    plane_k = (plane_k + 15) / 16 * 16;
    factor.pitch = (factor.plane_inner + PLANE_PITCH - 1) / PLANE_PITCH * PLANE_PITCH;
    return factor;
  }

  // With planes that share lines, which they fill.
  Factor paired(bool in_place) const {
    Factor factor = *this;
    factor.in_lines = true;
    factor.in_place = in_place;
    factor.plane_inner = (factor.inner + PAIRED_LINE - 1) / PAIRED_LINE * PAIRED_LINE;
    return factor;
  }
  // The factor of floats that would lie where the lines of its planes do.
  Factor of_lines(void* planes) const {
    Factor factor = *this;
    factor.data = in_place ? data : planes;
    factor.inner = plane_inner;
    factor.outer_stride = in_place ? inner : pitch;
    factor.batch_strides[0] = outer * factor.outer_stride;
    return factor;
  }

  __host__ __device__ int64_t plane_elements() const { return plane_outer * pitch; }

  // Of batch number `batch` of its own batches.
  __device__ __forceinline__ int64_t batch_offset(uint32_t batch) const {
    if (ANY_TOGETHER && together > 1) return apart[batch];
    int64_t offset = 0;
#pragma unroll
    for (int d = MAX_BATCH_RANK - 1; d >= 0; --d) {
      if (d < batch_rank) {
        const auto size = static_cast<uint32_t>(batch_sizes[d]);
        offset += batch % size * batch_strides[d];
        batch /= size;
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
