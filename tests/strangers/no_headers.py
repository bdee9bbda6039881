"""Two operators whose text includes nothing, and whose functions come with their docstrings.

Sum of everything: a grid-stride loop, a tree in shared memory, one atomic per block. Transposition:
a padded tile, blocks of 32 x 8 threads, packed accessors.
"""

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = """
template <typename scalar_t, unsigned int BLOCK>
__global__ void sum_kernel(const scalar_t* x, scalar_t* out, int64_t n) {
    __shared__ scalar_t partial[BLOCK];
    scalar_t sum = 0;
    const int64_t stride = (int64_t)gridDim.x * BLOCK;
    for (int64_t i = blockIdx.x * (int64_t)BLOCK + threadIdx.x; i < n; i += stride)
        sum += x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned int s = BLOCK / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, partial[0]);
}

template <typename scalar_t>
void launch(const at::Tensor& x, at::Tensor& out, int threads) {
    const int64_t n = x.numel();
    switch (threads) {
        case 64:
            sum_kernel<scalar_t, 64>
                <<<8, 64>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
            break;
        default:
            sum_kernel<scalar_t, 256>
                <<<dim3(4), dim3(256), 0>>>(x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n);
    }
}

at::Tensor total(at::Tensor x, int64_t threads) {
    auto out = at::zeros({1}, x.options());
    if (x.dtype() == at::kDouble) launch<double>(x, out, threads);
    else launch<float>(x, out, threads);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) throw std::runtime_error(cudaGetErrorString(err));
    cudaDeviceSynchronize();
    return out;
}

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

DECLARATIONS = [
    "at::Tensor total(at::Tensor x, int64_t threads);",
    "torch::Tensor transpose(torch::Tensor x);",
]


class ModelNew(nn.Module):
    def __init__(self, operator, threads=256):
        super().__init__()
        self.operator = operator
        self.threads = threads
        self.ops = load_inline(
            "no_headers",
            DECLARATIONS,
            CUDA,
            functions={"total": "Sum of all elements", "transpose": "Its transpose"},
            with_cuda=True,
            extra_cuda_cflags=["-arch=sm_90", "-lineinfo"],
        )

    def forward(self, x):
        return (
            self.ops.total(x, self.threads) if self.operator == "total" else self.ops.transpose(x)
        )
