"""Sum, product, softmax and layer norm in one extension, whose sources come in lists.

The sum is the example of KernelBench's own prompt, on the default stream, with empty flags. Tiles
in shared memory; warp shuffles and dynamic shared memory for a row; Welford in warps, with
nn.Parameter and a class with constants.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

elementwise_add_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void elementwise_add_kernel(const float* a, const float* b, float* out, int size) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < size) {
        out[idx] = a[idx] + b[idx];
    }
}

torch::Tensor elementwise_add_cuda(torch::Tensor a, torch::Tensor b) {
    auto size = a.numel();
    auto out = torch::zeros_like(a);

    const int block_size = 256;
    const int num_blocks = (size + block_size - 1) / block_size;

    elementwise_add_kernel<<<num_blocks, block_size>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), size);

    return out;
}
"""

matmul_cuda = r"""
#include <torch/extension.h>

#define TILE 16

__global__ void matmul_kernel(const float* __restrict__ A, const float* __restrict__ B,
                              float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        As[threadIdx.y][threadIdx.x] =
            (row < M && t * TILE + threadIdx.x < K) ? A[row * K + t * TILE + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] =
            (col < N && t * TILE + threadIdx.y < K) ? B[(t * TILE + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

torch::Tensor matmul(torch::Tensor A, torch::Tensor B) {
    TORCH_CHECK(A.is_cuda() && B.is_cuda(), "CUDA tensors, please");
    TORCH_CHECK(A.scalar_type() == torch::kFloat32);
    const int M = A.size(0), K = A.size(1), N = B.size(1);
    auto C = torch::empty({M, N}, A.options());
    dim3 threads(TILE, TILE);
    dim3 blocks((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    matmul_kernel<<<blocks, threads>>>(A.data_ptr<float>(), B.data_ptr<float>(),
                                       C.data_ptr<float>(), M, N, K);
    return C;
}
"""

softmax_cuda = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cfloat>

__inline__ __device__ float warp_max(float v) {
    for (int offset = 16; offset > 0; offset >>= 1)
        v = fmaxf(v, __shfl_down_sync(0xffffffff, v, offset));
    return v;
}

__inline__ __device__ float warp_sum(float v) {
    #pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) v += __shfl_xor_sync(0xffffffff, v, mask);
    return v;
}

__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int cols) {
    extern __shared__ float row[];
    __shared__ float partial[32];
    const float* in = x + (size_t)blockIdx.x * cols;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;

    float top = -FLT_MAX;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        row[i] = in[i];
        top = fmaxf(top, row[i]);
    }
    top = warp_max(top);
    if (lane == 0) partial[warp] = top;
    __syncthreads();
    if (warp == 0) {
        top = lane < warps ? partial[lane] : -FLT_MAX;
        top = warp_max(top);
        if (lane == 0) partial[0] = top;
    }
    __syncthreads();
    top = partial[0];
    __syncthreads();

    float sum = 0.f;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        row[i] = __expf(row[i] - top);
        sum += row[i];
    }
    sum = warp_sum(sum);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = 0.f;
    for (int w = 0; w < warps; ++w) sum += partial[w];
    for (int i = threadIdx.x; i < cols; i += blockDim.x)
        y[(size_t)blockIdx.x * cols + i] = __fdividef(row[i], sum);
}

torch::Tensor softmax_forward(torch::Tensor x) {
    TORCH_CHECK(x.device().is_cuda(), "x must be a CUDA tensor");
    TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
    auto y = torch::empty_like(x);
    const int cols = x.size(1);
    auto stream = at::cuda::getCurrentCUDAStream();
    softmax_kernel<<<x.size(0), 128, cols * sizeof(float), stream>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), cols);
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}
"""

layer_norm_cuda = """
#include <torch/extension.h>
#include <cuda_runtime.h>

struct Stats { float mean, m2, count; };

__device__ __forceinline__ Stats combine(Stats a, Stats b) {
  Stats r;
  r.count = a.count + b.count;
  if (r.count == 0.f) return a;
  const float delta = b.mean - a.mean;
  r.mean = a.mean + delta * b.count / r.count;
  r.m2 = a.m2 + b.m2 + delta * delta * a.count * b.count / r.count;
  return r;
}

// One warp per row, four rows per block.
__global__ void layer_norm_kernel(const float* x, const float* gamma, const float* beta, float* y,
                                  int rows, int cols, float eps) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Stats s{0.f, 0.f, 0.f};
  for (int i = threadIdx.x; i < cols; i += warpSize) {
    Stats one{x[row * cols + i], 0.f, 1.f};
    s = combine(s, one);
  }
  for (int mask = warpSize / 2; mask > 0; mask /= 2) {
    Stats other;
    other.mean = __shfl_xor_sync(0xffffffffu, s.mean, mask);
    other.m2 = __shfl_xor_sync(0xffffffffu, s.m2, mask);
    other.count = __shfl_xor_sync(0xffffffffu, s.count, mask);
    s = combine(s, other);
  }
  const float scale = rsqrtf(s.m2 / cols + eps);
  for (int i = threadIdx.x; i < cols; i += warpSize)
    y[row * cols + i] = (x[row * cols + i] - s.mean) * scale * gamma[i] + beta[i];
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps) {
  auto flat = x.contiguous().view({-1, gamma.numel()});
  auto y = torch::empty_like(flat);
  int rows = flat.size(0);
  int cols = flat.size(1);
  dim3 block(32, 4);
  layer_norm_kernel<<<(rows + 3) / 4, block>>>(
      flat.data_ptr<float>(), gamma.data_ptr<float>(), beta.data_ptr<float>(),
      y.data_ptr<float>(), rows, cols, (float)eps);
  return y.view(x.sizes());
}
"""

layer_norm_cpp = """
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps);
"""


class ModelNew(nn.Module):
    def __init__(self, operator: str, size: int = 1) -> None:
        super().__init__()
        self.operator = operator
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size))
        self.bias = nn.Parameter(torch.linspace(-1.0, 1.0, size))
        self.ext = load_inline(
            name="several_operators",
            cpp_sources=[
                "torch::Tensor elementwise_add_cuda(torch::Tensor a, torch::Tensor b);",
                "torch::Tensor matmul(torch::Tensor A, torch::Tensor B);",
                "torch::Tensor softmax_forward(torch::Tensor x);",
                layer_norm_cpp,
            ],
            cuda_sources=[elementwise_add_source, matmul_cuda, softmax_cuda, layer_norm_cuda],
            functions=["elementwise_add_cuda", "matmul", "softmax_forward", "layer_norm"],
            extra_cflags=[""],
            extra_ldflags=[""],
            extra_cuda_cflags=["-O3", "--use_fast_math"],
            verbose=True,
        )

    def forward(self, *inputs):
        if self.operator == "add":
            return self.ext.elementwise_add_cuda(*inputs)
        if self.operator == "matmul_tiled":
            a, b = inputs
            return self.ext.matmul(a.contiguous(), b.contiguous())
        (x,) = inputs
        if self.operator == "softmax":
            return self.ext.softmax_forward(x)
        return self.ext.layer_norm(x, self.weight, self.bias, 1e-5)
