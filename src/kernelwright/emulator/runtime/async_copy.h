// Copies in flight: cp.async now, other engines (TMA) later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kwemu {

class Block;

// One copy from global to shared memory that has been asked for and has not landed.
struct AsyncCopy {
  char* shared;
  const char* global;
  unsigned bytes;
  unsigned source_bytes;  // the rest of `bytes` becomes zero
  const void* caller;
};

// The copies of one thread, in groups that land in order.
class AsyncCopies {
 public:
  void ask(Block& block, const AsyncCopy& copy);
  void commit();
  // Lands groups until at most `groups` are in flight.
  void wait(Block& block, size_t groups);
  void wait_all(Block& block);
  void forget();

 private:
  std::vector<AsyncCopy> open_;
  std::vector<std::vector<AsyncCopy>> groups_;
};

}  // namespace kwemu
