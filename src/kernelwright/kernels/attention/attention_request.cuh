#pragma once
// Host side of attention: a call as PyTorch has it, and the problem that kernels take.

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "attention_problem.cuh"
#include "launch.cuh"

// (batch, head, row, column), of which the first may be missing. What there is no mask of has no
// data.
struct AttentionRequest {
  Tensor q, k, v, mask, result;
  double scale;  // 0: one over the root of the depth
};

// A dimension counted from the last one, from 0.
inline int64_t size_from_end(const Tensor& tensor, int place) {
  return place < tensor.rank ? tensor.sizes[tensor.rank - 1 - place] : 1;
}
// 0 where all places have the same element.
inline int64_t stride_from_end(const Tensor& tensor, int place) {
  return size_from_end(tensor, place) == 1 ? 0 : tensor.strides[tensor.rank - 1 - place];
}

// A tensor whose dimension order[d] is dimension d of the given one.
inline Tensor in_order(const Tensor& given, std::initializer_list<int> order) {
  Tensor tensor = given;
  int d = 0;
  for (const int to : order) {
    tensor.sizes[to] = given.sizes[d];
    tensor.strides[to] = given.strides[d++];
  }
  return tensor;
}

inline AttentionOperand attention_operand(const Tensor& tensor) {
  AttentionOperand operand = {};
  operand.data = tensor.data;
  operand.batches = static_cast<int>(size_from_end(tensor, 3));
  operand.heads = static_cast<int>(size_from_end(tensor, 2));
  operand.rows = static_cast<int>(size_from_end(tensor, 1));
  operand.columns = static_cast<int>(size_from_end(tensor, 0));
  for (int d = 0; d < 4; ++d) operand.strides[d] = stride_from_end(tensor, 3 - d);
  // All elements of such a dimension are one.
  if (operand.strides[0] == 0 && operand.batches > 0) operand.batches = 1;
  if (operand.columns == 1) operand.strides[3] = 1;
  return operand;
}

inline AttentionProblem attention_problem(const AttentionRequest& request) {
  AttentionProblem p = {};
  const Tensor* const given[3] = {&request.q, &request.k, &request.v};
  for (int i = 0; i < 3; ++i) p.operands[i] = attention_operand(*given[i]);
  p.batches = static_cast<int>(size_from_end(request.result, 3));
  p.heads = static_cast<int>(size_from_end(request.result, 2));
  p.rows = p.operands[0].rows;
  p.keys = p.operands[1].rows;
  p.depth = p.operands[1].columns;
  p.width = p.operands[2].columns;
  p.mask = request.mask.data;
  p.mask_batches = static_cast<int>(std::max<int64_t>(size_from_end(request.mask, 3), 1));
  p.result = request.result.data;
  for (int d = 0; d < 4; ++d) {
    p.mask_strides[d] = stride_from_end(request.mask, 3 - d);
    p.result_strides[d] = stride_from_end(request.result, 3 - d);
  }
  const double root = 1.0 / std::sqrt(static_cast<double>(p.depth));
  p.scale = static_cast<float>(request.scale == 0 ? root : request.scale);
  return p;
}

// Whether rows are next to each other in memory and, with whatever is above them, in whole aligned
// runs of `run` elements, 16 bytes: boxes and vectors can be read.
inline bool lies_in_runs(const AttentionOperand& operand, int64_t run) {
  constexpr int64_t MOST = int64_t{1} << 38;
  bool lies = reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
  lies = lies && (operand.columns == 1 || operand.strides[3] == 1);
  const int sizes[3] = {operand.batches, operand.heads, operand.rows};
  for (int d = 0; d < 3; ++d) {
    const int64_t stride = operand.strides[d];
    lies = lies && (sizes[d] == 1 || (stride > 0 && stride % run == 0 && stride < MOST));
  }
  return lies;
}

inline int attention_multiprocessors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}
