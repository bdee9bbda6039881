// What ATen's own kernels check of their arguments.
#pragma once

#include <ATen/cuda/CUDAContext.h>
