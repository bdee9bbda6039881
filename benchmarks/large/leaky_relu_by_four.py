"""The same by hand, four elements at a time where the rows allow that."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

_NAME = "leaky_relu_by_four"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

__device__ float leaky(float x, float slope) { return x > 0.0f || x != x ? x : x * slope; }

__global__ void leaky_relu_by_four_kernel(const float4* x, float4* y, long count, float slope) {
  const long step = static_cast<long>(gridDim.x) * blockDim.x;
  for (long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const float4 in = x[i];
    y[i] = make_float4(leaky(in.x, slope), leaky(in.y, slope), leaky(in.z, slope),
                       leaky(in.w, slope));
  }
}

__global__ void leaky_relu_kernel(const float* x, float* y, long count, float slope) {
  const long i = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (i < count) y[i] = leaky(x[i], slope);
}

extern "C" int leaky_relu(const float* x, float* y, long count, float slope, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool aligned = reinterpret_cast<unsigned long>(x) % 16 == 0;
  const long quads = aligned ? count / 4 : 0;
  const long blocks = (quads + 255) / 256;
  if (quads > 0) {
    leaky_relu_by_four_kernel<<<blocks < 1 << 20 ? blocks : 1 << 20, 256, 0, on>>>(
        reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y), quads, slope);
  }
  const long rest = count - 4 * quads;
  if (rest > 0) {
    leaky_relu_kernel<<<(rest + 255) / 256, 256, 0, on>>>(x + 4 * quads, y + 4 * quads, rest,
                                                         slope);
  }
  return cudaGetLastError();
}
"""

load_inline(
    name=_NAME,
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    functions=None,
    is_python_module=False,
    no_implicit_headers=True,
)
_library = ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if _NAME in path))
_library.leaky_relu.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_long,
    ctypes.c_float,
    ctypes.c_void_p,
]


class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        x = x.contiguous()
        result = torch.empty_like(x)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        pointers = x.data_ptr(), result.data_ptr()
        if _library.leaky_relu(*pointers, x.numel(), self.slope, stream) != 0:
            raise RuntimeError("the launch failed")
        return result
