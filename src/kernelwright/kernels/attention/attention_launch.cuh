#pragma once
// Host side of attention: what a config takes, its workspace, its kernels in order.

#include "attention_prepare_launch.cuh"
#include "attention_request.cuh"
#include "attention_sm90.cuh"

// Kernels of a config: `prepare` of float32 operands, after `largest` where heads are cut, or of
// those that have to be copied; `attend`; `wide` for rows that it has no room for.
template <class Config>
struct AttentionVariant {
  using Tile = AttentionTile<Config>;
  using Plane = typename Tile::Plane;

  void (*largest)(PrepareParameters);
  void (*prepare)(PrepareParameters);
  void (*attend)(AttentionParameters);
  void (*wide)(AttentionParameters);

  static bool admits(const AttentionRequest& request) {
    const AttentionProblem p = attention_problem(request);
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
    const AttentionProblem p = attention_problem(request);
    if (is_wide(p)) return 0;
    int64_t bytes = header_bytes(p);
    for (int i = 0; i < 3; ++i) bytes += plane_bytes(p.operands[i], is_copied(p.operands[i]));
    return bytes + mask_bytes(p);
  }

  cudaError_t launch(const AttentionRequest& request, void* workspace, cudaStream_t stream) const {
    if (!admits(request)) return cudaErrorNotSupported;
    AttentionParameters p = {};
    p.problem = attention_problem(request);
    p.packs_results = is_packed(p.problem);
    if (int64_t{p.problem.batches} * p.problem.heads * p.problem.rows * p.problem.width == 0) {
      return cudaSuccess;
    }
    p.tiles = (p.problem.rows + Tile::BLOCK_M - 1) / Tile::BLOCK_M;
    const auto blocks =
        static_cast<unsigned>(int64_t{p.tiles} * p.problem.batches * p.problem.heads);
    if (is_wide(p.problem)) {
      return launch_dependent(wide, blocks, Tile::THREADS, stream, p);
    }
    place_room(p, workspace);
    cudaError_t status = prepare_all(p, workspace, stream);
    for (int i = 0; i < 3 && status == cudaSuccess; ++i) status = encode(p, i);
    if (status == cudaSuccess && Tile::HAS_MASK) status = encode_mask(p);
    if (status != cudaSuccess) return status;
    const unsigned grid = cut_work(p, blocks);
    return launch_dependent(attend, grid, Tile::THREADS, stream, p, Tile::SHARED_BYTES);
  }

 private:
  static constexpr int MASK_RUN = 16 / Tile::MASK_SIZE;

  // Blocks of the launch: one for each tile, or as many as run at a time where these have several
  // rounds.
  static unsigned cut_work(AttentionParameters& p, unsigned tiles) {
    p.units = static_cast<int>(tiles);
    if (Tile::PLANES == 2) return tiles;
    const auto most = static_cast<unsigned>(Tile::BLOCKS * attention_multiprocessors());
    const unsigned heads = tiles / static_cast<unsigned>(p.tiles);
    const unsigned pairs = heads * ((static_cast<unsigned>(p.tiles) + 1) / 2);
    constexpr unsigned ROUNDS = 4;
    if (Config::CAUSAL) {
      if (pairs < ROUNDS * most) return tiles;
      p.is_paired = true;
      p.units = static_cast<int>(pairs);
    }
    return p.units < static_cast<int>(most) ? static_cast<unsigned>(p.units) : most;
  }

  // Of planes: whole runs of 16 bytes.
  static int pitch_of(const AttentionOperand& operand) { return (operand.columns + 7) / 8 * 8; }

  static bool is_wide(const AttentionProblem& p) {
    return p.depth > Tile::DEPTH || p.width > Tile::WIDTH || p.depth == 0 || p.keys == 0;
  }

  // Whether boxes cannot be read where the operand lies.
  static bool is_copied(const AttentionOperand& operand) {
    return Tile::PLANES == 2 || !lies_in_runs(operand, 16 / sizeof(Plane));
  }

  // Whether rows of the result are whole aligned runs of 16 bytes.
  static bool is_packed(const AttentionProblem& p) {
    constexpr int64_t RUN = 16 / sizeof(typename Config::Element);
    bool packed = reinterpret_cast<uintptr_t>(p.result) % 16 == 0 && p.width % RUN == 0 &&
                  p.result_strides[3] == 1;
    for (int d = 0; d < 3; ++d) packed = packed && p.result_strides[d] % RUN == 0;
    return packed;
  }

  static int64_t aligned(int64_t bytes) { return (bytes + 127) / 128 * 128; }
  static int64_t plane_bytes(const AttentionOperand& operand, bool is_copied) {
    return is_copied ? aligned(operand.head_count() * operand.rows * pitch_of(operand) *
                               Tile::PLANES * static_cast<int64_t>(sizeof(Plane)))
                     : 0;
  }
  static int64_t header_bytes(const AttentionProblem& p) {
    return Tile::PLANES == 2 ? aligned(attention_heads(p) * 8) : 0;
  }

  static void place_room(AttentionParameters& p, void* workspace) {
    auto* words = static_cast<uint32_t*>(workspace);
    auto* planes = static_cast<unsigned char*>(workspace) + header_bytes(p.problem);
    const int64_t heads = attention_heads(p.problem);
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
    p.room.mask = is_mask_copied(p.problem) ? planes : nullptr;
  }

  cudaError_t prepare_all(const AttentionParameters& p, void* workspace,
                          cudaStream_t stream) const {
    PrepareParameters prepared = {};
    prepared.problem = p.problem;
    prepared.room = p.room;
    for (int i = 0; i < 3; ++i) {
      const AttentionOperand& operand = p.problem.operands[i];
      prepared.pitch[i] = p.pitch[i];
      bool aligned = operand.strides[3] == 1 && operand.columns % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
      for (int d = 0; d < 3; ++d) aligned = aligned && operand.strides[d] % 4 == 0;
      prepared.has_vectors[i] = aligned;
      prepared.is_turned[i] = is_turned_head(operand);
    }
    bool has_parts = false;
    int shared_bytes = 0;
    if constexpr (Tile::PLANES == 2) {
      has_parts = !gives_heads_whole(prepared);
      if (!has_parts) shared_bytes = share_heads(prepared);
    }
    for (int i = 0; i < 3; ++i) {
      const int64_t count = p.room.planes[i] != nullptr ? prepare_blocks(prepared, i) : 0;
      prepared.first_block[i + 1] = prepared.first_block[i] + count;
    }
    prepared.mask = mask_of(p.problem);
    prepared.mask_pitch = mask_pitch(p.problem);
    const int64_t mask_rows = prepared.mask.head_count() * prepared.mask.rows;
    const int64_t mask_blocks = (mask_rows + MASK_COPY_ROWS - 1) / MASK_COPY_ROWS;
    const int64_t blocks = prepared.first_block[3] + (p.room.mask != nullptr ? mask_blocks : 0);
    if (blocks == 0) return cudaSuccess;
    if (blocks > int64_t{1} << 30) return cudaErrorNotSupported;
    cudaError_t status = cudaSuccess;
    if (has_parts) {
      status = cudaMemsetAsync(workspace, 0, static_cast<size_t>(header_bytes(p.problem)), stream);
      if (status == cudaSuccess) {
        status = launch_dependent(largest, static_cast<unsigned>(prepared.first_block[3]),
                                  ATTENTION_PREPARE_THREADS, stream, prepared);
      }
    }
    if (status != cudaSuccess) return status;
    return launch_dependent(prepare, static_cast<unsigned>(blocks), ATTENTION_PREPARE_THREADS,
                            stream, prepared, shared_bytes);
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

  // The mask as an operand with rows of keys.
  static AttentionOperand mask_of(const AttentionProblem& p) {
    AttentionOperand mask = {};
    const int64_t* const strides = p.mask_strides;
    mask.data = p.mask;
    for (int d = 0; d < 4; ++d) mask.strides[d] = strides[d];
    mask.batches = strides[0] == 0 ? 1 : p.mask_batches;
    mask.heads = strides[1] == 0 ? 1 : p.heads;
    mask.rows = strides[2] == 0 ? 1 : p.rows;
    mask.columns = p.keys;
    return mask;
  }
  static bool is_mask_copied(const AttentionProblem& p) {
    return Tile::HAS_MASK && !lies_in_runs(mask_of(p), MASK_RUN);
  }
  static int64_t mask_pitch(const AttentionProblem& p) {
    return (p.keys + MASK_RUN - 1) / MASK_RUN * MASK_RUN;
  }
  static int64_t mask_bytes(const AttentionProblem& p) {
    const AttentionOperand mask = mask_of(p);
    return is_mask_copied(p)
               ? aligned(mask.head_count() * mask.rows * mask_pitch(p) * Tile::MASK_SIZE)
               : 0;
  }

  static cudaError_t encode_mask(AttentionParameters& p) {
    const AttentionOperand mask = mask_of(p.problem);
    const bool copied = p.room.mask != nullptr;
    p.mask_rows = mask.rows == 1 ? 1 : Tile::BLOCK_M;
    TensorBox box = {};
    box.type = Tile::MASK_SIZE == 1            ? CU_TENSOR_MAP_DATA_TYPE_UINT8
               : Tile::MASK_SIZE == 4          ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
               : std::is_same_v<Plane, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                               : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    box.rank = 4;
    const int sizes[4] = {mask.columns, mask.rows, mask.heads, mask.batches};
    int64_t own = mask_pitch(p.problem);
    for (int d = 0; d < 4; ++d) box.sizes[d] = static_cast<uint64_t>(sizes[d]);
    for (int d = 0; d < 3; ++d) {
      const int64_t given = sizes[d + 1] == 1 ? MASK_RUN : mask.strides[2 - d];
      box.strides[d] = static_cast<uint64_t>((copied ? own : given) * Tile::MASK_SIZE);
      own *= sizes[d + 1];
    }
    box.box[0] = Tile::ROW_BYTES / Tile::MASK_SIZE;
    box.box[1] = static_cast<uint32_t>(p.mask_rows);
    box.box[2] = box.box[3] = 1;
    box.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    return encode_map(p.maps + 3, copied ? p.room.mask : const_cast<void*>(mask.data), box);
  }
};
