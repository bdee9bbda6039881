#pragma once
// Host side of attention_few.cuh: which calls have few rows, and their one kernel.

#include "attention_few.cuh"
#include "attention_launch.cuh"

// A config's kernels, and the one for few rows.
template <class Config>
struct AttentionFewVariant {
  using Others = AttentionVariant<Config>;
  using Tile = FewTile<Config>;

  static constexpr int RUN = 16 / sizeof(typename Config::Element);

  Others others;
  void (*few)(FewParameters);

  static bool admits(const AttentionRequest& request) { return Others::admits(request); }

  static int64_t workspace_bytes(const AttentionRequest& request) {
    if (!admits(request) || is_few(attention_problem(request))) return 0;
    return Others::workspace_bytes(request);
  }

  cudaError_t launch(const AttentionRequest& request, void* workspace, cudaStream_t stream) const {
    if (!admits(request)) return cudaErrorNotSupported;
    const AttentionProblem problem = attention_problem(request);
    return is_few(problem) ? launch_few(problem, stream)
                           : others.launch(request, workspace, stream);
  }

 private:
  // Heads of q that have keys in common.
  static int group_of(const AttentionProblem& p) { return p.heads / p.operands[1].heads; }

  static bool is_few(const AttentionProblem& p) {
    const bool is_empty = int64_t{p.batches} * p.heads * p.rows * p.width == 0;
    return !is_empty && p.operands[1].heads == p.operands[2].heads &&
           int64_t{group_of(p)} * p.rows <= Tile::ROWS && p.depth <= Tile::COLUMNS &&
           p.width <= Tile::PADDED;
  }

  static int steps_each(int64_t steps, int splits) {
    return static_cast<int>((steps + splits - 1) / splits);
  }

  // Rounds of blocks, in steps of a multiprocessor that memory keeps busy. The blocks of a cluster
  // are of one group of multiprocessors.
  static int64_t time_of(int64_t heads, int each, int splits, int64_t multiprocessors) {
    constexpr int64_t GROUP = 16, BESIDES = 2;  // steps that a round takes to begin and to end
    const int64_t blocks = heads * splits;
    const int64_t fitting = Tile::MOST_BYTES / Tile::shared_bytes(each, splits);
    const int64_t most = fitting < Tile::BLOCKS ? fitting : Tile::BLOCKS;
    const int64_t groups = multiprocessors / GROUP;
    const int64_t at_once = splits > 1 && groups > 0 ? groups * (most * GROUP / splits) * splits
                                                     : most * multiprocessors;
    const int64_t busy = (blocks + multiprocessors - 1) / multiprocessors;
    const int64_t rounds = (blocks + at_once - 1) / at_once;
    return rounds * (each * (busy < most ? busy : most) + BESIDES);
  }

  // Parts of the keys for which that is shortest.
  static int splits_of(int64_t heads, int64_t steps) {
    const int multiprocessors = attention_multiprocessors();
    int best = 1;
    int64_t least = time_of(heads, static_cast<int>(steps), 1, multiprocessors);
    for (int splits = 2; splits <= Tile::MOST_SPLITS && splits <= steps; ++splits) {
      const int each = steps_each(steps, splits);
      if (Tile::shared_bytes(each, splits) > Tile::MOST_BYTES) continue;
      const int64_t time = time_of(heads, each, splits, multiprocessors);
      if (time >= least) continue;
      best = splits;
      least = time;
    }
    return best;
  }

  cudaError_t launch_few(const AttentionProblem& problem, cudaStream_t stream) const {
    FewParameters p = {};
    p.problem = problem;
    p.group = group_of(problem);
    for (int i = 0; i < 3; ++i) {
      const AttentionOperand& operand = problem.operands[i];
      p.has_vectors[i] = lies_in_runs(operand, RUN) && operand.columns % RUN == 0;
    }
    const int64_t heads = int64_t{problem.batches} * (problem.heads / p.group);
    const int64_t steps = (int64_t{problem.keys} + Tile::STEP - 1) / Tile::STEP;
    p.splits = splits_of(heads, steps);
    const int each = steps_each(steps, p.splits);
    p.keys_each = each * Tile::STEP;
    p.room_bytes = Tile::room_bytes(each);
    const cudaError_t status = cudaFuncSetAttribute(
        reinterpret_cast<const void*>(few), cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (status != cudaSuccess) return status;
    const int64_t blocks = heads * p.splits;
    if (blocks > int64_t{1} << 30) return cudaErrorNotSupported;
    return launch_dependent(few, static_cast<unsigned>(blocks), Tile::THREADS, stream, p,
                            Tile::shared_bytes(each, p.splits), p.splits);
  }
};
