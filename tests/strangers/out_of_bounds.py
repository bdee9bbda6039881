"""Neighbour differences that read one element behind the end."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void difference_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i + 1] - x[i];
    }
}

torch::Tensor difference(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    difference_kernel<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""

ext = load_inline(
    name="strange_out_of_bounds",
    cpp_sources="torch::Tensor difference(torch::Tensor x);",
    cuda_sources=source,
    functions=["difference"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.difference(x)
