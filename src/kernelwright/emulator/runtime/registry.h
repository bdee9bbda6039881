// Memory that device code may touch: registered allocations, and the data of loaded modules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "shadow.h"

namespace kwemu {

struct Allocation {
  uintptr_t low = 0;
  size_t bytes = 0;
  std::string name;
  bool may_be_uninitialised = true;  // false for module data, which the loader has filled
  bool writable = true;
  Shadow shadow;

  uintptr_t high() const { return low + bytes; }
  bool contains(uintptr_t address, size_t size) const {
    return address - low < bytes && address - low + size <= bytes;
  }
};

// All allocations, by address. Changes between launches only: a launch works on a snapshot.
class Registry {
 public:
  static Registry& instance();

  // Forgets what it overlaps: allocations of which nobody told that they ended.
  void add(uintptr_t low, size_t bytes, std::string name);
  void remove(uintptr_t low);
  void remove_all(uintptr_t low, uintptr_t high);
  // Whether `address` lies in a registered allocation, module data included.
  bool knows(uintptr_t address);

  // Sorted by address, each with its shadow. Valid until the next add or remove.
  std::vector<Allocation*> snapshot();
  // Makes every record of earlier launches unknown.
  void clear_shadows();

 private:
  void refresh_modules();
  void forget(uintptr_t low, uintptr_t high);

  std::mutex mutex_;
  std::map<uintptr_t, std::unique_ptr<Allocation>> allocations_;
  std::map<uintptr_t, std::unique_ptr<Allocation>> modules_;
  unsigned long long modules_seen_ = 0;
};

// cudaMalloc and its kin: 256-byte aligned, poisoned, between redzones, registered.
void* allocate_checked(size_t bytes, const char* name);
void free_checked(void* memory);

}  // namespace kwemu
