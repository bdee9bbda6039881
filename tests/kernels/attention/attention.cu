// Attention of several configs behind entry points that take packed words; the first integer after
// the workspace picks the config.

template <class Element_, int DEPTH_, int WIDTH_, int BLOCK_N_, int STAGES_, int CONSUMERS_,
          Masking MASKING_, bool CAUSAL_, bool EMPTY_IS_ZERO_, int FEW_ = 0,
          Weighing WEIGHING_ = Weighing::SOFTMAX>
struct AttentionConfig {
  using Element = Element_;
  static constexpr int DEPTH = DEPTH_, WIDTH = WIDTH_, BLOCK_N = BLOCK_N_, STAGES = STAGES_;
  static constexpr int CONSUMERS = CONSUMERS_, FEW = FEW_;
  static constexpr Masking MASKING = MASKING_;
  static constexpr Weighing WEIGHING = WEIGHING_;
  static constexpr bool CAUSAL = CAUSAL_, EMPTY_IS_ZERO = EMPTY_IS_ZERO_;
};

// The same for all of them.
__global__ void __launch_bounds__(ATTENTION_PREPARE_THREADS)
    attention_largest_kernel(const __grid_constant__ PrepareParameters p) {
  attention_largest(p);
}
template <class Config>
__global__ void __launch_bounds__(ATTENTION_PREPARE_THREADS)
    attention_prepare_kernel(const __grid_constant__ PrepareParameters p) {
  attention_prepare<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(AttentionTile<Config>::THREADS,
                                  AttentionTile<Config>::BLOCKS)
    attention_kernel(const __grid_constant__ AttentionParameters p) {
  attention_sm90<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(AttentionTile<Config>::THREADS, 1)
    attention_wide_kernel(const __grid_constant__ AttentionParameters p) {
  attention_wide<Config>(p);
}

template <class Config>
__global__ void __launch_bounds__(FewTile<Config>::THREADS, FewTile<Config>::BLOCKS)
    attention_few_kernel(const __grid_constant__ FewParameters p) {
  attention_few<Config>(p);
}

template <class Config>
auto variant_of() {
  const AttentionVariant<Config> variant{attention_largest_kernel, attention_prepare_kernel<Config>,
                                         attention_kernel<Config>, attention_wide_kernel<Config>};
  if constexpr (Config::FEW > 0) {
    return AttentionFewVariant<Config>{variant, attention_few_kernel<Config>};
  } else {
    return variant;
  }
}

// q, k, v, mask, result; a mask that is not there has no data.
AttentionRequest read_request(Arguments& arguments) {
  AttentionRequest request = {};
  for (Tensor* tensor : {&request.q, &request.k, &request.v, &request.mask, &request.result}) {
    *tensor = arguments.tensor();
  }
  request.scale = arguments.real();
  return request;
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

// Bytes of the workspace; -1 where the config does not take the call.
extern "C" int64_t attention_workspace(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Variant = decltype(variant_of<decltype(chosen)>());
    const AttentionRequest request = read_request(arguments);
    return Variant::admits(request) ? Variant::workspace_bytes(request) : -1;
  });
}

extern "C" int64_t attention_launch(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  return All::pick(config, [&](auto chosen) -> int64_t {
    const auto variant = variant_of<decltype(chosen)>();
    const AttentionRequest request = read_request(arguments);
    return variant.launch(request, arguments.workspace(), arguments.stream());
  });
}
