// PyTorch's torch/torch.h, as torch/extension.h here gives it.
#pragma once

#ifdef KWEMU_ALL_OF_TORCH
#include_next <torch/torch.h>
#else
#include <torch/extension.h>
#endif
