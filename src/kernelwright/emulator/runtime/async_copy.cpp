#include "async_copy.h"

#include <cstring>
#include <utility>

#include "access.h"
#include "block.h"

namespace kwemu {

void AsyncCopies::ask(Block& block, const AsyncCopy& copy) {
  begin_async_copy(block, copy);
  open_.push_back(copy);
}

void AsyncCopies::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void AsyncCopies::wait(Block& block, size_t groups) {
  if (groups_.size() <= groups) return;
  const size_t landing = groups_.size() - groups;
  for (size_t i = 0; i < landing; ++i) {
    for (const AsyncCopy& copy : groups_[i]) end_async_copy(block, copy);
  }
  groups_.erase(groups_.begin(), groups_.begin() + static_cast<std::ptrdiff_t>(landing));
}

void AsyncCopies::wait_all(Block& block) {
  commit();
  wait(block, 0);
}

void AsyncCopies::forget() {
  open_.clear();
  groups_.clear();
}

}  // namespace kwemu
