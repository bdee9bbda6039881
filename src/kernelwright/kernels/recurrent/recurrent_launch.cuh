#pragma once
// Host side of recurrent layers: what a config takes, its workspace, its kernels in order.

#include "launch.cuh"
#include "recurrent_prepare.cuh"
#include "recurrent_sm90.cuh"

// A call as PyTorch has it, time before batch: x (steps, batch, inputs), y (steps, batch,
// directions
// * hidden), states (layers * directions, batch, hidden). Tensors that are not there have no data.
struct RecurrentRequest {
  Tensor x, first_hidden, first_cell, y, last_hidden, last_cell;
  int layers, hidden;
  Tensor weights[MAX_LAYERS][4];  // of inputs and hidden states, their biases

  int64_t steps() const { return x.sizes[0]; }
  int64_t batch() const { return x.sizes[1]; }
  int64_t inputs() const { return x.sizes[2]; }
};

// A sequence whose batch comes before its steps, with the steps first.
inline void swap_first_dimensions(Tensor& sequence) {
  const int64_t size = sequence.sizes[0], stride = sequence.strides[0];
  sequence.sizes[0] = sequence.sizes[1];
  sequence.strides[0] = sequence.strides[1];
  sequence.sizes[1] = size;
  sequence.strides[1] = stride;
}

// Three kernels and zeros before them: `extremes`, `inputs`, `steps`.
template <class Config>
struct RecurrentVariant {
  using Tile = RecurrentTile<Config>;
  using Kernel = void (*)(RecurrentParameters);
  static constexpr unsigned PREPARE_BLOCKS = 264;

  Kernel extremes, inputs, steps;

  // Whether the sizes are ones that the config has room for. A card that runs no such cluster
  // refuses the launch.
  static bool admits(const RecurrentRequest& request) {
    constexpr int64_t MOST = int64_t{1} << 30;
    const int64_t above = request.layers > 1 ? int64_t{Tile::DIRECTIONS} * Tile::PART : 0;
    return request.x.rank == 3 && request.layers >= 1 && request.hidden >= 1 &&
           request.layers * Tile::DIRECTIONS <= MAX_LAYERS && request.hidden <= Tile::PART &&
           request.inputs() >= 1 && request.inputs() <= Tile::INPUTS && above <= Tile::INPUTS &&
           request.steps() >= 1 && request.steps() < MOST && request.batch() >= 1 &&
           lanes(request) * Tile::CLUSTER < MOST;
  }

  static int64_t workspace_bytes(const RecurrentRequest& request) {
    return header_bytes(request) + input_bytes(request) +
           lanes(request) * request.steps() * Tile::RECORD_BYTES;
  }

  cudaError_t launch(const RecurrentRequest& request, void* workspace, cudaStream_t stream) const {
    if (request.batch() == 0) return cudaSuccess;
    if (!admits(request)) return cudaErrorNotSupported;
    const RecurrentParameters parameters = {problem_of(request), room_of(request, workspace)};
    cudaError_t status =
        cudaMemsetAsync(workspace, 0, static_cast<size_t>(header_bytes(request)), stream);
    for (const Kernel kernel : {extremes, inputs}) {
      if (status != cudaSuccess) return status;
      status = launch_dependent(kernel, PREPARE_BLOCKS, PREPARE_THREADS, stream, parameters);
    }
    if (status == cudaSuccess) status = allow_clusters();
    if (status != cudaSuccess) return status;
    return launch_dependent(steps, static_cast<unsigned>(lanes(request) * Tile::CLUSTER),
                            Tile::THREADS, stream, parameters, Tile::SHARED_BYTES, Tile::CLUSTER);
  }

 private:
  // Clusters of 16 blocks are given only on request.
  cudaError_t allow_clusters() const {
    if (Tile::CLUSTER <= 8) return cudaSuccess;
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(steps),
                                cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  }

  static int64_t slices(const RecurrentRequest& request) {
    return (request.batch() + Tile::BATCH - 1) / Tile::BATCH;
  }
  static int64_t lanes(const RecurrentRequest& request) {
    return slices(request) * request.layers * Tile::DIRECTIONS;
  }

  // Zeros: 128 bytes of ticket and extremes, then the flags.
  static constexpr int64_t FIRST_FLAG = 128;
  static int64_t header_bytes(const RecurrentRequest& request) {
    return (FIRST_FLAG + lanes(request) * Tile::CLUSTER * 4 + 127) / 128 * 128;
  }
  static int64_t input_bytes(const RecurrentRequest& request) {
    return request.steps() * slices(request) * Tile::X_BYTES;
  }

  static RecurrentRoom room_of(const RecurrentRequest& request, void* workspace) {
    auto* const first = static_cast<unsigned char*>(workspace);
    unsigned char* const inputs = first + header_bytes(request);
    return {reinterpret_cast<uint32_t*>(first), reinterpret_cast<Extremes*>(first + 16),
            reinterpret_cast<uint32_t*>(first + FIRST_FLAG), inputs, inputs + input_bytes(request)};
  }

  static StepTensor step_tensor(const Tensor& tensor) {
    return {tensor.data, {tensor.strides[0], tensor.strides[1], tensor.strides[2]}};
  }

  static WeightMatrix matrix(const Tensor& tensor) {
    return {tensor.data, {tensor.strides[0], tensor.strides[1]}};
  }

  static RecurrentProblem problem_of(const RecurrentRequest& request) {
    RecurrentProblem problem = {};
    problem.steps = static_cast<int>(request.steps());
    problem.batch = static_cast<int>(request.batch());
    problem.hidden = request.hidden;
    problem.inputs = static_cast<int>(request.inputs());
    problem.layers = request.layers;
    problem.slices = static_cast<int>(slices(request));
    problem.x = step_tensor(request.x);
    problem.y = step_tensor(request.y);
    problem.first_hidden = step_tensor(request.first_hidden);
    problem.first_cell = step_tensor(request.first_cell);
    problem.last_hidden = step_tensor(request.last_hidden);
    problem.last_cell = step_tensor(request.last_cell);
    for (int i = 0; i < request.layers * Tile::DIRECTIONS; ++i) {
      const Tensor(&of_layer)[4] = request.weights[i];
      problem.weights[i] = {matrix(of_layer[0]), matrix(of_layer[1]), matrix(of_layer[2]),
                            matrix(of_layer[3])};
    }
    return problem;
  }
};
