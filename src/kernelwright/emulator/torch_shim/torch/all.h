// PyTorch's torch/all.h, as torch/extension.h here gives it.
#pragma once

#ifdef KWEMU_ALL_OF_TORCH
#include_next <torch/all.h>
#else
#include <torch/extension.h>
#endif
