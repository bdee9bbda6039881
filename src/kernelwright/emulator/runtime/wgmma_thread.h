// What one thread knows of the products (PTX wgmma) that it has issued with its warpgroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kwemu {

// The 64 x N sums of a warpgroup, row by row, while instructions add to them.
struct SumTile {
  unsigned n = 0;
  std::vector<float> values;
};

// One thread's part of a tile: which of its variables are the registers.
struct ThreadSums {
  std::vector<float*> registers;
  std::shared_ptr<SumTile> tile;  // while instructions are in flight
  uint32_t last_group = 0;        // the last group that adds to it
  bool is_touched = true;         // by ordinary code since the thread's last wgmma.fence

  bool is_pending() const { return tile != nullptr; }
  bool overlaps(uintptr_t address, size_t bytes) const;
};

class WgmmaThread {
 public:
  uint64_t issued = 0;                     // instructions
  std::vector<uint64_t> issued_at_commit;  // one for each group
  bool is_fenced = false;                  // since it last waited for a group

  uint32_t groups() const { return static_cast<uint32_t>(issued_at_commit.size()); }
  std::vector<ThreadSums>& sums() { return sums_; }
  // The sums with these registers, known or new.
  ThreadSums& find(float* const* registers, unsigned count);
  // Where all registers lie, others among them perhaps.
  uintptr_t low() const { return low_; }
  size_t bytes() const { return bytes_; }
  // Ordinary code accesses the thread's stack. True if these are sums in flight.
  bool touch(uintptr_t address, size_t bytes);

 private:
  std::vector<ThreadSums> sums_;
  uintptr_t low_ = 0;
  size_t bytes_ = 0;
};

}  // namespace kwemu
