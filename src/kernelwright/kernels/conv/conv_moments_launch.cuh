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
  int ways;  // threads of a channel: a warp, or the block
};

// The states of a channel of an image: of its tiles, their parts and its rows, rows first.
class ChannelStates {
 public:
  __device__ __forceinline__ ChannelStates(const MomentStates& states, int64_t image, int first_row)
      : s_(states), image_(image), begin_(image * s_.plane), first_row_(first_row) {
    const int64_t last = begin_ + s_.plane - 1;
    first_tile_ = s_.image_tiles > 0 ? image * s_.image_tiles : begin_ / s_.step;
    const int64_t tiles = s_.image_tiles > 0 ? s_.image_tiles : last / s_.step + 1 - first_tile_;
    count_ = static_cast<uint32_t>(tiles * s_.phases * s_.parts * s_.joined);
  }

  __device__ __forceinline__ uint32_t count() const { return count_; }

  // Number `i`; of nothing where its part of the tile meets no position of the image, or beyond the
  // last one. In 32 bits: there is a division or two for each.
  __device__ __forceinline__ Moments operator[](uint32_t i) const {
    if (i >= count_) return {};
    const uint32_t above = i / s_.joined, of_phases = above / s_.parts;
    const int part = static_cast<int>(above - of_phases * s_.parts);
    int segment = 0;
    if (s_.image_tiles == 0) {
      const int64_t of_tile = (first_tile_ + of_phases / s_.phases) * s_.step;
      const int64_t from = of_tile + part * s_.part_positions;
      const int64_t end =
          min(min(from + s_.part_positions, of_tile + int64_t{s_.step}), s_.positions);
      if (from >= begin_ + s_.plane || end <= begin_) return {};
      if (from < begin_) segment = static_cast<int>(image_ - from / s_.plane);
    }
    return s_.slot(first_tile_ * s_.phases + of_phases, part,
                   segment)[first_row_ + i - above * s_.joined];
  }

 private:
  const MomentStates& s_;
  int64_t image_, begin_, first_tile_;
  int first_row_;
  uint32_t count_;
};

// What a thread combines of them: every `ways`-th from `way` on, some of them on their way at once.
__device__ __forceinline__ Moments combine_states(const ChannelStates& states, int way, int ways) {
  constexpr int FLIGHT = 4;
  Moments found = {};
#pragma unroll 1
  for (uint32_t i = way; i < states.count(); i += FLIGHT * ways) {
    Moments next[FLIGHT];
#pragma unroll
    for (int k = 0; k < FLIGHT; ++k) next[k] = states[i + k * ways];
#pragma unroll
    for (const Moments& one : next) found = Moments::combine(found, one);
  }
  return found;
}

// The same of every `ways`-th result: read, or computed where nothing has been stored.
template <class Parameters>
__device__ __forceinline__ Moments combine_results(const Parameters& p, int64_t image,
                                                   int64_t channel, int way) {
  using Epilogue = std::remove_cv_t<std::remove_reference_t<decltype(p.epilogue)>>;
  const auto& r = p.request;
  const int64_t along[] = {r.results_along(0), r.results_along(1), r.results_along(2)};
  Moments found = {};
#pragma unroll 1
  for (int64_t i = way; i < along[0] * along[1] * along[2]; i += p.ways) {
    const int64_t at[] = {i % along[0], i / along[0] % along[1], i / along[0] / along[1]};
    float value;
    if constexpr (Epilogue::MOMENTS == ConvMoments::ALONE) {
      value = value_of_conv(p, image, channel, at);
    } else {
      value = widen(r.out[image * r.out_strides.image + channel * r.out_strides.channel +
                          at[0] * r.out_strides.spatial[0] + at[1] * r.out_strides.spatial[1] +
                          at[2] * r.out_strides.spatial[2]]);
    }
    found = Moments::combine(found, {1, value, 0});
  }
  return found;
}

// The body of a kernel of MOMENT_THREADS threads.
constexpr int MOMENT_THREADS = 256;
template <class Parameters>
__device__ __forceinline__ void combine_moments(const Parameters& p) {
  constexpr int WARPS = MOMENT_THREADS / 32;
  __shared__ Moments of_warps[WARPS];
  const MomentStates& s = p.epilogue.moments;
  const int64_t channels = p.request.result_channels;
  const int warp = threadIdx.x / 32;
  const int64_t place = int64_t{blockIdx.x} * (MOMENT_THREADS / p.ways) + threadIdx.x / p.ways;
  wait_for_previous_kernel();
  let_next_kernel_start();
  Moments found = {};
  if (place < p.request.images * channels) {
    const int64_t image = place / channels;
    const int channel = static_cast<int>(place - image * channels), way = threadIdx.x % p.ways;
    if (s.are_written()) {
      found = combine_states(ChannelStates(s, image, s.first_row(channel)), way, p.ways);
    } else {
      found = combine_results(p, image, channel, way);
    }
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    const Moments other = {__shfl_xor_sync(~0u, found.count, apart),
                           __shfl_xor_sync(~0u, found.mean, apart),
                           __shfl_xor_sync(~0u, found.spread, apart)};
    // In the same order in both lanes.
    found = (threadIdx.x & apart) == 0 ? Moments::combine(found, other)
                                       : Moments::combine(other, found);
  }
  if (p.ways > 32) {
    if (threadIdx.x % 32 == 0) of_warps[warp] = found;
    __syncthreads();
    found = of_warps[0];
    for (int i = 1; i < WARPS; ++i) found = Moments::combine(found, of_warps[i]);
  }
  if (threadIdx.x % p.ways == 0 && place < p.request.images * channels) {
    s.means[place] = found.mean;
    s.spreads[place] = found.spread;
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
  const int64_t planes = problem.request.images * problem.request.result_channels;
  int device = 0, multiprocessors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  const bool are_few = planes * 32 < int64_t{MOMENT_THREADS} * multiprocessors;
  p.ways = are_few ? MOMENT_THREADS : 32;
  const int64_t blocks = (planes * p.ways + MOMENT_THREADS - 1) / MOMENT_THREADS;
  return launch_dependent(kernel, static_cast<unsigned>(blocks), MOMENT_THREADS, 0, 1, stream, p);
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
