// The thread-local variables that device code reads as threadIdx and so on, as the runtime sees
// them: not constant. Declared without the constant declarations of kwemu/abi.h.
#pragma once

#include "kwemu/vector_types.h"

namespace kwemu {

void set_thread_index(const uint3& index);
void set_block_index(const uint3& index);
void set_dimensions(const dim3& grid, const dim3& block);

}  // namespace kwemu
