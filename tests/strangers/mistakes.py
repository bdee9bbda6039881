"""One extension with a mistake in each of its kernels; the constructor says which is run."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#define TILE 16

// Matrix product through 16 x 16 tiles in shared memory, with its second barrier forgotten.
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
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

torch::Tensor matmul_race(torch::Tensor A, torch::Tensor B) {
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

// Neighbour differences that read one element behind the end.
__global__ void difference_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i + 1] - x[i];
    }
}

torch::Tensor out_of_bounds(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    difference_kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}

// Sums of columns added up in an output that nobody has set to zero.
__global__ void column_sum_kernel(const float* x, float* sums, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    for (int row = 0; row < rows; ++row) {
        sums[col] += x[row * cols + col];
    }
}

torch::Tensor uninitialised(torch::Tensor x) {
    auto sums = torch::empty({x.size(1)}, x.options());
    column_sum_kernel<<<(x.size(1) + 31) / 32, 32>>>(
        x.data_ptr<float>(), sums.data_ptr<float>(), x.size(0), x.size(1));
    return sums;
}

// Reversal of blocks through shared memory, with the barrier inside the bounds check.
__global__ void reverse_kernel(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        y[i] = tile[threadIdx.x ^ 1];
    } else {
        tile[threadIdx.x] = 0.0f;
        __syncthreads();
    }
}

torch::Tensor divergent(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    reverse_kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}

// Copies rows by float4 whatever their length: the second row of a matrix of odd width faults.
__global__ void copy_rows_kernel(const float* x, float* y, int cols) {
    const float4* from = reinterpret_cast<const float4*>(x + blockIdx.x * cols);
    float4* to = reinterpret_cast<float4*>(y + blockIdx.x * cols);
    for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
        float4 v = from[i];
        to[i] = v;
    }
}

torch::Tensor misaligned(torch::Tensor x) {
    auto y = torch::zeros_like(x);
    copy_rows_kernel<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

declarations = """
torch::Tensor matmul_race(torch::Tensor A, torch::Tensor B);
torch::Tensor out_of_bounds(torch::Tensor x);
torch::Tensor uninitialised(torch::Tensor x);
torch::Tensor divergent(torch::Tensor x);
torch::Tensor misaligned(torch::Tensor x);
"""

ext = load_inline(
    name="strange_mistakes",
    cpp_sources=declarations,
    cuda_sources=source,
    functions=["matmul_race", "out_of_bounds", "uninitialised", "divergent", "misaligned"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


class ModelNew(nn.Module):
    def __init__(self, mistake):
        super().__init__()
        self.make = getattr(ext, mistake)

    def forward(self, *inputs):
        return self.make(*(x.contiguous() for x in inputs))
