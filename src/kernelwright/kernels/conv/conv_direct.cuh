#pragma once
// A convolution with few products for each element on the CUDA cores, in float32: a thread keeps
// the sums of some output channels at neighbouring positions of a row in registers, and reads the
// input where it lies. Bound by the multiplications; nothing is written but the result.
//
// A config has
//   W, H, D                   ConvTaps of each dimension
//   IN_CHANNELS, OUT_CHANNELS
//   CHANNELS                  output channels of a thread, a multiple of 8

#include "conv_elements.cuh"
#include "conv_facts.cuh"
#include "conv_moments.cuh"
#include "conv_request.cuh"
#include "convert.cuh"
#include "vector.cuh"

// Of one dimension of the user's call.
template <int OF_TAPS, int OF_STRIDE, int OF_PADDING, int OF_DILATION>
struct ConvTaps {
  static constexpr int TAPS = OF_TAPS, STRIDE = OF_STRIDE;
  static constexpr int PADDING = OF_PADDING, DILATION = OF_DILATION;

  static bool are_of(const ConvCall& call) {
    return call.kernel == TAPS && call.stride == STRIDE && call.padding == PADDING &&
           call.dilation == DILATION;
  }

  // The element of the input that a tap of an output meets.
  __device__ __forceinline__ static int met(int out, int tap) {
    return out * STRIDE - PADDING + tap * DILATION;
  }

  // Without padding every tap of a result meets one.
  __device__ __forceinline__ static bool is_in(int met, int size) {
    return PADDING == 0 || (met >= 0 && met < size);
  }
};

constexpr int DIRECT_THREADS = 128;
constexpr int DIRECT_POSITIONS = 4;        // of a thread: neighbours in a row
constexpr int DIRECT_STAGED_CHANNELS = 8;  // whose long operation is applied in one loop

template <class Input, class Result, class Epilogue>
struct ConvDirectParameters {
  ConvRequest<Input, Result> request;
  Epilogue epilogue;
  uint32_t units;         // of all images: positions of threads
  uint32_t units_of_row;  // units of a row of the result
  bool is_aligned;        // positions of a thread are stored at once
};

// Where a thread's positions are.
struct DirectPlace {
  int64_t image;
  int at[MAX_SPATIAL];

  static __device__ __forceinline__ DirectPlace of(uint32_t unit, uint32_t units_of_row,
                                                   const ConvCall (&calls)[MAX_SPATIAL]) {
    DirectPlace place;
    uint32_t rest = unit / units_of_row;
    place.at[0] = static_cast<int>(unit - rest * units_of_row) * DIRECT_POSITIONS;
#pragma unroll
    for (int d = 1; d < MAX_SPATIAL; ++d) {
      const uint32_t size = static_cast<uint32_t>(calls[d].out);
      place.at[d] = static_cast<int>(rest % size);
      rest /= size;
    }
    place.image = rest;
    return place;
  }
};

template <class Config>
struct DirectTile {
  using W = typename Config::W;
  using H = typename Config::H;
  using D = typename Config::D;

  static constexpr int CHANNELS = Config::CHANNELS, POSITIONS = DIRECT_POSITIONS;
  static constexpr int LINES = Config::IN_CHANNELS * D::TAPS * H::TAPS;  // rows of the filter
  static constexpr int PRODUCTS = LINES * W::TAPS;                       // for each element
  // Elements of a row of the input that the positions meet.
  static constexpr int COLUMNS = (POSITIONS - 1) * W::STRIDE + (W::TAPS - 1) * W::DILATION + 1;
  static_assert(CHANNELS % DIRECT_STAGED_CHANNELS == 0, "see finish_late");

  // Brings the filter of the block's channels, by products and then channels.
  template <class Request>
  static __device__ __forceinline__ void read_filter(const Request& r, int first, float* filter) {
    for (int i = threadIdx.x; i < PRODUCTS * CHANNELS; i += DIRECT_THREADS) {
      const int channel = first + i % CHANNELS, product = i / CHANNELS;
      const int line = product / W::TAPS, x = product - line * W::TAPS;
      const int plane = line / H::TAPS, y = line - plane * H::TAPS;
      const int c = plane / D::TAPS, z = plane - c * D::TAPS;
      const int64_t from = channel * r.filter_strides.out_channel +
                           c * r.filter_strides.in_channel + x * r.filter_strides.taps[0] +
                           y * r.filter_strides.taps[1] + z * r.filter_strides.taps[2];
      filter[i] = channel < Config::OUT_CHANNELS ? widen(load_constant(r.filter + from)) : 0.0f;
    }
  }

  // Adds the products of all taps.
  template <class Request>
  static __device__ __forceinline__ void multiply(const Request& r, const DirectPlace& place,
                                                  const float* filter,
                                                  float (&sums)[CHANNELS][POSITIONS]) {
    const int width = static_cast<int>(r.calls[0].in);
    const int stride = static_cast<int>(r.data_strides.spatial[0]);
    int columns[COLUMNS];
    bool exists[COLUMNS];
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
      const int x = place.at[0] * W::STRIDE - W::PADDING + i;
      exists[i] = W::is_in(x, width);
      // Positions beyond the row's end are not stored.
      columns[i] = min(max(x, 0), width - 1) * stride;
    }
    const auto* const image = r.data + place.image * r.data_strides.image;
#pragma unroll 1
    for (int c = 0; c < Config::IN_CHANNELS; ++c) {
#pragma unroll 1
      for (int z = 0; z < D::TAPS; ++z) {
        const int depth = D::met(place.at[2], z);
        if (!D::is_in(depth, static_cast<int>(r.calls[2].in))) continue;
        const auto* const plane =
            image + c * r.data_strides.channel + depth * r.data_strides.spatial[2];
#pragma unroll(H::TAPS* W::TAPS <= 16 ? H::TAPS : 1)
        for (int y = 0; y < H::TAPS; ++y) {
          const int row = H::met(place.at[1], y);
          if (!H::is_in(row, static_cast<int>(r.calls[1].in))) continue;
          const auto* const line = plane + row * r.data_strides.spatial[1];
          float values[COLUMNS];
#pragma unroll
          for (int i = 0; i < COLUMNS; ++i) {
            values[i] = exists[i] ? widen(load_constant(line + columns[i])) : 0.0f;
          }
          const int number = (c * D::TAPS + z) * H::TAPS + y;
          add_line(filter + number * W::TAPS * CHANNELS, values, sums);
        }
      }
    }
  }

  // The products of a row of taps.
  static __device__ __forceinline__ void add_line(const float* filter,
                                                  const float (&values)[COLUMNS],
                                                  float (&sums)[CHANNELS][POSITIONS]) {
#pragma unroll
    for (int x = 0; x < W::TAPS; ++x) {
#pragma unroll
      for (int j = 0; j < CHANNELS; j += 4) {
        const auto weights = load_vector<4>(filter + x * CHANNELS + j);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int p = 0; p < POSITIONS; ++p) {
            sums[j + i][p] =
                fmaf(weights.element[i], values[p * W::STRIDE + x * W::DILATION], sums[j + i][p]);
          }
        }
      }
    }
  }
};

// Stores one channel of a thread's positions.
template <class Parameters>
__device__ __forceinline__ void store_direct(const Parameters& p, int64_t place, int count,
                                             const float (&values)[DIRECT_POSITIONS]) {
  using Result = std::remove_pointer_t<decltype(p.request.out)>;
  Result* const out = p.request.out + place;
  if (p.is_aligned && count == DIRECT_POSITIONS) {
    Vector<Result, DIRECT_POSITIONS> vector;
#pragma unroll
    for (int i = 0; i < DIRECT_POSITIONS; ++i) vector.element[i] = narrow<Result>(values[i]);
    store_vector(out, vector);
    return;
  }
#pragma unroll
  for (int i = 0; i < DIRECT_POSITIONS; ++i) {
    if (i < count) out[i * p.request.out_strides.spatial[0]] = narrow<Result>(values[i]);
  }
}

// Moments of 8 channels at a warp's positions. A lane has those of one channel, as four do.
class DirectMoments {
 public:
  static constexpr int CHANNELS = DIRECT_STAGED_CHANNELS;

  // The channel that this lane has.
  __device__ __forceinline__ static int own_channel() { return threadIdx.x % 32 / 4; }
  // `count`: how many of the lane's positions are meant, the first ones.
  __device__ __forceinline__ static Moments of(const float (&values)[CHANNELS][DIRECT_POSITIONS],
                                               int count) {
    float numbers[CHANNELS];
    for_each(values, count, [&](int j, float value) { numbers[j] += value; }, numbers);
    const float all = sum_of_all(static_cast<float>(count)), total = sum_of_own(numbers);
    const float mean = mean_of(total, all);
    float means[CHANNELS];
#pragma unroll
    for (int j = 0; j < CHANNELS; ++j) means[j] = __shfl_sync(~0u, mean, 4 * j);
    for_each(
        values, count,
        [&](int j, float value) {
          const float distance = value - means[j];
          numbers[j] = fmaf(distance, distance, numbers[j]);
        },
        numbers);
    return {all, mean, sum_of_own(numbers)};
  }

 private:
  // Calls add(channel, value), from zeros on.
  template <class Add>
  __device__ __forceinline__ static void for_each(const float (&values)[CHANNELS][DIRECT_POSITIONS],
                                                  int count, const Add& add,
                                                  float (&numbers)[CHANNELS]) {
#pragma unroll
    for (int j = 0; j < CHANNELS; ++j) {
      numbers[j] = 0;
#pragma unroll
      for (int i = 0; i < DIRECT_POSITIONS; ++i) {
        if (i < count) add(j, values[j][i]);
      }
    }
  }
  __device__ __forceinline__ static float sum_of_all(float value) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
    return value;
  }
  // Over all lanes, of the channel that this lane has: each step leaves half of the channels.
  __device__ __forceinline__ static float sum_of_own(float (&numbers)[CHANNELS]) {
#pragma unroll
    for (int half = CHANNELS / 2; half > 0; half /= 2) {
      const int mask = 4 * half;
      const bool is_upper = (threadIdx.x & mask) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float sent = is_upper ? numbers[i] : numbers[i + half];
        const float kept = is_upper ? numbers[i + half] : numbers[i];
        numbers[i] = kept + __shfl_xor_sync(~0u, sent, mask);
      }
    }
    float value = numbers[0];
    value += __shfl_xor_sync(~0u, value, 2);
    return value + __shfl_xor_sync(~0u, value, 1);
  }
};

// Writes the states of 8 channels from `channel` on, of `channels`, for each image that the warp
// meets. `count`: of the thread's positions, none beyond the last unit.
template <class Parameters>
__device__ __forceinline__ void write_direct_moments(
    const Parameters& p, uint32_t unit, int count, int channel, int channels,
    const float (&values)[DirectMoments::CHANNELS][DIRECT_POSITIONS]) {
  const MomentStates& states = p.epilogue.moments;
  const int lane = threadIdx.x % 32, own = channel + DirectMoments::own_channel();
  const uint32_t begin = unit - lane, plane = static_cast<uint32_t>(states.plane);
  int end = static_cast<int>((begin / plane + 1) * plane - begin);  // of the image, in lanes
  int segment = 0;
  for (int first = 0; first < 32; first = end, end += static_cast<int>(plane), ++segment) {
    const Moments found = DirectMoments::of(values, lane >= first && lane < end ? count : 0);
    if (lane % 4 == 0 && own < channels) states.slot(begin / 32, 0, segment)[own] = found;
    if (begin + end >= p.units) break;
  }
}

// What becomes of the sums: short operations one after the other, long ones in a loop, so that
// their code is there once. `staged`: room of a thread for 8 channels, a number each thread apart.
template <class Config, class Parameters>
__device__ __forceinline__ void finish_direct(
    const Parameters& p, const DirectPlace& at, uint32_t unit, int first, float* staged,
    const float (&sums)[Config::CHANNELS][DIRECT_POSITIONS]) {
  using Epilogue = std::remove_cv_t<std::remove_reference_t<decltype(p.epilogue)>>;
  constexpr bool HAS_MOMENTS = ANY_MOMENTS && Epilogue::MOMENTS != ConvMoments::NONE;
  constexpr int POSITIONS = DIRECT_POSITIONS, STAGED = DIRECT_STAGED_CHANNELS;
  const auto& strides = p.request.out_strides;
  int64_t origin = at.image * strides.image;
#pragma unroll
  for (int d = 0; d < MAX_SPATIAL; ++d) origin += at.at[d] * strides.spatial[d];
  int count = min(POSITIONS, static_cast<int>(p.request.calls[0].out) - at.at[0]);
  if (HAS_MOMENTS && unit >= p.units) count = 0;
#pragma unroll
  for (int part = 0; part < Config::CHANNELS; part += STAGED) {
    float finished[HAS_MOMENTS ? STAGED : 1][POSITIONS] = {};
#pragma unroll
    for (int j = 0; j < STAGED; ++j) {
      const int channel = first + part + j;
      if (channel >= Config::OUT_CHANNELS) break;
      const auto row = p.epilogue.row(channel);
      float values[POSITIONS];
#pragma unroll
      for (int i = 0; i < POSITIONS; ++i) values[i] = row(sums[part + j][i]);
      if constexpr (Epilogue::IS_LATE) {
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i) {
          staged[(j * POSITIONS + i) * DIRECT_THREADS] = values[i];
        }
      } else if constexpr (!ANY_MOMENTS || Epilogue::MOMENTS != ConvMoments::ALONE) {
        store_direct(p, origin + channel * strides.channel, count, values);
      }
      if constexpr (HAS_MOMENTS) {
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i) finished[j][i] = values[i];
      }
    }
    if constexpr (HAS_MOMENTS) {
      write_direct_moments(p, unit, count, first + part, Config::OUT_CHANNELS, finished);
    }
    if constexpr (Epilogue::IS_LATE) {
#pragma unroll 1
      for (int j = 0; j < STAGED && first + part + j < Config::OUT_CHANNELS; ++j) {
        const int channel = first + part + j;
        const int64_t place = origin + channel * strides.channel;
        ConvElements<POSITIONS> elements;
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i) {
          elements.set(i, staged[(j * POSITIONS + i) * DIRECT_THREADS],
                       i < count ? place + i * strides.spatial[0] : -1, channel);
        }
        p.epilogue.finish(elements);
        store_direct(p, place, count, elements.values);
      }
    }
  }
}

// The body of a kernel of DIRECT_THREADS threads; blocks along y have other channels.
template <class Config, class Parameters>
__device__ __forceinline__ void conv_direct(const Parameters& p) {
  wait_for_previous_kernel();
  using Tile = DirectTile<Config>;
  using Epilogue = std::remove_cv_t<std::remove_reference_t<decltype(p.epilogue)>>;
  constexpr int STAGED = DIRECT_STAGED_CHANNELS * DIRECT_POSITIONS * DIRECT_THREADS;
  __shared__ alignas(16) float filter[Tile::PRODUCTS * Tile::CHANNELS];
  __shared__ float staged[Epilogue::IS_LATE ? STAGED : 1];
  const int first = blockIdx.y * Tile::CHANNELS;
  Tile::read_filter(p.request, first, filter);
  __syncthreads();
  const uint32_t unit = blockIdx.x * DIRECT_THREADS + threadIdx.x;
  constexpr bool HAS_MOMENTS = ANY_MOMENTS && Epilogue::MOMENTS != ConvMoments::NONE;
  // Warps make moments: all threads of one go on, those beyond the last unit as if they had it.
  if (unit - (HAS_MOMENTS ? threadIdx.x % 32 : 0) >= p.units) return;
  const uint32_t existing = HAS_MOMENTS ? min(unit, p.units - 1) : unit;
  const DirectPlace place = DirectPlace::of(existing, p.units_of_row, p.request.calls);
  float sums[Tile::CHANNELS][Tile::POSITIONS] = {};
  Tile::multiply(p.request, place, filter, sums);
  finish_direct<Config>(p, place, unit, first, staged + threadIdx.x, sums);
}

// Host side; see conv_choice.cuh for what a variant has.
template <class Config, class Input, class Result, class Epilogue>
struct ConvDirectVariant {
  using Parameters = ConvDirectParameters<Input, Result, Epilogue>;
  using Request = ConvRequest<Input, Result>;
  static constexpr int THREADS = DIRECT_THREADS;
  // Blocks of a multiprocessor: more where sums and what a row of the input has are few.
  static constexpr int KEPT = (Config::CHANNELS + 2) * DIRECT_POSITIONS;
  static constexpr int RESIDENT = KEPT + 2 * DirectTile<Config>::COLUMNS > 84 ? 3 : 4;

  void (*kernel)(Parameters);

  static bool admits(const Request& request) {
    constexpr int64_t MOST = (int64_t{1} << 30);
    if (request.direction != ConvDirection::USUAL || request.groups != 1) return false;
    if (request.in_channels != Config::IN_CHANNELS) return false;
    if (request.out_channels != Config::OUT_CHANNELS) return false;
    if (!Config::W::are_of(request.calls[0]) || !Config::H::are_of(request.calls[1]) ||
        !Config::D::are_of(request.calls[2])) {
      return false;
    }
    double units = static_cast<double>(request.images) * units_of_row(request);
    for (int d = 0; d < MAX_SPATIAL; ++d) {
      const ConvCall& call = request.calls[d];
      if (call.in < 1 || call.in > MOST || call.out > MOST) return false;
      if (d > 0) units *= static_cast<double>(call.out);
    }
    const int64_t stride = request.data_strides.spatial[0];
    return units < static_cast<double>(MOST) && stride * request.calls[0].in < MOST;
  }
  static int64_t workspace_bytes(const Request& request) {
    if constexpr (!HAS_MOMENTS) return 0;
    const MomentStates s = moments(request, {}, nullptr);
    const int64_t count = (s.positions + s.step - 1) / s.step * s.segments * s.rows;
    return (count * int64_t{sizeof(Moments)} + 255) / 256 * 256;
  }

  // Where the states are that the launch with the same workspace writes: of a warp's units.
  static MomentStates moments(const Request& request, const MomentStates& results,
                              void* workspace) {
    MomentStates s = results;
    s.states = static_cast<Moments*>(workspace);
    s.parts = s.phases = s.joined = 1;
    s.part_positions = s.step = 32;
    s.plane = units_of_row(request) * request.calls[1].out * request.calls[2].out;
    s.positions = request.images * s.plane;
    s.segments = static_cast<int>((s.step + s.plane - 2) / s.plane) + 1;
    s.rows = s.group_rows = s.group_channels = Config::OUT_CHANNELS;
    s.run_channels = FILTER_RUN;
    return s;
  }

  cudaError_t launch(const Request& request, const Epilogue& epilogue, cudaStream_t stream,
                     void* workspace) const {
    Parameters parameters = {request, epilogue};
    if constexpr (HAS_MOMENTS) {
      parameters.epilogue.moments = moments(request, epilogue.moments, workspace);
    }
    parameters.units_of_row = static_cast<uint32_t>(units_of_row(request));
    parameters.units = static_cast<uint32_t>(request.images * request.calls[1].out *
                                             request.calls[2].out * units_of_row(request));
    parameters.is_aligned = is_aligned(request);
    const dim3 grid((parameters.units + THREADS - 1) / THREADS,
                    (Config::OUT_CHANNELS + Config::CHANNELS - 1) / Config::CHANNELS);
    return launch_dependent(kernel, grid, THREADS, stream, parameters);
  }

 private:
  static constexpr bool HAS_MOMENTS = ANY_MOMENTS && Epilogue::MOMENTS != ConvMoments::NONE;

  static int64_t units_of_row(const Request& request) {
    return (request.calls[0].out + DIRECT_POSITIONS - 1) / DIRECT_POSITIONS;
  }

  static bool is_aligned(const Request& request) {
    const ImageStrides& strides = request.out_strides;
    const int64_t others =
        strides.image | strides.channel | strides.spatial[1] | strides.spatial[2];
    const auto address = reinterpret_cast<uintptr_t>(request.out);
    return strides.spatial[0] == 1 && others % DIRECT_POSITIONS == 0 &&
           address % (DIRECT_POSITIONS * sizeof(Result)) == 0;
  }
};
