// ---- linear_relu_div ----
// Replaces linear, relu, div.
// f32[s0, 8192], f32[8192, 8192], f32[8192] -> f32[s0, 8192]
// At these sizes 335.6 MB read and written, 137.464 GFLOP.
// three fp16 tensor-core products, a part of a factor split meanwhile; tile 128x128x64, 3 stages, clusters of two blocks.
namespace {

struct LinearReluDiv {
  __device__ float operator()(float acc, float a) const { return relu(acc + a) / 2.0f; }
};

using LinearReluDivProblem = Gemm<float, float, LinearReluDiv, float>;

// The captured sizes and layouts.
struct LinearReluDivTuned {
  using Instruction = Wgmma128F16;
  static constexpr Feed FEED = Feed::AHEAD;
  static constexpr int STAGES = 3, CLUSTER = 2, SLICES = 1;
  static constexpr int RESIDENT = 1, TAPS = 1, PIXELS = 0;
  static constexpr bool TRANSPOSED = false;
  static constexpr Major LHS = Major::K, RHS = Major::K;
  static constexpr int64_t MIN_PRODUCTS = 16777216;
  static constexpr int64_t LEAST_AHEAD = 8388608;
};

// What the tensor cores are not for.
using LinearReluDivGeneralVariant = PlainVariant<LinearReluDivProblem>;
using LinearReluDivTunedVariant = Sm90Variant<LinearReluDivTuned, LinearReluDivProblem>;

// The library below has only one way of storing results.
static_assert(!LinearReluDivTunedVariant::Tile::BUFFERED, "32 columns at a time");

__global__ void __launch_bounds__(LinearReluDivTunedVariant::THREADS, 1)
    linear_relu_div_kernel(const __grid_constant__ LinearReluDivTunedVariant::Parameters parameters) {
  gemm_sm90<LinearReluDivTuned>(parameters);
}

__global__ void __launch_bounds__(LinearReluDivGeneralVariant::THREADS,
                                  LinearReluDivGeneralVariant::MIN_BLOCKS)
    linear_relu_div_general_kernel(const __grid_constant__ LinearReluDivProblem problem) {
  gemm_plain(problem);
}

LinearReluDivProblem read_linear_relu_div(Arguments& arguments) {
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor a = arguments.tensor();
  if (arguments.status() != cudaSuccess) return {};
  return LinearReluDivProblem::describe(LinearReluDiv{}, out, lhs, rhs, a);
}

}  // namespace

// Bytes of device memory that the launch with the same words needs for itself.
extern "C" int64_t workspace_linear_relu_div(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_linear_relu_div(arguments);
  if (!problem.has_results() || !LinearReluDivTunedVariant::admits(problem)) return 0;
  return LinearReluDivTunedVariant::workspace_bytes(problem);
}

extern "C" int launch_linear_relu_div(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_linear_relu_div(arguments);
  if (arguments.status() != cudaSuccess || !problem.has_results()) return arguments.status();
  const LinearReluDivGeneralVariant general{linear_relu_div_general_kernel};
  const bool admits = LinearReluDivTunedVariant::admits(problem);
  if (!admits) return general.launch(problem, arguments.stream(), nullptr);
  return LinearReluDivTunedVariant{linear_relu_div_kernel}.launch(
      problem, arguments.stream(), arguments.workspace());
}

