// Entry points for test_host.py: what the kernels compute on the host, and functions of one
// element.

#include <cuda_runtime.h>

#include "divide.cuh"
#include "gemm_problem.cuh"
#include "index_space.cuh"
#include "math.cuh"
#include "run.cuh"

extern "C" {

uint32_t quotient(uint32_t value, uint32_t divisor) { return Divisor(divisor).quotient(value); }
int64_t long_quotient(int64_t value, int64_t divisor) {
  return LongDivisor(divisor).quotient(value);
}

// Words: a result and two operands. Writes rank, sizes, and the strides of each dimension.
int index_space(const int64_t* words, int64_t* found) {
  Arguments arguments(words);
  const Tensor out = arguments.tensor();
  const Tensor a = arguments.tensor();
  const Tensor b = arguments.tensor();
  if (arguments.status() != cudaSuccess) return arguments.status();
  const IndexSpace<3> space = make_index_space<3>({out, a, b});
  *found++ = space.rank;
  for (int d = 0; d < space.rank; ++d) {
    *found++ = space.sizes[d];
    for (int o = 0; o < 3; ++o) *found++ = space.strides[d][o];
  }
  return cudaSuccess;
}

// Words: a tensor of three dimensions of float32, which view, four numbers. Writes how many bytes
// further the view begins, its rank, sizes and strides.
int view_of(const int64_t* words, int64_t* found) {
  Arguments arguments(words);
  const Tensor of = arguments.tensor();
  const int64_t which = arguments.integer();
  int64_t n[4];
  for (int64_t& number : n) number = arguments.integer();
  const int d = static_cast<int>(n[0]), e = static_cast<int>(n[1]), f = static_cast<int>(n[2]);
  const Tensor views[] = {
      which == 0 ? permuted(of, {d, e, f}) : of,
      which == 1 ? unsqueezed(of, d) : of,
      which == 2 ? sliced(of, 4, d, n[1], n[2], n[3]) : of,
      which == 3 ? selected(of, 4, d, n[1]) : of,
      which == 4 ? expanded(of, {n[0], n[1], n[2], n[3]}) : of,
      which == 5 ? reshaped(of, {n[0], n[1], n[2], n[3]}) : of,
      which == 6 ? diagonal(of) : of,
  };
  const Tensor& view = views[which];
  *found++ = static_cast<char*>(view.data) - static_cast<char*>(of.data);
  *found++ = view.rank;
  for (int i = 0; i < view.rank; ++i) *found++ = view.sizes[i];
  for (int i = 0; i < view.rank; ++i) *found++ = view.strides[i];
  return arguments.status();
}

// Words: an integer width, then as above. Writes both halves: sizes, then byte offsets of operands.
int halve(const int64_t* words, int64_t* found) {
  Arguments arguments(words);
  const int width = static_cast<int>(arguments.integer());
  const Tensor out = arguments.tensor();
  const Tensor a = arguments.tensor();
  const Tensor b = arguments.tensor();
  const IndexSpace<3> space = make_index_space<3>({out, a, b});
  IndexSpace<3> halves[2];
  space.halve(width, {4, 4, 2}, halves);
  for (const IndexSpace<3>& half : halves) {
    for (int d = 0; d < half.rank; ++d) *found++ = half.sizes[d];
    for (int o = 0; o < 3; ++o) *found++ = half.data[o] - space.data[o];
  }
  return cudaSuccess;
}

struct Identity {};

// Words: result, lhs, rhs, one extra. Writes m, n, k, batch rank and sizes, then for each operand
// row stride, column stride, whether it has column vectors, batch strides.
int describe(const int64_t* words, int64_t* found) {
  Arguments arguments(words);
  const Tensor out = arguments.tensor();
  const Tensor lhs = arguments.tensor();
  const Tensor rhs = arguments.tensor();
  const Tensor extra = arguments.tensor();
  const auto problem = Gemm<float, float, Identity, float>::describe({}, out, lhs, rhs, extra);
  *found++ = problem.m;
  *found++ = problem.n;
  *found++ = problem.k;
  *found++ = problem.batches;
  *found++ = problem.batch_rank;
  for (int d = 0; d < problem.batch_rank; ++d) *found++ = problem.batch_sizes[d];
  for (const MatrixOperand& operand : problem.operands) {
    *found++ = operand.row_stride;
    *found++ = operand.column_stride;
    *found++ = operand.has_column_vectors;
    for (int d = 0; d < problem.batch_rank; ++d) *found++ = operand.batch_strides[d];
  }
  return cudaSuccess;
}
}

template <class T>
T function(int which, T x, T y) {
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
      return softplus(x, 1.5, 20);
    case 6:
      return mish(x);
    case 7:
      return hardswish(x);
    case 8:
      return hardsigmoid(x);
    case 9:
      return hardtanh(x, -0.5, 2);
    case 10:
      return leaky_relu(x, 0.01);
    case 11:
      return elu(x, 1.5, 1, 1);
    case 12:
      return softsign(x);
    case 13:
      return log_sigmoid(x);
    case 14:
      return clamp(x, -1, 1);
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
      return xlogy(x, y);
    case 21:
      return logaddexp(x, y);
    case 22:
      return logaddexp2(x, y);
    case 23:
      return digamma(x);
    default:
      return power(x, y);
  }
}

extern "C" {

void divide_by_row(const float* x, const float* divisors, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = divide_by_row(x[i], divisors[i]);
}
void share_of_sum(const float* x, const float* sums, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = share_of_sum(x[i], sums[i]);
}
void apply_float(int which, const float* x, const float* y, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = function(which, x[i], y[i]);
}
void apply_double(int which, const double* x, const double* y, double* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = function(which, x[i], y[i]);
}
void apply_integer(int which, const int64_t* x, const int64_t* y, int64_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    switch (which) {
      case 0:
        out[i] = floor_divide(x[i], y[i]);
        break;
      case 1:
        out[i] = floor_remainder(x[i], y[i]);
        break;
      case 2:
        out[i] = power(x[i], y[i]);
        break;
      case 3:
        out[i] = absolute(x[i]);
        break;
      case 4:
        out[i] = sign(x[i]);
        break;
      case 5:
        out[i] = relu(x[i]);
        break;
      case 6:
        out[i] = shift_left<int64_t>(x[i], 9 * y[i]);
        break;
      case 7:
        out[i] = shift_right<int64_t>(x[i], 9 * y[i]);
        break;
      default:
        out[i] = clamp(x[i], -3, 3);
        break;
    }
  }
}
}
