// Instances of the device code for kernels.py: several configs of each family behind entry points
// that take packed words. The first integer after the stream picks the config.

#include <tuple>

#include "bfloat16.cuh"
#include "gemm_launch.cuh"
#include "gemm_simt.cuh"
#include "half.cuh"
#include "math.cuh"
#include "pointwise.cuh"

namespace {

// ---- Pointwise ----------------------------------------------------------------------------------

template <int THREADS_, int WIDTH_, int UNROLL_>
struct PointwiseTile {
  static constexpr int THREADS = THREADS_, WIDTH = WIDTH_, UNROLL = UNROLL_;
};

template <class Kernel>
__global__ void __launch_bounds__(1024) contiguous_kernel(typename Kernel::Contiguous x) {
  x.run();
}
template <class Kernel>
__global__ void __launch_bounds__(1024) rows_kernel(typename Kernel::Rows x) {
  x.run();
}
template <class Kernel>
__global__ void __launch_bounds__(1024) strided_kernel(typename Kernel::Strided x) {
  x.run();
}

template <class Config, class Out, class... In, class Operation, class... Tensors>
cudaError_t run_pointwise(const Operation& operation, cudaStream_t stream, const Tensor& out,
                          const Tensors&... in) {
  using Kernel = Pointwise<Config, Operation, Out, In...>;
  return Kernel::launch({contiguous_kernel<Kernel>, rows_kernel<Kernel>, strided_kernel<Kernel>},
                        operation, stream, out, in...);
}

template <class T>
struct Scale {
  T s;
  __device__ T operator()(T a) const { return a * s; }
};

template <class T>
struct Multiply {
  __device__ T operator()(T a, T b) const { return a * b; }
};

struct MultiplyAdd {
  __device__ float operator()(float a, float b, int32_t c) const { return a * b + c; }
};

using PointwiseTiles =
    std::tuple<PointwiseTile<256, 4, 1>, PointwiseTile<256, 4, 2>, PointwiseTile<256, 4, 4>,
               PointwiseTile<512, 4, 1>, PointwiseTile<512, 4, 2>, PointwiseTile<1024, 4, 1>,
               PointwiseTile<128, 4, 1>, PointwiseTile<128, 4, 2>>;

// Calls `action` with the `index`-th type of a tuple.
template <class Types, class Action, size_t... I>
cudaError_t pick(int64_t index, const Action& action, std::index_sequence<I...>) {
  cudaError_t status = cudaErrorInvalidValue;
  ((index == int64_t{I} ? (void)(status = action(std::tuple_element_t<I, Types>())) : void()), ...);
  return status;
}
template <class Types, class Action>
cudaError_t pick(int64_t index, const Action& action) {
  return pick<Types>(index, action, std::make_index_sequence<std::tuple_size_v<Types>>());
}

// ---- Functions of math.cuh ----------------------------------------------------------------------

template <class T>
struct MathFunction {
  int64_t which;
  __device__ T operator()(T x, T y) const {
    switch (which) {
      case 0:
        return relu(x);
      case 1:
        return sigmoid(x);
      case 2:
        return silu(x);
      case 3:
        return gelu(x);
      case 4:
        return gelu_tanh(x);
      case 5:
        return softplus(x, T(1.5), T(20));
      case 6:
        return mish(x);
      case 7:
        return hardswish(x);
      case 8:
        return hardsigmoid(x);
      case 9:
        return hardtanh(x, T(-0.5), T(2));
      case 10:
        return leaky_relu(x, T(0.01));
      case 11:
        return elu(x, T(1.5), T(1), T(1));
      case 12:
        return softsign(x);
      case 13:
        return log_sigmoid(x);
      case 14:
        return clamp(x, T(-1), T(1));
      case 15:
        return sign(x);
      case 16:
        return floor_divide(x, y);
      case 17:
        return floor_remainder(x, y);
      case 18:
        return maximum(x, y);
      case 19:
        return minimum(x, y);
      case 20:
        return power(x, y);
      default:
        return x;
    }
  }
};

struct IntegerFunction {
  int64_t which;
  __device__ int64_t operator()(int64_t x, int64_t y) const {
    switch (which) {
      case 0:
        return floor_divide(x, y);
      case 1:
        return floor_remainder(x, y);
      case 2:
        return power(x, y);
      case 3:
        return absolute(x);
      default:
        return clamp(x, -3, 3);
    }
  }
};

// ---- Matrix products ----------------------------------------------------------------------------

template <int M, int N, int K, int TM, int TN, int S, int PROMOTE, Major L, Major R>
struct GemmConfig {
  static constexpr int BLOCK_M = M, BLOCK_N = N, BLOCK_K = K, THREAD_M = TM, THREAD_N = TN;
  static constexpr int STAGES = S, PROMOTE_K = PROMOTE, MIN_TILES = 0;
  static constexpr Major LHS = L, RHS = R;
};

template <class Config, class Problem>
__global__ void __launch_bounds__((GemmTile<Config, Problem>::THREADS),
                                  (GemmTile<Config, Problem>::MIN_BLOCKS))
    gemm_kernel(Problem problem) {
  gemm_simt<Config>(problem);
}

template <class T>
struct Identity {
  __device__ T operator()(T sum) const { return sum; }
};
struct BiasReluDivide {
  float divisor;
  __device__ float operator()(float sum, float bias) const { return relu(sum + bias) / divisor; }
};

template <class Config, class Problem>
cudaError_t run_gemm(const Problem& problem, cudaStream_t stream) {
  return launch_gemm(problem, stream, nullptr,
                     GemmVariant<Config, Problem>{gemm_kernel<Config, Problem>});
}

template <Major L, Major R>
using Tiles = std::tuple<
    GemmConfig<128, 128, 16, 8, 8, 2, 512, L, R>, GemmConfig<128, 128, 16, 8, 8, 3, 0, L, R>,
    GemmConfig<128, 128, 32, 8, 8, 2, 0, L, R>, GemmConfig<128, 128, 16, 16, 8, 2, 512, L, R>,
    GemmConfig<128, 128, 16, 8, 16, 2, 512, L, R>, GemmConfig<128, 256, 16, 8, 16, 3, 512, L, R>,
    GemmConfig<256, 128, 16, 16, 8, 3, 512, L, R>, GemmConfig<64, 128, 16, 8, 8, 3, 512, L, R>,
    GemmConfig<64, 64, 16, 4, 4, 3, 512, L, R>, GemmConfig<32, 64, 16, 4, 4, 3, 512, L, R>,
    GemmConfig<32, 32, 32, 4, 4, 4, 512, L, R>>;
// Of the layout in which nothing is known.
using GeneralTiles = std::tuple<GemmConfig<64, 64, 16, 4, 4, 3, 512, Major::NONE, Major::NONE>,
                                GemmConfig<32, 64, 16, 4, 4, 3, 512, Major::NONE, Major::NONE>,
                                GemmConfig<32, 32, 32, 4, 4, 4, 512, Major::NONE, Major::NONE>>;

template <class Types, class Problem>
cudaError_t pick_gemm(int64_t index, const Problem& problem, cudaStream_t stream) {
  return pick<Types>(
      index, [&](auto config) { return run_gemm<decltype(config), Problem>(problem, stream); });
}

// The layouts that the general kernels must handle, for types with few instances.
template <class T, int TM, int TN, int PROMOTE>
using SmallTiles = std::tuple<GemmConfig<64, 64, 16, TM, TN, 2, PROMOTE, Major::NONE, Major::NONE>,
                              GemmConfig<64, 64, 16, TM, TN, 2, PROMOTE, Major::K, Major::MN>,
                              GemmConfig<64, 64, 16, TM, TN, 2, PROMOTE, Major::MN, Major::K>>;

template <class T, int PROMOTE>
cudaError_t small_gemm(Arguments& args) {
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor lhs = args.tensor();
  const Tensor rhs = args.tensor();
  using Problem = Gemm<T, T, Identity<compute_t<T>>>;
  return pick_gemm<SmallTiles<T, 4, 4, PROMOTE>>(index, Problem::describe({}, out, lhs, rhs),
                                                 args.stream());
}

// ---- The ceiling of multiply-adds ---------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(256) multiply_add_kernel(T* out, int64_t steps, T factor) {
  constexpr int CHAINS = 16;
  T chain[CHAINS];
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) chain[c] = T(threadIdx.x + c);
#pragma unroll 16
  for (int64_t step = 0; step < steps; ++step) {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) chain[c] = chain[c] * factor + T(0.25);
  }
  T sum = 0;
#pragma unroll
  for (int c = 0; c < CHAINS; ++c) sum += chain[c];
  out[static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

extern "C" {

const char* error_name(int status) { return cudaGetErrorName(static_cast<cudaError_t>(status)); }

int scale_float(const int64_t* words) {
  Arguments args(words);
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor a = args.tensor();
  const Scale<float> operation{static_cast<float>(args.real())};
  return pick<PointwiseTiles>(index, [&](auto config) {
    return run_pointwise<decltype(config), float, float>(operation, args.stream(), out, a);
  });
}

int multiply_float(const int64_t* words) {
  Arguments args(words);
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor a = args.tensor();
  const Tensor b = args.tensor();
  return pick<PointwiseTiles>(index, [&](auto config) {
    return run_pointwise<decltype(config), float, float, float>(Multiply<float>(), args.stream(),
                                                                out, a, b);
  });
}

// 0 half, 1 bfloat16, 2 double, 3 int64, 4 bool.
int multiply_other(const int64_t* words) {
  Arguments args(words);
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor a = args.tensor();
  const Tensor b = args.tensor();
  return pick<std::tuple<__half, __nv_bfloat16, double, int64_t, bool>>(index, [&](auto type) {
    using T = decltype(type);
    return run_pointwise<PointwiseTile<256, 16 / sizeof(T), 2>, T, T, T>(Multiply<compute_t<T>>(),
                                                                         args.stream(), out, a, b);
  });
}

int multiply_add_mixed(const int64_t* words) {
  Arguments args(words);
  const Tensor out = args.tensor();
  const Tensor a = args.tensor();
  const Tensor b = args.tensor();
  const Tensor c = args.tensor();
  return run_pointwise<PointwiseTile<256, 4, 2>, float, __half, float, int32_t>(
      MultiplyAdd(), args.stream(), out, a, b, c);
}

int math_float(const int64_t* words) {
  Arguments args(words);
  const MathFunction<float> operation{args.integer()};
  const Tensor out = args.tensor();
  const Tensor x = args.tensor();
  const Tensor y = args.tensor();
  return run_pointwise<PointwiseTile<256, 4, 1>, float, float, float>(operation, args.stream(), out,
                                                                      x, y);
}

int math_double(const int64_t* words) {
  Arguments args(words);
  const MathFunction<double> operation{args.integer()};
  const Tensor out = args.tensor();
  const Tensor x = args.tensor();
  const Tensor y = args.tensor();
  return run_pointwise<PointwiseTile<256, 2, 1>, double, double, double>(operation, args.stream(),
                                                                         out, x, y);
}

int math_integer(const int64_t* words) {
  Arguments args(words);
  const IntegerFunction operation{args.integer()};
  const Tensor out = args.tensor();
  const Tensor x = args.tensor();
  const Tensor y = args.tensor();
  return run_pointwise<PointwiseTile<256, 2, 1>, int64_t, int64_t, int64_t>(
      operation, args.stream(), out, x, y);
}

// Layout (0 NN, 1 NT, 2 TN, 3 TT, 4 general), config, out, lhs, rhs.
int gemm_float(const int64_t* words) {
  Arguments args(words);
  const int64_t layout = args.integer();
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor lhs = args.tensor();
  const Tensor rhs = args.tensor();
  const auto problem = Gemm<float, float, Identity<float>>::describe({}, out, lhs, rhs);
  const cudaStream_t stream = args.stream();
  switch (layout) {
    case 0:
      return pick_gemm<Tiles<Major::K, Major::MN>>(index, problem, stream);
    case 1:
      return pick_gemm<Tiles<Major::K, Major::K>>(index, problem, stream);
    case 2:
      return pick_gemm<Tiles<Major::MN, Major::MN>>(index, problem, stream);
    case 3:
      return pick_gemm<Tiles<Major::MN, Major::K>>(index, problem, stream);
    default:
      return pick_gemm<GeneralTiles>(index, problem, stream);
  }
}

// The same matrix with rows and columns exchanged.
Tensor transposed(const Tensor& matrix) {
  Tensor result = matrix;
  std::swap(result.sizes[0], result.sizes[1]);
  std::swap(result.strides[0], result.strides[1]);
  return result;
}

int linear_relu_div(const int64_t* words) {
  Arguments args(words);
  const int64_t index = args.integer();
  const Tensor out = args.tensor();
  const Tensor x = args.tensor();
  const Tensor weight = args.tensor();
  const Tensor bias = args.tensor();
  const BiasReluDivide epilogue{static_cast<float>(args.real())};
  const auto problem = Gemm<float, float, BiasReluDivide, float>::describe(
      epilogue, out, x, transposed(weight), bias);
  using Variants = std::tuple<GemmConfig<128, 128, 16, 8, 8, 2, 512, Major::K, Major::K>,
                              GemmConfig<128, 128, 32, 8, 8, 2, 0, Major::K, Major::K>,
                              GemmConfig<128, 256, 16, 8, 16, 3, 512, Major::K, Major::K>,
                              GemmConfig<64, 64, 16, 4, 4, 3, 512, Major::NONE, Major::NONE>>;
  return pick_gemm<Variants>(index, problem, args.stream());
}

// out, bytes of an element, steps of 16 multiply-adds a thread.
int multiply_add_rate(const int64_t* words) {
  Arguments args(words);
  const Tensor out = args.tensor();
  const int64_t bytes = args.integer();
  const int64_t steps = args.integer();
  const unsigned blocks = static_cast<unsigned>(out.sizes[0] / 256);
  if (bytes == 8) {
    multiply_add_kernel<<<blocks, 256, 0, args.stream()>>>(static_cast<double*>(out.data), steps,
                                                           0.5);
  } else {
    multiply_add_kernel<<<blocks, 256, 0, args.stream()>>>(static_cast<float*>(out.data), steps,
                                                           0.5f);
  }
  return cudaGetLastError();
}

int gemm_double(const int64_t* words) {
  Arguments args(words);
  return small_gemm<double, 0>(args);
}
int gemm_half(const int64_t* words) {
  Arguments args(words);
  return small_gemm<__half, 512>(args);
}
int gemm_bfloat16(const int64_t* words) {
  Arguments args(words);
  return small_gemm<__nv_bfloat16, 512>(args);
}
}
