// A CPU allocator for PyTorch: poisoned memory between redzones, known to the emulator.
// A library of its own, compiled against c10's headers, for processes that have loaded libkwemu.
#include <c10/core/Allocator.h>

#include <cstring>
#include <new>

#include "export.h"

extern "C" void* kwemu_allocate(size_t bytes, const char* name);
extern "C" void kwemu_free(void* memory);

namespace {

class CheckedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes > 0 ? kwemu_allocate(bytes, "tensor") : nullptr;
    if (bytes > 0 && memory == nullptr) throw std::bad_alloc();
    return {memory, memory, &kwemu_free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &kwemu_free; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

// Never destroyed: tensors outlive it otherwise.
CheckedAllocator& allocator() {
  static CheckedAllocator* const instance = new CheckedAllocator;
  return *instance;
}

// Above every allocator that registers itself.
constexpr uint8_t kPriority = 200;

c10::Allocator* replaced = nullptr;

}  // namespace

// Every CPU tensor from here on is checked.
extern "C" KWEMU_EXPORT void kwemu_install_torch_allocator() {
  c10::Allocator* current = c10::GetAllocator(c10::DeviceType::CPU);
  if (current == &allocator()) return;
  replaced = current;
  c10::SetAllocator(c10::DeviceType::CPU, &allocator(), kPriority);
}

// Back to the allocator that was there; checked tensors live on.
extern "C" KWEMU_EXPORT void kwemu_remove_torch_allocator() {
  if (replaced == nullptr) return;
  c10::SetAllocator(c10::DeviceType::CPU, replaced, kPriority);
  replaced = nullptr;
}

// For storages that are made without a tensor: a c10::Allocator*.
extern "C" KWEMU_EXPORT void* kwemu_torch_allocator() { return &allocator(); }
