// Barriers in shared memory (PTX mbarrier): phases that end when all threads have arrived and all
// bytes have come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "clocks.h"

namespace kwemu {

class Block;
struct Thread;

struct Mbarrier {
  unsigned slot = 0;   // its number in the block
  size_t offset = 0;   // in shared memory
  unsigned count = 0;  // arrivals that a phase needs
  unsigned missing = 0;
  int64_t bytes = 0;   // announced and not come; below zero: come and not announced
  uint64_t phase = 0;  // phases complete
  unsigned maker = 0;  // thread that initialised it
  uint32_t made = 0;   // when
  Clock arriving, complete;
  bool brings = false;          // bytes came in this phase
  bool brought_unseen = false;  // or in the one before, which nobody has waited for

  struct Waiting {
    Block* block;
    Thread* thread;
    unsigned parity;
  };
  std::vector<Waiting> waiting;

  // "phase 3 lacks 1 of 2 arrivals and 4096 bytes"
  std::string state() const;
};

// The barriers of a block. What calls them is the running thread, of this block or another of the
// cluster.
class MbarrierTable {
 public:
  void forget() {
    barriers_.clear();
    next_slot_ = 0;
  }
  void init(Block& home, size_t offset, unsigned count, const void* caller);
  void invalidate(Block& home, size_t offset, const void* caller);
  // Announces `bytes`, then arrives `count` times. Gives the parity of the phase it arrived at.
  int arrive(Block& home, size_t offset, unsigned count, unsigned bytes, const void* caller);
  // Announces bytes without arriving.
  void expect(Block& home, size_t offset, unsigned bytes, const void* caller);
  // Whether the phase of that parity is complete; waits, and may come back without it.
  bool wait(Block& home, size_t offset, unsigned parity, const void* caller);
  // Checks that a bulk copy may arrive at it.
  void check_reachable(Block& home, size_t offset, const void* caller);
  // Bytes that bulk copies have brought.
  void bring(Block& home, size_t offset, unsigned bytes, const Clock& known);
  unsigned slot_of(size_t offset) const;

  void poll(Block& home);
  // A finding of all barriers that somebody waits for; false if there is none.
  bool report_waiting(Block& home);
  // The block ends: copies that nobody has waited for.
  void report_unseen(Block& home);

 private:
  Mbarrier& find(Block& home, size_t offset, const void* caller);
  void complete_if_ready(Block& home, Mbarrier& barrier);

  std::map<size_t, Mbarrier> barriers_;  // by offset
  unsigned next_slot_ = 0;
};

}  // namespace kwemu
