#pragma once
// How products of the same few rows (joint_products.cuh) are launched: layouts of their results,
// and blocks that all have as many turns.

#include "dependent_launch.cuh"
#include "joint_products.cuh"

// The layout of a product's own result.
inline JointLayout plain_layout(const Tensor& out) {
  JointLayout layout;
  for (int d = 0; d < out.rank - 1; ++d) layout.rows[d] = out.rank - d;
  return layout;
}

// A tensor of which dimension `dim` is two: halves, and places in a half.
inline Tensor in_halves(const Tensor& tensor, int dim) {
  Tensor result = unsqueezed(tensor, dim);
  result.sizes[dim] = 2;
  result.sizes[dim + 1] = tensor.sizes[dim] / 2;
  result.strides[dim] = tensor.strides[dim] * result.sizes[dim + 1];
  return result;
}

template <class Config, class Problem>
struct JointVariant {
  using Tile = JointTile<Config, Problem>;
  static constexpr int THREADS = Tile::THREADS;
  void (*kernel)(Problem);
  void (*any)(Problem);

  cudaError_t launch(const Problem& problem, cudaStream_t stream) const {
    if (!problem.is_countable) return cudaErrorNotSupported;
    const int64_t rows = problem.places.count;
    const int64_t units = int64_t{problem.turns} * ((rows + Tile::ROWS - 1) / Tile::ROWS);
    if (units == 0) return cudaSuccess;
    if (units > int64_t{1} << 30) return cudaErrorNotSupported;
    const int64_t bytes = Tile::shared_bytes(problem.k, rows);
    constexpr int64_t BESIDES = 1024;  // of a block
    const int64_t fitting = Config::ROOM / (bytes + BESIDES);
    const int64_t resident = fitting < Config::RESIDENT ? fitting : Config::RESIDENT;
    // As many turns for each block as for others.
    const int64_t at_once = (resident > 1 ? resident : 1) * Config::MULTIPROCESSORS;
    const int64_t rounds = (units + at_once - 1) / at_once;
    const int64_t blocks = (units + rounds - 1) / rounds;
    return launch_dependent(problem.has_vectors ? kernel : any, static_cast<unsigned>(blocks),
                            THREADS, stream, problem, static_cast<int>(bytes));
  }
};
