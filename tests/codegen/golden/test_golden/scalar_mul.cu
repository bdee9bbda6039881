// ---- mul ----
// Replaces mul.
// f32[s0, s1], scalar f64 -> f32[s0, s1]
// At these sizes 536.9 MB read and written, 0.067 GFLOP.
// 128 threads, 1 accesses of 4 elements each.
namespace {

struct Mul {
  float scalar1;
  __device__ float operator()(float a) const { return a * scalar1; }
};

struct MulConfig {
  static constexpr int THREADS = 128;
  static constexpr int WIDTH = 4;
  static constexpr int UNROLL = 1;
};
using MulPointwise = Pointwise<MulConfig, Mul, float, float>;

// All operands contiguous.
__global__ void __launch_bounds__(MulConfig::THREADS)
    mul_kernel(MulPointwise::Contiguous parameters) {
  parameters.run();
}

// Each operand contiguous or repeated along the innermost dimension.
__global__ void __launch_bounds__(MulConfig::THREADS)
    mul_rows_kernel(MulPointwise::Rows parameters) {
  parameters.run();
}

// Any strides and alignment.
__global__ void __launch_bounds__(MulConfig::THREADS)
    mul_strided_kernel(MulPointwise::Strided parameters) {
  parameters.run();
}

}  // namespace

extern "C" int launch_mul(const int64_t* words) {
  Arguments arguments(words);
  const Tensor out = arguments.tensor();
  const Tensor a = arguments.tensor();
  const float scalar1 = static_cast<float>(arguments.real());
  if (arguments.status() != cudaSuccess) return arguments.status();
  return MulPointwise::launch(
      {mul_kernel, mul_rows_kernel, mul_strided_kernel},
      Mul{scalar1}, arguments.stream(), out, a);
}

