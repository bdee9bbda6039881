"""Tiled product with two barriers in its loop, bound by ctypes."""

import ctypes

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

constexpr int TILE = 16;

__global__ void product_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float tile_a[TILE][TILE];
  __shared__ float tile_b[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y;
  const int column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int start = 0; start < k; start += TILE) {
    const int inner_a = start + threadIdx.x;
    const int inner_b = start + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < m && inner_a < k ? a[row * k + inner_a] : 0.0f;
    tile_b[threadIdx.y][threadIdx.x] = column < n && inner_b < k ? b[inner_b * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
    __syncthreads();  // the second barrier
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" int product(const float* a, const float* b, float* c, int m, int n, int k,
                       void* stream) {
  dim3 block(TILE, TILE);
  dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
  product_kernel<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(a, b, c, m, n, k);
  return cudaGetLastError();
}
"""

_NAME = "product_by_hand"


def _load():
    load_inline(
        name=_NAME,
        cpp_sources="",
        cuda_sources=CUDA_SOURCE,
        functions=None,
        is_python_module=False,
        no_implicit_headers=True,
    )
    return ctypes.CDLL(next(path for path in torch.ops.loaded_libraries if _NAME in path))


_library = _load()
_library.product.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (m, k), n = A.shape, B.shape[1]
        result = torch.empty(m, n, dtype=A.dtype, device=A.device)
        stream = torch.cuda.current_stream(A.device).cuda_stream
        pointers = [tensor.data_ptr() for tensor in (A, B, result)]
        status = _library.product(*pointers, m, n, k, stream)
        if status != 0:
            raise RuntimeError(f"product failed with CUDA error {status}")
        return result
