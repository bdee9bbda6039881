"""Sums of columns added up in an output that nobody has set to zero."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void column_sum_kernel(const float* x, float* sums, int rows, int cols) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    for (int row = 0; row < rows; ++row) {
        sums[col] += x[row * cols + col];
    }
}

torch::Tensor column_sum(torch::Tensor x) {
    auto sums = torch::empty({x.size(1)}, x.options());
    column_sum_kernel<<<(x.size(1) + 31) / 32, 32>>>(
        x.data_ptr<float>(), sums.data_ptr<float>(), x.size(0), x.size(1));
    return sums;
}
"""

ext = load_inline(
    name="strange_uninitialised",
    cpp_sources="torch::Tensor column_sum(torch::Tensor x);",
    cuda_sources=source,
    functions=["column_sum"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.column_sum(x)
