// Thin products for test_thin.py, which fills in FACTOR, SUM and CONFIG. Small blocks on a small
// device, so that small products have many blocks and slices.

struct Scale {
  SUM factor;
  __device__ SUM operator()(SUM sum, SUM bias) const { return sum * factor + bias; }
};
using Problem = Gemm<FACTOR, FACTOR, Scale, FACTOR>;

struct Thin {
  static constexpr int CONFIG;
  static constexpr int THREADS = 64, RESIDENT = 2, MULTIPROCESSORS = 3;
  static constexpr Major WIDE = Major::NONE;
};
using Variant = ThinVariant<Thin, Problem>;

__global__ void __launch_bounds__(Variant::THREADS, Variant::MIN_BLOCKS)
    thin_kernel(const __grid_constant__ Variant::Parameters parameters) {
  gemm_thin<Thin, Problem>(parameters);
}

static Problem read(Arguments& arguments) {
  const Scale scale = {static_cast<SUM>(arguments.real())};
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor bias = arguments.tensor();
  return Problem::describe(scale, out, lhs, rhs, bias);
}

extern "C" int64_t thin_slices(const int64_t* words) {
  Arguments arguments(words);
  return Variant::plan(read(arguments)).slices;
}

extern "C" int64_t thin_workspace(const int64_t* words) {
  Arguments arguments(words);
  return gemm_workspace(read(arguments), Variant{thin_kernel});
}

extern "C" int thin_launch(const int64_t* words) {
  Arguments arguments(words);
  const Problem problem = read(arguments);
  return launch_gemm(problem, arguments.stream(), arguments.workspace(), Variant{thin_kernel});
}
