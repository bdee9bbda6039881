// ---- matmul ----
// Replaces matmul.
// f32[s0, s1], f32[s1, s2] -> f32[s0, s2]
// At these sizes 234.9 MB read and written, 137.439 GFLOP.
// tile 128x256x16, 8x16 a thread, 3 stages, 256 threads.
namespace {

struct Matmul {
  __device__ float operator()(float acc) const {
    return acc;
  }
};

using MatmulProblem = Gemm<float, float, Matmul>;

// The captured sizes and layouts.
struct MatmulTuned {
  static constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 16;
  static constexpr int THREAD_M = 8, THREAD_N = 16;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::K, RHS = Major::MN;
  static constexpr int64_t MIN_TILES = 66;
};

// The same layouts, too few tiles to fill the card.
struct MatmulSmall {
  static constexpr int BLOCK_M = 32, BLOCK_N = 64, BLOCK_K = 16;
  static constexpr int THREAD_M = 4, THREAD_N = 4;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::K, RHS = Major::MN;
  static constexpr int64_t MIN_TILES = 0;
};

// Any strides and alignment.
struct MatmulGeneral {
  static constexpr int BLOCK_M = 32, BLOCK_N = 64, BLOCK_K = 16;
  static constexpr int THREAD_M = 4, THREAD_N = 4;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::NONE, RHS = Major::NONE;
  static constexpr int64_t MIN_TILES = 0;
};

using MatmulTunedVariant = GemmVariant<MatmulTuned, MatmulProblem>;
using MatmulSmallVariant = GemmVariant<MatmulSmall, MatmulProblem>;
using MatmulGeneralVariant = GemmVariant<MatmulGeneral, MatmulProblem>;

__global__ void __launch_bounds__(MatmulTunedVariant::Tile::THREADS,
                                  MatmulTunedVariant::Tile::MIN_BLOCKS)
    matmul_kernel(const __grid_constant__ MatmulProblem problem) {
  gemm_simt<MatmulTuned>(problem);
}

__global__ void __launch_bounds__(MatmulSmallVariant::Tile::THREADS,
                                  MatmulSmallVariant::Tile::MIN_BLOCKS)
    matmul_small_kernel(const __grid_constant__ MatmulProblem problem) {
  gemm_simt<MatmulSmall>(problem);
}

__global__ void __launch_bounds__(MatmulGeneralVariant::Tile::THREADS,
                                  MatmulGeneralVariant::Tile::MIN_BLOCKS)
    matmul_general_kernel(const __grid_constant__ MatmulProblem problem) {
  gemm_simt<MatmulGeneral>(problem);
}

MatmulProblem read_matmul(Arguments& arguments) {
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  if (arguments.status() != cudaSuccess) return {};
  return MatmulProblem::describe(
      Matmul{}, out, lhs, rhs);
}

}  // namespace

extern "C" int launch_matmul(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_matmul(arguments);
  if (arguments.status() != cudaSuccess) return arguments.status();
  const MatmulGeneralVariant general{matmul_general_kernel};
  return launch_gemm(problem, arguments.stream(), arguments.workspace(),
                     MatmulTunedVariant{matmul_kernel},
                     MatmulSmallVariant{matmul_small_kernel}, general);
}

// The name of a CUDA error code that an entry point returned.
extern "C" const char* error_name(int code) {
  return cudaGetErrorName(static_cast<cudaError_t>(code));
}
