#include "async_shadow.h"

#include "shared_memory.h"

namespace kwemu {

AsyncChunk& AsyncShadow::at(size_t offset) {
  if (chunks_.empty()) chunks_.resize(SharedMemory::kBytes / kChunkBytes);
  return chunks_[offset / kChunkBytes];
}

}  // namespace kwemu
