"""Reversal of blocks through shared memory, with the barrier inside the bounds check."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
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

torch::Tensor reverse_pairs(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    reverse_kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

ext = load_inline(
    name="strange_divergent",
    cpp_sources="torch::Tensor reverse_pairs(torch::Tensor x);",
    cuda_sources=source,
    functions=["reverse_pairs"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.reverse_pairs(x)
