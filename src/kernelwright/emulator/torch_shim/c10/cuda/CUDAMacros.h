// Nothing is exported from a CUDA library here: c10/macros/Export.h says the rest.
#pragma once

#include <c10/macros/Export.h>

#ifndef C10_CUDA_API
#define C10_CUDA_API
#endif
