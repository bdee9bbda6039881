"""Half, bfloat16 and float through one AT_DISPATCH, a module written by hand."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

template <typename scalar_t>
__global__ void gelu_scale_kernel(
    const scalar_t* __restrict__ input,
    scalar_t* __restrict__ output,
    const float scale,
    const size_t numel) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i >= numel) return;
  const float x = static_cast<float>(input[i]);
  const float y = 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  output[i] = static_cast<scalar_t>(y * scale);
}

__global__ void double_half_kernel(const __half* in, __half* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = __hadd(in[i], in[i]);
}

torch::Tensor gelu_scale(const torch::Tensor& input, double scale) {
  const at::cuda::OptionalCUDAGuard device_guard(at::device_of(input));
  auto output = torch::empty_like(input);
  const int threads = 256;
  const int blocks = (input.numel() + threads - 1) / threads;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16,
      input.scalar_type(), "gelu_scale", ([&] {
        gelu_scale_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
            input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(),
            static_cast<float>(scale), input.numel());
      }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}

torch::Tensor double_half(torch::Tensor input) {
  auto output = torch::empty_like(input);
  const int n = input.numel();
  double_half_kernel<<<(n + 127) / 128, 128>>>(
      reinterpret_cast<const __half*>(input.data_ptr<at::Half>()),
      reinterpret_cast<__half*>(output.data_ptr<at::Half>()), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return output;
}
"""

cpp_src = """
#include <torch/extension.h>
torch::Tensor gelu_scale(const torch::Tensor& input, double scale);
torch::Tensor double_half(torch::Tensor input);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("gelu_scale", &gelu_scale, "GELU, scaled", py::arg("input"), py::arg("scale") = 1.0);
  m.def("double_half", &double_half);
}
"""

_ext = load_inline(name="half_scale", cpp_sources=[cpp_src], cuda_sources=[cuda_src])


class ModelNew(nn.Module):
    def forward(self, x):
        y = _ext.gelu_scale(x, scale=2.0)
        return y, _ext.double_half(x.half())
