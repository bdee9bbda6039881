#pragma once
// Host side of attention: what a config takes, its workspace, its kernels in order.

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "attention_sm90.cuh"
#include "launch.cuh"

// A call as PyTorch has it: (batch, head, row, column), of which the first may be missing. What
// there is no mask of has no data.
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

// Kernels of a config: `largest` and `prepare` of float32 operands or `prepare` of those that have
// to be copied, `attend`; `wide` for rows that it has no room for.
template <class Config>
struct AttentionVariant {
  using Tile = AttentionTile<Config>;
  using Plane = typename Tile::Plane;

  void (*largest)(PrepareParameters);
  void (*prepare)(PrepareParameters);
  void (*attend)(AttentionParameters);
  void (*wide)(AttentionParameters);

  static bool admits(const AttentionRequest& request) {
    const AttentionProblem p = problem_of(request);
    constexpr int64_t MOST = int64_t{1} << 30;
    for (const Tensor* tensor : {&request.q, &request.k, &request.v, &request.result}) {
      if (tensor->rank < 2 || tensor->rank > 4) return false;
      for (int d = 0; d < tensor->rank; ++d) {
        if (tensor->sizes[d] > MOST) return false;
      }
    }
    const int64_t tiles = (int64_t{p.rows} + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
    if (tiles * p.batches * p.heads > MOST || request.mask.rank > 4) return false;
    for (const AttentionOperand& operand : p.operands) {
      if (operand.heads == 0 || p.heads % operand.heads != 0) return p.heads == 0;
    }
    return true;
  }

  static int64_t workspace_bytes(const AttentionRequest& request) {
    if (!admits(request)) return 0;
    const AttentionProblem p = problem_of(request);
    if (is_wide(p)) return 0;
    int64_t bytes = header_bytes(p);
    for (int i = 0; i < 3; ++i) bytes += plane_bytes(p.operands[i], is_copied(p.operands[i]));
    return bytes;
  }

  cudaError_t launch(const AttentionRequest& request, void* workspace, cudaStream_t stream) const {
    if (!admits(request)) return cudaErrorNotSupported;
    AttentionParameters p = {};
    p.problem = problem_of(request);
    if (int64_t{p.problem.batches} * p.problem.heads * p.problem.rows * p.problem.width == 0) {
      return cudaSuccess;
    }
    p.tiles = (p.problem.rows + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
    const auto blocks =
        static_cast<unsigned>(int64_t{p.tiles} * p.problem.batches * p.problem.heads);
    if (is_wide(p.problem)) {
      return launch_dependent(wide, blocks, Tile::THREADS, 0, 1, stream, p, false);
    }
    place_room(p, workspace);
    cudaError_t status = prepare_all(p, workspace, stream);
    for (int i = 0; i < 3 && status == cudaSuccess; ++i) status = encode(p, i);
    if (status != cudaSuccess) return status;
    return launch_dependent(attend, blocks, Tile::THREADS, Tile::SHARED_BYTES, 1, stream, p, false);
  }

 private:
  // Of planes: whole runs of 16 bytes.
  static int pitch_of(const AttentionOperand& operand) { return (operand.columns + 7) / 8 * 8; }

  static bool is_wide(const AttentionProblem& p) {
    return p.depth > Tile::DEPTH || p.width > Tile::WIDTH || p.depth == 0 || p.keys == 0;
  }

  // Whether boxes cannot be read where the operand lies.
  static bool is_copied(const AttentionOperand& operand) {
    if (Tile::PLANES == 2) return true;
    constexpr int64_t RUN = 16 / sizeof(Plane), MOST = int64_t{1} << 38;
    bool boxed = reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
    boxed = boxed && (operand.columns == 1 || operand.strides[3] == 1);
    const int sizes[3] = {operand.batches, operand.heads, operand.rows};
    for (int d = 0; d < 3; ++d) {
      const int64_t stride = operand.strides[d];
      boxed = boxed && (sizes[d] == 1 || (stride > 0 && stride % RUN == 0 && stride < MOST));
    }
    return !boxed;
  }

  static int64_t aligned(int64_t bytes) { return (bytes + 127) / 128 * 128; }
  static int64_t plane_bytes(const AttentionOperand& operand, bool is_copied) {
    return is_copied ? aligned(operand.head_count() * operand.rows * pitch_of(operand) *
                               Tile::PLANES * static_cast<int64_t>(sizeof(Plane)))
                     : 0;
  }
  static int64_t head_words(const AttentionProblem& p) {
    int64_t words = 0;
    for (const AttentionOperand& operand : p.operands) words += operand.head_count();
    return words;
  }
  static int64_t header_bytes(const AttentionProblem& p) {
    return Tile::PLANES == 2 ? aligned(head_words(p) * 8) : 0;
  }

  static void place_room(AttentionParameters& p, void* workspace) {
    auto* words = static_cast<uint32_t*>(workspace);
    auto* planes = static_cast<unsigned char*>(workspace) + header_bytes(p.problem);
    const int64_t heads = head_words(p.problem);
    for (int i = 0; i < 3; ++i) {
      const AttentionOperand& operand = p.problem.operands[i];
      p.pitch[i] = pitch_of(operand);
      p.room.largest[i] = words;
      p.room.unfit[i] = words + heads;
      words += operand.head_count();
      const bool copied = is_copied(operand);
      p.room.planes[i] = copied ? planes : nullptr;
      planes += plane_bytes(operand, copied);
    }
  }

  cudaError_t prepare_all(const AttentionParameters& p, void* workspace,
                          cudaStream_t stream) const {
    PrepareParameters prepared = {};
    prepared.problem = p.problem;
    prepared.room = p.room;
    for (int i = 0; i < 3; ++i) {
      const AttentionOperand& operand = p.problem.operands[i];
      prepared.pitch[i] = p.pitch[i];
      const int64_t blocks = (int64_t{operand.rows} + PREPARE_ROWS - 1) / PREPARE_ROWS;
      const int64_t count = p.room.planes[i] != nullptr ? blocks * operand.head_count() : 0;
      prepared.first_block[i + 1] = prepared.first_block[i] + count;
      bool aligned = operand.strides[3] == 1 && operand.columns % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
      for (int d = 0; d < 3; ++d) aligned = aligned && operand.strides[d] % 4 == 0;
      prepared.has_vectors[i] = aligned;
    }
    const int64_t blocks = prepared.first_block[3];
    if (blocks == 0) return cudaSuccess;
    if (blocks > int64_t{1} << 30) return cudaErrorNotSupported;
    const auto grid = static_cast<unsigned>(blocks);
    cudaError_t status = cudaSuccess;
    if (Tile::PLANES == 2) {
      status = cudaMemsetAsync(workspace, 0, static_cast<size_t>(header_bytes(p.problem)), stream);
      if (status == cudaSuccess) {
        status = launch_dependent(largest, grid, ATTENTION_PREPARE_THREADS, 0, 1, stream, prepared,
                                  false);
      }
    }
    if (status != cudaSuccess) return status;
    return launch_dependent(prepare, grid, ATTENTION_PREPARE_THREADS, 0, 1, stream, prepared,
                            false);
  }

  // The boxes of an operand: planes, or the operand itself. Sizes of 1 have any stride.
  static cudaError_t encode(AttentionParameters& p, int number) {
    const AttentionOperand& operand = p.problem.operands[number];
    const bool copied = p.room.planes[number] != nullptr;
    const auto pitch = static_cast<uint64_t>(p.pitch[number]);
    const auto rows = static_cast<uint64_t>(operand.rows);
    const auto heads = static_cast<uint64_t>(operand.heads) * (copied ? Tile::PLANES : 1);
    TensorBox box = {};
    box.type = std::is_same_v<Plane, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    box.rank = 4;
    box.sizes[0] = copied ? pitch : static_cast<uint64_t>(operand.columns);
    box.sizes[1] = rows;
    box.sizes[2] = heads;
    box.sizes[3] = static_cast<uint64_t>(operand.batches);
    const uint64_t own[3] = {pitch, pitch * rows, pitch * rows * heads};
    for (int d = 0; d < 3; ++d) {
      const auto given = static_cast<uint64_t>(operand.strides[2 - d]);
      const uint64_t stride = copied ? own[d] : box.sizes[d + 1] == 1 ? 8 : given;
      box.strides[d] = stride * sizeof(Plane);
    }
    box.box[0] = Tile::BLOCK_COLUMNS;
    box.box[1] = number == 0 ? Tile::BLOCK_M : Tile::BLOCK_N;
    box.box[2] = box.box[3] = 1;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    void* const data = copied ? p.room.planes[number] : const_cast<void*>(operand.data);
    return encode_map(p.maps + number, data, box);
  }

  static AttentionOperand operand_of(const Tensor& tensor) {
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

  static AttentionProblem problem_of(const AttentionRequest& request) {
    AttentionProblem p = {};
    const Tensor* const given[3] = {&request.q, &request.k, &request.v};
    for (int i = 0; i < 3; ++i) p.operands[i] = operand_of(*given[i]);
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
};
