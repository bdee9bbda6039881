// Recurrent layers of several configs behind entry points that take packed words; the first integer
// after the workspace picks the config.

template <class Stored_, RecurrentCell CELL_, int DIRECTIONS_, int CLUSTER_, int BATCH_,
          int INPUTS_, int PLANES_, int STAGES_, int UNITS_ = 16>
struct RecurrentConfig {
  using Stored = Stored_;
  static constexpr RecurrentCell CELL = CELL_;
  static constexpr int DIRECTIONS = DIRECTIONS_, CLUSTER = CLUSTER_, BATCH = BATCH_;
  static constexpr int INPUTS = INPUTS_, PLANES = PLANES_, STAGES = STAGES_;
  static constexpr int UNITS = UNITS_;
};

template <class Config>
__global__ void __launch_bounds__(PREPARE_THREADS)
    recurrent_extremes(const __grid_constant__ RecurrentParameters p) {
  find_extremes<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(PREPARE_THREADS)
    recurrent_inputs(const __grid_constant__ RecurrentParameters p) {
  write_inputs<Config>(p);
}
template <class Config>
__global__ void __launch_bounds__(RecurrentTile<Config>::THREADS, 1)
    recurrent_steps(const __grid_constant__ RecurrentParameters p) {
  recurrent_sm90<Config>(p);
}

// Layers and hidden, then x, first states, results, and the weights of each layer; a tensor that is
// not there has no data and rank 3.
RecurrentRequest read_request(Arguments& arguments, int directions) {
  RecurrentRequest request = {};
  request.layers = static_cast<int>(arguments.integer());
  request.hidden = static_cast<int>(arguments.integer());
  for (Tensor* tensor : {&request.x, &request.first_hidden, &request.first_cell, &request.y,
                         &request.last_hidden, &request.last_cell}) {
    *tensor = arguments.tensor();
  }
  for (int i = 0; i < request.layers * directions; ++i) {
    for (Tensor& tensor : request.weights[i]) tensor = arguments.tensor();
  }
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
extern "C" int64_t recurrent_workspace(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Variant = RecurrentVariant<decltype(chosen)>;
    const RecurrentRequest request = read_request(arguments, Variant::Tile::DIRECTIONS);
    return Variant::admits(request) ? Variant::workspace_bytes(request) : -1;
  });
}

extern "C" int64_t recurrent_launch(const int64_t* words) {
  Arguments arguments(words);
  const int64_t config = arguments.integer();
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Config = decltype(chosen);
    const RecurrentVariant<Config> variant{recurrent_extremes<Config>, recurrent_inputs<Config>,
                                           recurrent_steps<Config>};
    const RecurrentRequest request = read_request(arguments, RecurrentTile<Config>::DIRECTIONS);
    return variant.launch(request, arguments.workspace(), arguments.stream());
  });
}

// Clusters of the config that run at one time.
extern "C" int64_t recurrent_clusters(int64_t config) {
  return All::pick(config, [&](auto chosen) -> int64_t {
    using Config = decltype(chosen);
    using Tile = RecurrentTile<Config>;
    auto* const kernel = recurrent_steps<Config>;
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                         cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return most_clusters(kernel, Tile::THREADS, Tile::SHARED_BYTES, Tile::CLUSTER);
  });
}
