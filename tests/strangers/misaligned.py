"""Copies rows by float4 whatever their length: the second row of a matrix of odd width faults."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void copy_rows_kernel(const float* x, float* y, int cols) {
    const float4* from = reinterpret_cast<const float4*>(x + blockIdx.x * cols);
    float4* to = reinterpret_cast<float4*>(y + blockIdx.x * cols);
    for (int i = threadIdx.x; i < cols / 4; i += blockDim.x) {
        float4 v = from[i];
        to[i] = v;
    }
}

torch::Tensor copy_rows(torch::Tensor x) {
    auto y = torch::zeros_like(x);
    copy_rows_kernel<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""

ext = load_inline(
    name="strange_misaligned",
    cpp_sources="torch::Tensor copy_rows(torch::Tensor x);",
    cuda_sources=source,
    functions=["copy_rows"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ext.copy_rows(x)
