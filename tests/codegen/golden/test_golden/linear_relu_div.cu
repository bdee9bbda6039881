// ---- linear_relu_div ----
// Replaces linear, relu, div.
// f32[s0, 8192], f32[8192, 8192], f32[8192] -> f32[s0, 8192]
// At these sizes 335.6 MB read and written, 137.464 GFLOP.
// three fp16 tensor-core products, a part of a factor split meanwhile; tile 128x128x64, 3 stages, clusters of two blocks.
namespace {

struct LinearReluDiv {
  __device__ float operator()(float acc, float a) const {
    return relu(acc + a) / 2.0f;
  }
};

using LinearReluDivProblem = Gemm<float, float, LinearReluDiv, float>;

// The captured sizes and layouts.
struct LinearReluDivTuned {
  using Instruction = Wgmma128F16;
  static constexpr Feed FEED = Feed::AHEAD;
  static constexpr int STAGES = 3, CLUSTER = 2, SLICES = 1;
  static constexpr bool TRANSPOSED = false;
  static constexpr Major LHS = Major::K, RHS = Major::K;
  static constexpr int64_t MIN_PRODUCTS = 16777216;
  static constexpr int64_t LEAST_AHEAD = 8388608;
};

// The same layouts, too small for the tensor cores.
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
  static constexpr int BLOCK_M = 64, BLOCK_N = 128, BLOCK_K = 16;
  static constexpr int THREAD_M = 8, THREAD_N = 8;
  static constexpr int STAGES = 2;
  static constexpr int PROMOTE_K = 512;
  static constexpr Major LHS = Major::NONE, RHS = Major::NONE;
  static constexpr int64_t MIN_TILES = 0;
};

using LinearReluDivGeneralVariant = GemmVariant<LinearReluDivGeneral, LinearReluDivProblem>;
using LinearReluDivSmallVariant = GemmVariant<LinearReluDivSmall, LinearReluDivProblem>;
using LinearReluDivTunedVariant =
    Sm90Variant<LinearReluDivTuned, LinearReluDivProblem>;

// The library below has only one way of storing results.
static_assert(!LinearReluDivTunedVariant::Tile::BUFFERED,
              "whole rows of results have no room in shared memory");

__global__ void __launch_bounds__(LinearReluDivTunedVariant::THREADS, 1)
    linear_relu_div_kernel(const __grid_constant__ LinearReluDivTunedVariant::Parameters parameters) {
  gemm_sm90<LinearReluDivTuned>(parameters);
}

__global__ void __launch_bounds__(LinearReluDivSmallVariant::Tile::THREADS,
                                  LinearReluDivSmallVariant::Tile::MIN_BLOCKS)
    linear_relu_div_small_kernel(const __grid_constant__ LinearReluDivProblem parameters) {
  gemm_simt<LinearReluDivSmall>(parameters);
}

__global__ void __launch_bounds__(LinearReluDivGeneralVariant::Tile::THREADS,
                                  LinearReluDivGeneralVariant::Tile::MIN_BLOCKS)
    linear_relu_div_general_kernel(const __grid_constant__ LinearReluDivProblem parameters) {
  gemm_simt<LinearReluDivGeneral>(parameters);
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

// Bytes of device memory that the launch with the same words needs for itself.
extern "C" int64_t workspace_linear_relu_div(const int64_t* words) {
  Arguments arguments(words);
  const LinearReluDivGeneralVariant general{linear_relu_div_general_kernel};
  return gemm_workspace(read_linear_relu_div(arguments),
                        LinearReluDivTunedVariant{linear_relu_div_kernel},
                        LinearReluDivSmallVariant{linear_relu_div_small_kernel}, general);
}

extern "C" int launch_linear_relu_div(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_linear_relu_div(arguments);
  if (arguments.status() != cudaSuccess) return arguments.status();
  const LinearReluDivGeneralVariant general{linear_relu_div_general_kernel};
  return launch_gemm(problem, arguments.stream(), arguments.workspace(),
                     LinearReluDivTunedVariant{linear_relu_div_kernel},
                     LinearReluDivSmallVariant{linear_relu_div_small_kernel}, general);
}

