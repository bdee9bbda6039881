#include "position.h"

#define KWEMU_POSITION \
  __attribute__((visibility("default"), tls_model("initial-exec"), used)) __thread

extern "C" {
KWEMU_POSITION uint3 kwemu_thread_index;
KWEMU_POSITION uint3 kwemu_block_index;
KWEMU_POSITION uint3 kwemu_block_dim;
KWEMU_POSITION uint3 kwemu_grid_dim;
}

namespace kwemu {

void set_thread_index(const uint3& index) { kwemu_thread_index = index; }
void set_block_index(const uint3& index) { kwemu_block_index = index; }
void set_dimensions(const dim3& grid, const dim3& block) {
  kwemu_grid_dim = grid;
  kwemu_block_dim = block;
}

}  // namespace kwemu
