// Bulk copies: boxes of tensors that the tensor memory accelerator brings to shared memory, and
// stores from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "clocks.h"
#include "tensor_map.h"

namespace kwemu {

class Block;

// One box on its way to one block.
struct BulkCopy {
  TensorMap map;
  int64_t place[TensorMap::kMaxRank];        // of the box's first element, innermost first
  int64_t offsets[TensorMap::kMaxRank - 2];  // of im2col: of W, H, D
  Block* home;
  size_t offset;   // in the home's shared memory
  size_t barrier;  // the same, of the barrier to arrive at; stores have none
  const void* caller;
  // What an asynchronous store of registers carries: the map's address is in here.
  std::shared_ptr<const std::array<uint32_t, 4>> words = {};
  // What another block of the cluster knew that sent this: who waits for it knows it, too.
  Clock known = {};
};

// A thread of `actor` asks for a copy to one block: the place becomes unreadable until it lands.
void ask_for(Block& actor, const BulkCopy& copy);
// Writes the box and counts its bytes at the barrier.
void land(const BulkCopy& copy);
// The cluster ended before the copy landed.
void report_unfinished(const BulkCopy& copy);
// Reads the tensor's memory as the asking thread, for the checks.
void check_source(Block& actor, const BulkCopy& copy);

// The same of `bytes` of this block's shared memory.
void check_shared_source(Block& block, size_t offset, size_t bytes, const void* caller);

// The stores of one thread, in groups that read shared memory in order, when they are waited for.
class BulkStores {
 public:
  void ask(Block& block, const BulkCopy& copy);
  void commit();
  // Ends groups until at most `groups` are under way.
  void wait(Block& block, size_t groups);
  // The thread ends: whoever comes next may have the shared memory.
  void end(Block& block);
  void forget();

 private:
  struct Store {
    BulkCopy copy;
    std::vector<char> bytes;  // as they were
  };

  void finish(Block& block, const Store& store) const;

  std::vector<Store> open_;
  std::vector<std::vector<Store>> groups_;
};

}  // namespace kwemu
