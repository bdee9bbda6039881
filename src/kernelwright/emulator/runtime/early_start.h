// Programmatic dependent launch: a kernel may start before the one before it is complete, and must
// wait before it touches what that one touches. Here it starts after it; whether it waited is
// checked, block by block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "shadow.h"

namespace kwemu {

class Block;
struct Allocation;
struct Launch;

class EarlyStart {
 public:
  // A new block's.
  void assign(const Launch& launch);
  // griddepcontrol.wait and griddepcontrol.launch_dependents, by the running thread.
  void wait(const Block& block);
  void let_next_start(const Block& block);

  // Whether a record may be of a launch that still runs.
  bool is_suspect(Record record) const { return record >= oldest_; }
  // An access to a place with a suspect record.
  void check(Block& block, const Allocation& allocation, size_t offset, Record record,
             const char* did, const void* caller) const;

 private:
  bool is_running(const Block& block, Record record) const;

  Record oldest_ = ~Record{0};                        // of those that may still run
  std::vector<std::pair<unsigned, uint32_t>> waits_;  // threads, and when
};

}  // namespace kwemu
