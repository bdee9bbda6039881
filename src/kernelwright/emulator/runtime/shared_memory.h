// The shared memory of one block, with a shadow: variables between redzones, never initialised.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kwemu/abi.h"
#include "shadow.h"

namespace kwemu {

class SharedMemory {
 public:
  // The device's 227 KB, and room for redzones.
  static constexpr size_t kBytes = size_t{512} << 10;
  static constexpr size_t kStart = 1024;  // so that running off the front stays inside
  static constexpr size_t kRedzoneBytes = 64;

  SharedMemory();
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // A new block's: `dynamic_bytes` of dynamic shared memory, no variable yet.
  void reset(size_t dynamic_bytes);
  // The block's instance of a variable, laid out at first use; null when there is no room.
  void* variable(SharedSite& site, size_t bytes, size_t alignment);
  char* dynamic() const { return memory_ + kStart; }
  // Bytes that the device would need, without redzones.
  size_t used() const { return used_; }

  uintptr_t low() const { return reinterpret_cast<uintptr_t>(memory_); }
  Cell* word(size_t offset) const { return shadow_.word(offset); }
  Cell* byte(size_t offset) const { return shadow_.byte(offset); }
  // "'tile' (1024 bytes), 4 bytes past its end": what lies at or next to an offset.
  std::string describe(size_t offset) const;

 private:
  struct Variable {
    const char* name;
    size_t offset;
    size_t bytes;
  };

  void open(size_t offset, size_t bytes);

  char* memory_;
  Shadow shadow_;
  size_t end_ = kStart;
  size_t used_ = 0;
  std::vector<Variable> variables_;
  std::vector<void*> by_slot_;
};

}  // namespace kwemu
