// ---- matmul ----
// Replaces matmul.
// f32[s0, s1], f32[s1, s2] -> f32[s0, s2]
// At these sizes 234.9 MB read and written, 137.439 GFLOP.
// three fp16 tensor-core products, a part of a factor split meanwhile; tile 128x128x64, 3 stages, clusters of two blocks.
namespace {

struct Matmul {
  __device__ float operator()(float acc) const { return acc; }
};

using MatmulProblem = Gemm<float, float, Matmul>;

// The captured sizes and layouts.
struct MatmulTuned {
  using Instruction = Wgmma128F16;
  static constexpr Feed FEED = Feed::AHEAD;
  static constexpr int STAGES = 3, CLUSTER = 2, SLICES = 1;
  static constexpr int RESIDENT = 1, TAPS = 1, PIXELS = 0;
  static constexpr bool TRANSPOSED = false;
  static constexpr Major LHS = Major::K, RHS = Major::MN;
  static constexpr int64_t MIN_PRODUCTS = 16777216;
  static constexpr int64_t LEAST_AHEAD = 8388608;
};

// What the tensor cores are not for.
using MatmulGeneralVariant = PlainVariant<MatmulProblem>;
using MatmulTunedVariant = Sm90Variant<MatmulTuned, MatmulProblem>;

// The library below has only one way of storing results.
static_assert(!MatmulTunedVariant::Tile::BUFFERED, "32 columns at a time");

__global__ void __launch_bounds__(MatmulTunedVariant::THREADS, 1)
    matmul_kernel(const __grid_constant__ MatmulTunedVariant::Parameters parameters) {
  gemm_sm90<MatmulTuned>(parameters);
}

__global__ void __launch_bounds__(MatmulGeneralVariant::THREADS, MatmulGeneralVariant::MIN_BLOCKS)
    matmul_general_kernel(const __grid_constant__ MatmulProblem problem) {
  gemm_plain(problem);
}

MatmulProblem read_matmul(Arguments& arguments) {
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  if (arguments.status() != cudaSuccess) return {};
  return MatmulProblem::describe(Matmul{}, out, lhs, rhs);
}

}  // namespace

// Bytes of device memory that the launch with the same words needs for itself.
extern "C" int64_t workspace_matmul(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_matmul(arguments);
  if (!problem.has_results() || !MatmulTunedVariant::admits(problem)) return 0;
  return MatmulTunedVariant::workspace_bytes(problem);
}

extern "C" int launch_matmul(const int64_t* words) {
  Arguments arguments(words);
  const auto problem = read_matmul(arguments);
  if (arguments.status() != cudaSuccess || !problem.has_results()) return arguments.status();
  const MatmulGeneralVariant general{matmul_general_kernel};
  const bool admits = MatmulTunedVariant::admits(problem);
  if (!admits) return general.launch(problem, arguments.stream(), nullptr);
  return MatmulTunedVariant{matmul_kernel}.launch(
      problem, arguments.stream(), arguments.workspace());
}

