#include "registry.h"

#include <link.h>

#include <cstdlib>
#include <cstring>
#include <iterator>

namespace kwemu {
namespace {

constexpr size_t kRedzoneBytes = 256;

using Modules = std::map<uintptr_t, std::unique_ptr<Allocation>>;

int add_segments(dl_phdr_info* info, size_t, void* data) {
  auto& modules = *static_cast<Modules*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) != 0) continue;
    auto allocation = std::make_unique<Allocation>();
    allocation->low = info->dlpi_addr + segment.p_vaddr;
    allocation->bytes = segment.p_memsz;
    allocation->name = info->dlpi_name;
    allocation->may_be_uninitialised = false;
    allocation->writable = (segment.p_flags & PF_W) != 0;
    modules.emplace(allocation->low, std::move(allocation));
  }
  return 0;
}

int count_modules(dl_phdr_info* info, size_t, void* data) {
  *static_cast<unsigned long long*>(data) = info->dlpi_adds + info->dlpi_subs;
  return 1;
}

}  // namespace

Registry& Registry::instance() {
  static Registry* const registry = new Registry;  // outlives every static destructor that frees
  return *registry;
}

void Registry::add(uintptr_t low, size_t bytes, std::string name) {
  auto allocation = std::make_unique<Allocation>();
  allocation->low = low;
  allocation->bytes = bytes;
  allocation->name = std::move(name);
  const std::lock_guard lock(mutex_);
  forget(low, low + bytes);
  allocations_[low] = std::move(allocation);
}

void Registry::remove_all(uintptr_t low, uintptr_t high) {
  const std::lock_guard lock(mutex_);
  forget(low, high);
}

void Registry::forget(uintptr_t low, uintptr_t high) {
  auto next = allocations_.lower_bound(low);
  if (next != allocations_.begin() && std::prev(next)->second->high() > low) --next;
  while (next != allocations_.end() && next->first < high) next = allocations_.erase(next);
}

void Registry::remove(uintptr_t low) {
  const std::lock_guard lock(mutex_);
  allocations_.erase(low);
}

bool Registry::knows(uintptr_t address) {
  for (const Allocation* allocation : snapshot()) {
    if (allocation->contains(address, 1)) return true;
  }
  return false;
}

void Registry::refresh_modules() {
  unsigned long long changes = 0;
  dl_iterate_phdr(count_modules, &changes);
  if (changes == modules_seen_) return;
  modules_seen_ = changes;
  modules_.clear();
  dl_iterate_phdr(add_segments, &modules_);
}

std::vector<Allocation*> Registry::snapshot() {
  const std::lock_guard lock(mutex_);
  refresh_modules();
  std::vector<Allocation*> result;
  result.reserve(allocations_.size() + modules_.size());
  auto a = allocations_.begin();
  auto m = modules_.begin();
  while (a != allocations_.end() || m != modules_.end()) {
    const bool module_first =
        a == allocations_.end() || (m != modules_.end() && m->first < a->first);
    Allocation* next = module_first ? (m++)->second.get() : (a++)->second.get();
    result.push_back(next);
  }
  return result;
}

void Registry::clear_shadows() {
  const std::lock_guard lock(mutex_);
  for (auto& entry : allocations_) entry.second->shadow.clear();
  for (auto& entry : modules_) entry.second->shadow.clear();
}

void* allocate_checked(size_t bytes, const char* name) {
  const size_t body = (bytes + kRedzoneBytes - 1) / kRedzoneBytes * kRedzoneBytes;
  void* raw = nullptr;
  if (posix_memalign(&raw, kRedzoneBytes, body + 2 * kRedzoneBytes) != 0) return nullptr;
  fill_with_poison(raw, body + 2 * kRedzoneBytes);
  // Whoever had any of it has given it back.
  const auto low = reinterpret_cast<uintptr_t>(raw);
  Registry::instance().remove_all(low, low + body + 2 * kRedzoneBytes);
  char* memory = static_cast<char*>(raw) + kRedzoneBytes;
  Registry::instance().add(reinterpret_cast<uintptr_t>(memory), bytes, name);
  return memory;
}

void free_checked(void* memory) {
  if (memory == nullptr) return;
  Registry::instance().remove(reinterpret_cast<uintptr_t>(memory));
  std::free(static_cast<char*>(memory) - kRedzoneBytes);
}

}  // namespace kwemu
