// Tiles of the CUDA-core product for test_tiles.py, which fills in CONFIG and WAYS. A kernel for
// each of the ways that the factors lie, launched where it admits the operands.

struct Scale {
  float factor;
  __device__ float operator()(float sum, float bias) const { return sum * factor + bias; }
};
using Problem = Gemm<float, float, Scale, float>;

template <Major L, Major R>
struct Tile {
  static constexpr int CONFIG;
  static constexpr int PROMOTE_K = 0, MIN_TILES = 0;
  static constexpr Major LHS = L, RHS = R;
};

template <class Config>
__global__ void __launch_bounds__((GemmTile<Config, Problem>::THREADS),
                                  (GemmTile<Config, Problem>::MIN_BLOCKS))
    tile_kernel(const __grid_constant__ Problem problem) {
  gemm_simt<Config>(problem);
}

template <Major L, Major R>
constexpr bool is_wanted() {
  constexpr Major K = Major::K, MN = Major::MN, NONE = Major::NONE;
  return WAYS;
}

template <Major L, Major R>
static int launch(const Problem& problem, cudaStream_t stream) {
  if constexpr (is_wanted<L, R>()) {
    const GemmVariant<Tile<L, R>, Problem> variant{tile_kernel<Tile<L, R>>};
    return variant.admits(problem) ? variant.launch(problem, stream, nullptr) : -1;
  } else {
    return -1;
  }
}

template <Major L>
static int launch(int right, const Problem& problem, cudaStream_t stream) {
  if (right == 0) return launch<L, Major::K>(problem, stream);
  if (right == 1) return launch<L, Major::MN>(problem, stream);
  return launch<L, Major::NONE>(problem, stream);
}

extern "C" int tile_launch(const int64_t* words) {
  Arguments arguments(words);
  const int left = static_cast<int>(arguments.integer());
  const int right = static_cast<int>(arguments.integer());
  const Scale scale = {static_cast<float>(arguments.real())};
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor bias = arguments.tensor();
  const Problem problem = Problem::describe(scale, out, lhs, rhs, bias);
  if (problem.batches * problem.m * problem.n == 0) return 0;
  if (left == 0) return launch<Major::K>(right, problem, arguments.stream());
  if (left == 1) return launch<Major::MN>(right, problem, arguments.stream());
  return launch<Major::NONE>(right, problem, arguments.stream());
}
