// The short product on the CUDA cores for test_plain.py, which fills in TYPE.

struct Scale {
  float factor;
  __device__ float operator()(float sum, float bias) const { return sum * factor + bias; }
};
using Problem = Gemm<TYPE, float, Scale, float>;
using Variant = PlainVariant<Problem>;

__global__ void __launch_bounds__(Variant::THREADS, Variant::MIN_BLOCKS)
    plain_kernel(const __grid_constant__ Problem problem) {
  gemm_plain(problem);
}

extern "C" int plain_launch(const int64_t* words) {
  Arguments arguments(words);
  const Scale scale = {static_cast<float>(arguments.real())};
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor bias = arguments.tensor();
  const Problem problem = Problem::describe(scale, out, lhs, rhs, bias);
  return launch_gemm(problem, arguments.stream(), nullptr, Variant{plain_kernel});
}
