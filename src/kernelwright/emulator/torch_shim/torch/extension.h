// PyTorch's torch/extension.h: tensors, operators, dispatch macros, pybind11. The C++ frontend
// (torch::nn, torch::optim), which is half of its bulk, comes where a source mentions it.
#pragma once

#ifdef KWEMU_ALL_OF_TORCH
#include_next <torch/extension.h>
#else
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/enum.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <torch/version.h>
#endif

namespace at {
// What packed accessors take in device code; PyTorch defines it for nvcc alone.
template <class T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
}  // namespace at
