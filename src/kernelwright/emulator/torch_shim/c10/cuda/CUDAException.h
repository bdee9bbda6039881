// Errors of the CUDA runtime as exceptions.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#define C10_CUDA_CHECK(EXPR)                                                                  \
  do {                                                                                        \
    const cudaError_t kwemu_error = (EXPR);                                                   \
    TORCH_CHECK(kwemu_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(kwemu_error)); \
  } while (0)
#define C10_CUDA_CHECK_WARN(EXPR) C10_CUDA_CHECK(EXPR)
#define C10_CUDA_ERROR_HANDLED(EXPR) EXPR
#define C10_CUDA_IGNORE_ERROR(EXPR) \
  do {                              \
    (void)(EXPR);                   \
  } while (0)
#define C10_CUDA_CLEAR_ERROR() \
  do {                         \
    (void)cudaGetLastError();  \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
