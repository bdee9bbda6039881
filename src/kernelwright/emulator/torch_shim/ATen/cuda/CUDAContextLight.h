// The same as all of it.
#pragma once

#include <ATen/cuda/CUDAContext.h>
