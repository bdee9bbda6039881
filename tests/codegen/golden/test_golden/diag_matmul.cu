// ---- diag_matmul ----
// Replaces diag, matmul.
// f32[s0, 1], f32[s0, s1] -> f32[s0, s1]
// At these sizes 134.2 MB read and written, 0.017 GFLOP.
// 128 threads, 2 accesses of 4 elements each.
namespace {

struct DiagMatmul {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct DiagMatmulConfig {
  static constexpr int THREADS = 128;
  static constexpr int WIDTH = 4;
  static constexpr int UNROLL = 2;
  static constexpr unsigned ONES = 1;
};
using DiagMatmulPointwise = LinePointwise<DiagMatmulConfig, DiagMatmul, float, float, float>;

// All operands contiguous.
__global__ void __launch_bounds__(DiagMatmulConfig::THREADS)
    diag_matmul_kernel(DiagMatmulPointwise::Contiguous parameters) {
  parameters.run();
}

// Each operand contiguous or repeated along the innermost dimension.
__global__ void __launch_bounds__(DiagMatmulConfig::THREADS)
    diag_matmul_rows_kernel(DiagMatmulPointwise::Rows parameters) {
  parameters.run();
}

// Any strides and alignment.
__global__ void __launch_bounds__(DiagMatmulConfig::THREADS)
    diag_matmul_strided_kernel(DiagMatmulPointwise::Strided parameters) {
  parameters.run();
}

// Lines, and one element for each of them.
__global__ void __launch_bounds__(DiagMatmulPointwise::THREADS)
    diag_matmul_lines_kernel(DiagMatmulPointwise::Lines parameters) {
  parameters.run();
}

}  // namespace

extern "C" int launch_diag_matmul(const int64_t* words) {
  Arguments arguments(words);
  const Tensor out = arguments.tensor();
  const Tensor a = arguments.tensor();
  const Tensor b = arguments.tensor();
  if (arguments.status() != cudaSuccess) return arguments.status();
  return DiagMatmulPointwise::launch(
      {diag_matmul_kernel, diag_matmul_rows_kernel, diag_matmul_strided_kernel}, diag_matmul_lines_kernel,
      DiagMatmul{}, arguments.stream(), out, a, b);
}

