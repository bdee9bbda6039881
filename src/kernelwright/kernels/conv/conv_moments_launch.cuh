#pragma once
// The kernel that combines the states of tiles, or where there are none reads or computes the
// results itself; and its host side.

#include "conv_any.cuh"
#include "conv_choice.cuh"
#include "conv_moments.cuh"
#include "dependent_launch.cuh"

template <class Input, class Result, class Epilogue>
struct ConvMomentParameters {
  static constexpr ConvFold WINDOWS = Epilogue::WINDOWS, CHANNELS = Epilogue::CHANNELS;
  ConvRequest<Input, Result> request;
  Epilogue epilogue;
  // A block has channels of a group of an image whose states lie side by side: `channels` of them
  // or fewer, `runs` times for all of a group. `lanes`: threads that read neighbours; a power of 2.
  int groups, runs, channels, lanes;
};

// The channels of a block.
struct ChannelRun {
  int64_t image;
  int first, count;

  template <class Parameters>
  __device__ __forceinline__ explicit ChannelRun(const Parameters& p) {
    const uint32_t above = blockIdx.x / p.runs, run = blockIdx.x - above * p.runs;
    const int of_group = static_cast<int>(p.request.result_channels) / p.groups;
    image = above / p.groups;
    first = run * p.channels;
    count = min(p.channels, of_group - first);
    first += (above - above / p.groups * p.groups) * of_group;
  }
};

// The states of an image: of its tiles and their parts.
class ImageStates {
 public:
  __device__ __forceinline__ ImageStates(const MomentStates& states, int64_t image)
      : s_(states), image_(image), begin_(image * s_.plane) {
    const int64_t last = begin_ + s_.plane - 1;
    first_tile_ = s_.image_tiles > 0 ? image * s_.image_tiles : begin_ / s_.step;
    const int64_t tiles = s_.image_tiles > 0 ? s_.image_tiles : last / s_.step + 1 - first_tile_;
    count_ = static_cast<uint32_t>(tiles * s_.phases * s_.parts);
  }

  __device__ __forceinline__ uint32_t count() const { return count_; }

  // A row of number `i`; of nothing where its part of the tile meets no position of the image, or
  // beyond the last one. In 32 bits: there is a division or two for each.
  __device__ __forceinline__ Moments at(uint32_t i, int row) const {
    if (i >= count_) return {};
    const uint32_t of_phases = i / s_.parts;
    const int part = static_cast<int>(i - of_phases * s_.parts);
    int segment = 0;
    if (s_.image_tiles == 0) {
      const int64_t of_tile = (first_tile_ + of_phases / s_.phases) * s_.step;
      const int64_t from = of_tile + part * s_.part_positions;
      const int64_t end =
          min(min(from + s_.part_positions, of_tile + int64_t{s_.step}), s_.positions);
      if (from >= begin_ + s_.plane || end <= begin_) return {};
      if (from < begin_) segment = static_cast<int>(image_ - from / s_.plane);
    }
    return s_.slot(first_tile_ * s_.phases + of_phases, part, segment)[row];
  }

 private:
  const MomentStates& s_;
  int64_t image_, begin_, first_tile_;
  uint32_t count_;
};

// What a thread combines of them: every `ways`-th from `way` on, some of them on their way at once.
__device__ __forceinline__ Moments combine_states(const ImageStates& states, int row, int way,
                                                  int ways) {
  constexpr int FLIGHT = 4;
  Moments found = {};
#pragma unroll 1
  for (uint32_t i = way; i < states.count(); i += FLIGHT * ways) {
    Moments next[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) next[k] = states.at(i + k * ways, row);
#pragma unroll
    for (const Moments& one : next) found = Moments::combine(found, one);
  }
  return found;
}

// What a thread combines of a channel's results: read, or computed where nothing has been stored.
template <class Parameters>
__device__ __forceinline__ Moments combine_results(const Parameters& p, int64_t image,
                                                   int64_t channel) {
  using Epilogue = std::remove_cv_t<std::remove_reference_t<decltype(p.epilogue)>>;
  const auto& r = p.request;
  const int64_t along[] = {r.results_along(0), r.results_along(1), r.results_along(2)};
  Moments found = {};
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < along[0] * along[1] * along[2]; i += blockDim.x) {
    const int64_t at[] = {i % along[0], i / along[0] % along[1], i / along[0] / along[1]};
    float value;
    if constexpr (Epilogue::MOMENTS == ConvMoments::ALONE) {
      value = value_of_conv(p, image, channel, at);
    } else {
      value = widen(r.out[image * r.out_strides.image + channel * r.out_strides.channel +
                          at[0] * r.out_strides.spatial[0] + at[1] * r.out_strides.spatial[1] +
                          at[2] * r.out_strides.spatial[2]]);
    }
    found = Moments::combine(found, {1, value, value - value});  // of an infinity NaN
  }
  return found;
}

// Combines what the threads of a block found: of each residue modulo `lanes`, in the same order
// always. Threads and lanes are powers of 2.
__device__ __forceinline__ void combine_threads(Moments* of_threads, const Moments& found,
                                                int lanes) {
  __syncthreads();  // those before have been read
  of_threads[threadIdx.x] = found;
  for (int apart = blockDim.x / 2; apart >= lanes; apart /= 2) {
    __syncthreads();
    if (threadIdx.x < apart) {
      of_threads[threadIdx.x] =
          Moments::combine(of_threads[threadIdx.x], of_threads[threadIdx.x + apart]);
    }
  }
  __syncthreads();
}

// The body of a kernel of up to MOMENT_THREADS threads.
constexpr int MOMENT_THREADS = 256;
template <class Parameters>
__device__ __forceinline__ void combine_moments(const Parameters& p) {
  __shared__ Moments of_threads[MOMENT_THREADS];
  const MomentStates& s = p.epilogue.moments;
  const ChannelRun run(p);
  const auto leave = [&](int channel, const Moments& found) {
    const int64_t place = run.image * p.request.result_channels + run.first + channel;
    s.means[place] = found.mean;
    s.spreads[place] = found.spread;
  };
  wait_for_previous_kernel();
  if (s.are_written()) {
    const int row = threadIdx.x % p.lanes, way = threadIdx.x / p.lanes;
    Moments found = {};
    if (row < run.count * s.joined) {
      found = combine_states(ImageStates(s, run.image), s.first_row(run.first) + row, way,
                             blockDim.x / p.lanes);
    }
    combine_threads(of_threads, found, p.lanes);
    if (threadIdx.x < run.count) {
      Moments all = {};
      for (int row = 0; row < s.joined; ++row) {
        all = Moments::combine(all, of_threads[threadIdx.x * s.joined + row]);
      }
      leave(threadIdx.x, all);
    }
    return;
  }
  for (int channel = 0; channel < run.count; ++channel) {
    combine_threads(of_threads, combine_results(p, run.image, run.first + channel), 1);
    if (threadIdx.x == 0) leave(channel, of_threads[0]);
  }
}

// In place of results that nobody writes: `outputs` of each channel that has a mean, W first.
inline Tensor unwritten_results(const Tensor& means, const int64_t (&outputs)[MAX_SPATIAL]) {
  Tensor out = means;
  out.data = nullptr;
  int64_t stride = 1;
  for (int d = 0; d < means.rank; ++d) {
    const int axis = means.rank - 1 - d;
    if (axis > 1) out.sizes[axis] = outputs[d];
    out.strides[axis] = stride;
    stride *= out.sizes[axis];
  }
  return out;
}

// Which channels a block has; its threads are returned.
template <class Parameters>
int divide_channels(Parameters& p) {
  const MomentStates& s = p.epilogue.moments;
  const int64_t channels = p.request.result_channels;
  p.groups = p.runs = p.channels = p.lanes = 1;
  if (s.states == nullptr) {
    p.runs = static_cast<int>(channels);
    return MOMENT_THREADS;
  }
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  p.groups = static_cast<int>(channels) / s.group_channels;
  const auto divide = [&](int of_block) {
    p.channels = of_block;
    p.runs = (s.group_channels + of_block - 1) / of_block;
  };
  // A divisor of those whose states lie side by side, so that a block's do.
  divide(s.run_channels);
  while (p.channels > 1 && p.request.images * p.groups * p.runs < multiprocessors) {
    int fewer = p.channels - 1;
    while (s.run_channels % fewer != 0) --fewer;
    divide(fewer);
  }
  while (p.lanes < p.channels * s.joined) p.lanes *= 2;
  // Threads that would find no state take the place of others.
  const int64_t tiles = s.image_tiles > 0 ? s.image_tiles : s.plane / s.step + 2;
  const int64_t states = tiles * s.phases * s.parts;
  int threads = MOMENT_THREADS;
  while (threads > 64 && threads / p.lanes > states) threads /= 2;
  return threads;
}

// Launches it after launch_conv with the same variants.
template <class Problem, class Parameters, class... Variants>
cudaError_t launch_moments(const Problem& problem, void (*kernel)(Parameters), cudaStream_t stream,
                           void* workspace, const Variants&... variants) {
  if (problem.request.result_elements() == 0) return cudaSuccess;
  Parameters p = {problem.request, problem.epilogue};
  visit_variant(
      problem.request,
      [&](const auto& variant) {
        p.epilogue.moments = variant.moments(problem.request, problem.epilogue.moments, workspace);
      },
      variants...);
  const int threads = divide_channels(p);
  const int64_t blocks = problem.request.images * p.groups * p.runs;
  return launch_dependent(kernel, static_cast<unsigned>(blocks), threads, stream, p);
}

// The same where the first variant rounds (launch_rounding_conv).
template <class Problem, class Parameters, class Rounding, class... Variants>
cudaError_t launch_rounding_moments(const Problem& problem, void (*kernel)(Parameters),
                                    cudaStream_t stream, void* workspace, const Rounding& rounding,
                                    const Variants&... variants) {
  if (problem.may_round) {
    return launch_moments(problem, kernel, stream, workspace, rounding, variants...);
  }
  return launch_moments(problem, kernel, stream, workspace, variants...);
}
