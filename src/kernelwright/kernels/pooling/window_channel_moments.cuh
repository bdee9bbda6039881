#pragma once
// Moments of the channels of a depthwise convolution (window_channels.cuh) beside its result, each
// block's results being a part of them (column_moments.cuh).

#include "column_moments.cuh"
#include "folds.cuh"
#include "moments_of_columns.cuh"
#include "window_launch.cuh"

template <class Config, class Problem>
struct ChannelMomentParameters : ChannelParameters<Config, Problem> {
  float* states;  // [parts][channels][MOMENT_WORDS]
  int64_t pitch;  // states from a part to the next one
};

// Moments of a thread's channels: of a row of its results, then of those before it and that row.
template <class Config>
struct SeenChannels {
  using Fold = MomentsFold<float>;
  using State = Fold::State;
  static constexpr int OUTPUTS = Config::OUTPUTS, VECTOR = Config::VECTOR;

  float row[VECTOR][OUTPUTS];
  // All channels have as many.
  float count = 0.0f, mean[VECTOR] = {}, squares[VECTOR] = {};

  __device__ __forceinline__ void take(int x, const Vector<float, VECTOR>& results) {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) row[c][x] = results.element[c];
  }
  __device__ __forceinline__ void end_row(int columns) {
    constexpr unsigned ALL = (1u << OUTPUTS) - 1;
    const unsigned valid = columns < OUTPUTS ? (1u << columns) - 1 : ALL;
    State both = {};
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
      both = Fold::combine({count, mean[c], squares[c]}, Fold::of(row[c], valid, Nowhere()));
      mean[c] = both.mean;
      squares[c] = both.squares;
    }
    count = both.count;
  }

 private:
  struct Nowhere {};
};

template <class Config, class Problem>
__device__ __forceinline__ void window_channel_moments(
    const ChannelMomentParameters<Config, Problem>& parameters) {
  constexpr int VECTOR = Config::VECTOR, THREADS = Config::THREADS;
  using Seen = SeenChannels<Config>;
  using Fold = typename Seen::Fold;
  wait_for_previous_kernel();
  const ChannelSlot<ChannelParameters<Config, Problem>> own(parameters);
  Seen seen;
  run_channels<Config, Problem>(parameters, own, seen);
  __shared__ __align__(16) float counts[THREADS], means[THREADS * VECTOR];
  __shared__ __align__(16) float squares[THREADS * VECTOR];
  const auto thread = static_cast<int>(threadIdx.x);
  counts[thread] = seen.count;
  Vector<float, VECTOR> lists[2];
#pragma unroll
  for (int c = 0; c < VECTOR; ++c) {
    lists[0].element[c] = seen.mean[c];
    lists[1].element[c] = seen.squares[c];
  }
  store_vector(means + thread * VECTOR, lists[0]);
  store_vector(squares + thread * VECTOR, lists[1]);
  __syncthreads();
  // A thread has a channel of all tiles.
  const auto channels = static_cast<int>(parameters.problem.result.width);
  for (int at = thread; at < own.groups * VECTOR; at += THREADS) {
    const int channel = own.first + at;
    if (channel >= channels) return;
    auto state = Fold::identity();
    for (int slot = 0; slot < parameters.own; ++slot) {
      const int place = slot * own.groups * VECTOR + at;
      state = Fold::combine(state, {counts[place / VECTOR], means[place], squares[place]});
    }
    float* const to = parameters.states + (own.part * parameters.pitch + channel) * MOMENT_WORDS;
    to[0] = state.count;
    to[1] = state.mean;
    to[2] = state.squares;
  }
}

// --- Host --------------------------------------------------------------------------------------

template <class Config, class Problem>
struct ChannelMomentVariant {
  using Parameters = ChannelMomentParameters<Config, Problem>;
  using Channels = ChannelParameters<Config, Problem>;
  static constexpr int THREADS = Config::THREADS;

  void (*kernel)(Parameters);

  // Whether the parts are those of the blocks.
  bool admits(const Problem& problem, const ColumnMoments& moments) const {
    if (!Channels::admits(problem)) return false;
    const Channels channels = Channels::describe(problem);
    return channels.blocks() == moments.parts * int64_t{channels.chunks.value()};
  }
  cudaError_t launch(const Problem& problem, const ColumnMoments& moments,
                     cudaStream_t stream) const {
    const Parameters parameters{Channels::describe(problem), moments.states, moments.pitch};
    return launch_window_kernel(kernel, parameters, parameters.blocks(), THREADS, stream);
  }
};

// `states`: a tensor of the moments of the columns of `out`.
inline ColumnMoments moments_of(const Tensor& out, const Tensor& states, int64_t rows,
                                int64_t columns) {
  return {static_cast<float*>(states.data),
          static_cast<const float*>(out.data),
          rows,
          columns,
          states.sizes[0],
          states.strides[0] / MOMENT_WORDS,
          out.strides[out.rank - 2]};
}

// Launches the first variant, which makes moments, or the second one, and a kernel that reads what
// that one wrote.
template <class Problem, class Tuned, class General>
cudaError_t launch_window_moments(const Problem& problem, const ColumnMoments& moments,
                                  cudaStream_t stream, MomentKernel kernel, const Tuned& tuned,
                                  const General& general) {
  if (problem.count() == 0) return cudaSuccess;
  if (tuned.admits(problem, moments)) return tuned.launch(problem, moments, stream);
  const cudaError_t status = general.launch(problem, stream);
  return status != cudaSuccess ? status : launch_moments(kernel, moments, stream);
}
