"""Transposition through a padded tile, blocks of 32 x 8 threads, packed accessors."""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

src = """
constexpr int TILE_DIM = 32;
constexpr int BLOCK_ROWS = 8;

__global__ void transpose_kernel(
    torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> in,
    torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> out) {
  __shared__ float tile[TILE_DIM][TILE_DIM + 1];
  int x = blockIdx.x * TILE_DIM + threadIdx.x;
  int y = blockIdx.y * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
    if (x < in.size(1) && y + j < in.size(0)) tile[threadIdx.y + j][threadIdx.x] = in[y + j][x];
  __syncthreads();
  x = blockIdx.y * TILE_DIM + threadIdx.x;
  y = blockIdx.x * TILE_DIM + threadIdx.y;
  for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
    if (x < out.size(1) && y + j < out.size(0)) out[y + j][x] = tile[threadIdx.x][threadIdx.y + j];
}

torch::Tensor transpose(torch::Tensor x) {
  auto out = torch::empty({x.size(1), x.size(0)},
                          torch::TensorOptions().dtype(x.dtype()).device(torch::kCUDA));
  const dim3 grid((x.size(1) + TILE_DIM - 1) / TILE_DIM, (x.size(0) + TILE_DIM - 1) / TILE_DIM, 1);
  const dim3 block(TILE_DIM, BLOCK_ROWS, 1);
  transpose_kernel<<<grid, block>>>(
      x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(),
      out.packed_accessor32<float, 2, torch::RestrictPtrTraits>());
  return out;
}
"""

ops = load_inline(
    "strange_transpose",
    cpp_sources=["torch::Tensor transpose(torch::Tensor x);"],
    cuda_sources=[src],
    functions="transpose",
    extra_cuda_cflags=["-arch=sm_90", "-lineinfo"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ops.transpose(x)
