#pragma once
// Host side of attention_prepare.cuh: whether a warp, a block or several blocks have a head.

#include <algorithm>

#include "attention_prepared.cuh"
#include "attention_request.cuh"

// Heads of a block that reads them once, and a head of one that reads it twice.
constexpr int64_t KEPT_HEAD_BYTES = 72 << 10, MOST_HEAD_BYTES = 256 << 10;

// Of all operands.
inline int64_t attention_heads(const AttentionProblem& p) {
  int64_t heads = 0;
  for (const AttentionOperand& operand : p.operands) heads += operand.head_count();
  return heads;
}

// Bytes of a head in shared memory.
inline int64_t kept_head_bytes(const PrepareParameters& p, int number, int threads) {
  return int64_t{PreparedTurns(p, number, threads).runs()} * 16;
}

// Whether lanes side by side read rows side by side: so lie heads of convolutions.
inline bool is_turned_head(const AttentionOperand& operand) {
  return operand.strides[2] == 1 && operand.strides[3] != 1 && operand.columns % 4 == 0;
}

// Whether no head is cut. What is read twice takes long: blocks should be as many as
// multiprocessors.
inline bool gives_heads_whole(const PrepareParameters& p) {
  const bool fills = attention_heads(p.problem) >= attention_multiprocessors();
  const int64_t most = fills ? MOST_HEAD_BYTES : KEPT_HEAD_BYTES;
  bool whole = true;
  for (int i = 0; i < 3; ++i) {
    const int64_t room = p.is_turned[i] ? KEPT_HEAD_BYTES : most;
    whole = whole && (p.has_vectors[i] || p.is_turned[i]) &&
            p.pitch[i] <= PreparedTurns::MOST_COLUMNS &&
            kept_head_bytes(p, i, ATTENTION_PREPARE_THREADS) <= room;
  }
  return whole;
}

// Gives heads to blocks, or to warps where they are small and many: a block has little to do then.
// Bytes of shared memory of a block.
inline int share_heads(PrepareParameters& p) {
  constexpr int WARPS = ATTENTION_PREPARE_THREADS / 32;
  int64_t shared_bytes = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t of_warps = WARPS * kept_head_bytes(p, i, 32);
    const int64_t heads = p.problem.operands[i].head_count();
    const bool is_warp =
        of_warps <= KEPT_HEAD_BYTES && heads >= int64_t{WARPS} * attention_multiprocessors();
    p.head_threads[i] = is_warp ? 32 : ATTENTION_PREPARE_THREADS;
    const int64_t bytes = is_warp ? of_warps : kept_head_bytes(p, i, ATTENTION_PREPARE_THREADS);
    p.is_kept[i] = bytes <= KEPT_HEAD_BYTES;
    if (p.is_kept[i]) shared_bytes = std::max(shared_bytes, bytes);
  }
  return static_cast<int>(shared_bytes);
}

// Blocks that an operand has.
inline int64_t prepare_blocks(const PrepareParameters& p, int number) {
  const AttentionOperand& operand = p.problem.operands[number];
  const int64_t heads = operand.head_count();
  if (p.head_threads[number] == 0) {
    return (int64_t{operand.rows} + PREPARE_ROWS - 1) / PREPARE_ROWS * heads;
  }
  const int heads_each = ATTENTION_PREPARE_THREADS / p.head_threads[number];
  return (heads + heads_each - 1) / heads_each;
}
