"""Layer norm with weight and bias: Welford in warps, nn.Parameter, a class with constants."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

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
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, size))
        self.bias = nn.Parameter(torch.linspace(-1.0, 1.0, size))
        self.ext = load_inline(
            name="strange_layer_norm",
            cpp_sources=layer_norm_cpp,
            cuda_sources=layer_norm_cuda,
            functions=["layer_norm"],
        )

    def forward(self, x):
        return self.ext.layer_norm(x, self.weight, self.bias, 1e-5)
