// ---- linear_relu_div ----
// Replaces linear, relu, div.
// f32[s0, 8192], f32[8192, 8192], f32[8192] -> f32[s0, 8192]
// At these sizes 335.6 MB read and written, 137.464 GFLOP.
// tile 128x256x16, 8x16 a thread, 3 stages, 256 threads.
namespace {

struct LinearReluDiv {
  __device__ float operator()(float acc, float a) const {
    return relu(acc + a) / 2.0f;
  }
};

using LinearReluDivProblem = Gemm<float, float, LinearReluDiv, float>;

// The captured sizes and layouts.
struct LinearReluDivTuned {
  static constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K = 16;
  static constexpr int THREAD_M = 8, THREAD_N = 16;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::K, RHS = Major::K;
  static constexpr int64_t MIN_TILES = 66;
};

// The same layouts, too few tiles to fill the card.
struct LinearReluDivSmall {
  static constexpr int BLOCK_M = 32, BLOCK_N = 64, BLOCK_K = 16;
  static constexpr int THREAD_M = 4, THREAD_N = 4;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::K, RHS = Major::K;
  static constexpr int64_t MIN_TILES = 0;
};

// Any strides and alignment.
struct LinearReluDivGeneral {
  static constexpr int BLOCK_M = 32, BLOCK_N = 64, BLOCK_K = 16;
  static constexpr int THREAD_M = 4, THREAD_N = 4;
  static constexpr int STAGES = 3;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::NONE, RHS = Major::NONE;
  static constexpr int64_t MIN_TILES = 0;
};

using LinearReluDivTunedVariant = GemmVariant<LinearReluDivTuned, LinearReluDivProblem>;
using LinearReluDivSmallVariant = GemmVariant<LinearReluDivSmall, LinearReluDivProblem>;
using LinearReluDivGeneralVariant = GemmVariant<LinearReluDivGeneral, LinearReluDivProblem>;

__global__ void __launch_bounds__(LinearReluDivTunedVariant::Tile::THREADS,
                                  LinearReluDivTunedVariant::Tile::MIN_BLOCKS)
    linear_relu_div_kernel(const __grid_constant__ LinearReluDivProblem problem) {
  gemm_simt<LinearReluDivTuned>(problem);
}

__global__ void __launch_bounds__(LinearReluDivSmallVariant::Tile::THREADS,
                                  LinearReluDivSmallVariant::Tile::MIN_BLOCKS)
    linear_relu_div_small_kernel(const __grid_constant__ LinearReluDivProblem problem) {
  gemm_simt<LinearReluDivSmall>(problem);
}

__global__ void __launch_bounds__(LinearReluDivGeneralVariant::Tile::THREADS,
                                  LinearReluDivGeneralVariant::Tile::MIN_BLOCKS)
    linear_relu_div_general_kernel(const __grid_constant__ LinearReluDivProblem problem) {
  gemm_simt<LinearReluDivGeneral>(problem);
}

LinearReluDivProblem read_linear_relu_div(Arguments& arguments) {
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor a = arguments.tensor();
  if (arguments.status() != cudaSuccess) return {};
  return LinearReluDivProblem::describe(
      LinearReluDiv{}, out, lhs, rhs, a);
}

}  // namespace

extern "C" int launch_linear_relu_div(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_linear_relu_div(arguments);
  if (arguments.status() != cudaSuccess) return arguments.status();
  const LinearReluDivGeneralVariant general{linear_relu_div_general_kernel};
  return launch_gemm(problem, arguments.stream(), arguments.workspace(),
                     LinearReluDivTunedVariant{linear_relu_div_kernel},
                     LinearReluDivSmallVariant{linear_relu_div_small_kernel}, general);
}

// The name of a CUDA error code that an entry point returned.
extern "C" const char* error_name(int code) {
  return cudaGetErrorName(static_cast<cudaError_t>(code));
}
