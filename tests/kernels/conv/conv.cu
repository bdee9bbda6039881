// Convolutions of several configs behind entry points that take packed words; the first integer
// after the workspace picks the config, less than 0 the kernel of any sizes.

template <class Instruction_, int SPATIAL_, int CHUNK_, int PLANES_, int CHANNEL_PARTS_,
          ConvSchedule SCHEDULE_, int STAGES_, int CLUSTER_, RowTaps ROW_TAPS_, int PATCHES_ = 0,
          int PATCH_BYTES_ = 0, ConvStore STORE_ = ConvStore::LINES, int JOINED_ = 0,
          int FOLD_PHASES_ = 0, int OUTPUTS_ = 1>
struct ConvConfig {
  using Instruction = Instruction_;
  static constexpr int SPATIAL = SPATIAL_, CHUNK = CHUNK_, PLANES = PLANES_;
  static constexpr int CHANNEL_PARTS = CHANNEL_PARTS_, STAGES = STAGES_, CLUSTER = CLUSTER_;
  static constexpr ConvSchedule SCHEDULE = SCHEDULE_;
  static constexpr RowTaps ROW_TAPS = ROW_TAPS_;
  static constexpr int PATCHES = PATCHES_, PATCH_BYTES = PATCH_BYTES_;
  static constexpr ConvStore STORE = STORE_;
  static constexpr int JOINED = JOINED_, FOLD_PHASES = FOLD_PHASES_, OUTPUTS = OUTPUTS_;
};

// A program over channels with one result for all of them.
struct LogSumExp {
  static constexpr bool IS_BY_CHANNEL = false, TAKES_TERMS = false;
  __device__ static float of_totals(float largest, float sum) {
    return std::isinf(largest) ? largest : largest + std::log(sum);
  }
};

using Number = ELEMENT;
using Epilogue = EPILOGUE;

template <class Config>
__global__ void __launch_bounds__(PLANE_THREADS, PLANE_BLOCKS)
    planes_kernel(const __grid_constant__ PlaneParameters p) {
  write_planes<Number, ConvTile<Config>::PLANE_CHANNELS, Config::PLANES, Config::ROW_TAPS,
               ConvTile<Config>::JOINS>(p);
}
template <class Config, class Ending>
__global__ void __launch_bounds__(ConvTile<Config>::THREADS, 1)
    conv_kernel(const __grid_constant__ ConvParameters<Number, Number, Ending> p) {
  conv_sm90<Config>(p);
}

struct Call {
  ConvRequest<Number, Number> request;
  Epilogue epilogue;
};
constexpr bool HAS_MOMENTS = Epilogue::MOMENTS != ConvMoments::NONE;

template <class Ending>
void set_moments(Ending& epilogue, float* means, float* spreads) {
  if constexpr (HAS_MOMENTS) epilogue.moments = {means, spreads};
}

Call read_call(Arguments& arguments) {
  const auto direction = static_cast<ConvDirection>(arguments.integer());
  const int groups = static_cast<int>(arguments.integer());
  int numbers[3][MAX_SPATIAL];
  for (auto& of_kind : numbers) {
    for (int& number : of_kind) number = static_cast<int>(arguments.integer());
  }
  int windows[MAX_SPATIAL];
  int64_t outputs[MAX_SPATIAL];
  for (int& size : windows) size = static_cast<int>(arguments.integer());
  for (int64_t& count : outputs) count = arguments.integer();
  const Tensor out = arguments.tensor(), data = arguments.tensor(), filter = arguments.tensor();
  const auto* const bias = static_cast<const float*>(arguments.tensor().data);
  auto* const means = static_cast<float*>(arguments.tensor().data);
  auto* const spreads = static_cast<float*>(arguments.tensor().data);
  Call call = {ConvRequest<Number, Number>::of(direction, groups, out, data, filter, numbers[0],
                                               numbers[1], numbers[2])
                   .in_windows(windows, outputs),
               {bias}};
  set_moments(call.epilogue, means, spreads);
  return call;
}

template <class... Configs>
struct Variants {
  template <class Action>
  static int64_t pick(int64_t index, const Action& action) {
    int64_t result = -1, i = 0;
    ((i++ == index ? (void)(result = action(Configs())) : void()), ...);
    return result;
  }
};

using All = Variants<CONFIGS>;
using Any = ConvAnyVariant<Number, Number, Epilogue>;

template <class Ending>
__global__ void __launch_bounds__(ConvAnyVariant<Number, Number, Ending>::THREADS, 1)
    any_kernel(const __grid_constant__ ConvAnyParameters<Number, Number, Ending> p) {
  conv_any(p);
}

template <class MomentParameters>
__global__ void __launch_bounds__(MOMENT_THREADS, 2)
    moments_kernel(const __grid_constant__ MomentParameters p) {
  combine_moments(p);
}

// Runs a variant of the call, and makes the moments.
template <class Variant>
int64_t run(const Variant& variant, const Call& call, const Arguments& arguments) {
  cudaError_t status = launch_conv(call, arguments.stream(), arguments.workspace(), variant);
  if constexpr (HAS_MOMENTS) {
    if (status != cudaSuccess) return status;
    const auto kernel = moments_kernel<ConvMomentParameters<Number, Number, Epilogue>>;
    status = launch_moments(call, kernel, arguments.stream(), arguments.workspace(), variant);
  }
  return status;
}

// Bytes of the workspace; -1 where the config does not take the call.
extern "C" int64_t conv_workspace(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  const Call call = read_call(arguments);
  if (config < 0) return Any::workspace_bytes(call.request);
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Variant = ConvVariant<decltype(chosen), Number, Number, Epilogue>;
    return Variant::admits(call.request) ? Variant::workspace_bytes(call.request) : -1;
  });
}

extern "C" int64_t conv_launch(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  const Call call = read_call(arguments);
  if (config < 0) return run(Any{any_kernel<Epilogue>}, call, arguments);
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Config = decltype(chosen);
    using Variant = ConvVariant<Config, Number, Number, Epilogue>;
    return run(Variant{planes_kernel<Config>, conv_kernel<Config, Epilogue>}, call, arguments);
  });
}
