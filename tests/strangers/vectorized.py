"""a * x + y by float4 and __ldg, the rest one by one; registered by TORCH_LIBRARY."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/library.h>
#include <c10/cuda/CUDAStream.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) do { CHECK_CUDA(x); CHECK_CONTIGUOUS(x); } while (0)

__global__ __launch_bounds__(256) void axpy_kernel(float a, const float4* __restrict__ x,
                                                   const float4* __restrict__ y,
                                                   float4* out, int n4) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n4; i += blockDim.x * gridDim.x) {
    const float4 u = __ldg(&x[i]);
    const float4 v = __ldg(y + i);
    out[i] = make_float4(fmaf(a, u.x, v.x), fmaf(a, u.y, v.y),
                         fmaf(a, u.z, v.z), fmaf(a, u.w, v.w));
  }
}

__global__ void axpy_tail_kernel(float a, const float* x, const float* y,
                                 float* out, int from, int n) {
  const int i = from + threadIdx.x;
  if (i < n) out[i] = __fmaf_rn(a, __ldg(x + i), __ldg(y + i));
}

at::Tensor axpy(double a, const at::Tensor& x, const at::Tensor& y) {
  CHECK_INPUT(x);
  CHECK_INPUT(y);
  auto out = at::empty_like(x);
  const int n = x.numel(), n4 = n / 4;
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  if (n4 > 0)
    axpy_kernel<<<(n4 + 255) / 256, 256, 0, stream>>>(
        a, reinterpret_cast<const float4*>(x.const_data_ptr<float>()),
        reinterpret_cast<const float4*>(y.const_data_ptr<float>()),
        reinterpret_cast<float4*>(out.mutable_data_ptr<float>()), n4);
  if (n % 4)
    axpy_tail_kernel<<<1, 4, 0, stream>>>(a, x.data_ptr<float>(), y.data_ptr<float>(),
                                          out.data_ptr<float>(), n4 * 4, n);
  return out;
}

TORCH_LIBRARY(strange_vectorized, m) { m.def("axpy(float a, Tensor x, Tensor y) -> Tensor"); }
TORCH_LIBRARY_IMPL(strange_vectorized, CUDA, m) { m.impl("axpy", &axpy); }
"""

load_inline("strange_vectorized", "", source, is_python_module=False)


class ModelNew(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a = a
        self.register_buffer("one", torch.ones(1, device="cuda"))

    def forward(self, x, y):
        return torch.ops.strange_vectorized.axpy(self.a, x.cuda(), y.to("cuda") * self.one)
