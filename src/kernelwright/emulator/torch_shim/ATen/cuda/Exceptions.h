// Errors of the CUDA runtime as exceptions, under their older names.
#pragma once

#include <c10/cuda/CUDAException.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define THCudaCheck(EXPR) C10_CUDA_CHECK(EXPR)
