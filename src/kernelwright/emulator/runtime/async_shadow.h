// What asynchronous engines did to shared memory, for each 16 bytes of it: which barrier brought
// them, and which groups of products read them last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kwemu {

struct AsyncChunk {
  static constexpr unsigned kWarpgroups = 8;

  uint32_t landed_time = 0;            // when a bulk copy wrote it
  uint32_t landed_slot = 0;            // of the barrier that the copy arrived at
  uint32_t readers[kWarpgroups] = {};  // each warpgroup's last group of products; 0: none

  bool is_read() const {
    for (const uint32_t group : readers) {
      if (group != 0) return true;
    }
    return false;
  }
};

class AsyncShadow {
 public:
  static constexpr size_t kChunkBytes = 16;

  // A new block's: nothing has happened.
  void forget() {
    chunks_.clear();
    has_readers_ = false;
  }
  bool has_readers() const { return has_readers_; }
  AsyncChunk& at(size_t offset);
  void note_reader(size_t offset, unsigned warpgroup, uint32_t group) {
    at(offset).readers[warpgroup] = group;
    has_readers_ = true;
  }

 private:
  std::vector<AsyncChunk> chunks_;
  bool has_readers_ = false;
};

}  // namespace kwemu
