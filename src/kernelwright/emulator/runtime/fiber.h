// Stacks that threads of a block run on, and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kwemu {

// A suspended execution: everything but the stack pointer lies on its stack.
struct Context {
  void* stack_pointer = nullptr;
};

struct Fiber {
  Context context;
  unsigned index = 0;
};

// Saves the running execution in `from` and goes on with `to`.
void switch_context(Context& from, const Context& to);

// The stacks of one worker: one range of addresses, so that "is it on a stack" is one comparison.
// A fiber, once made, is kept; its stack has a guard page below it.
class FiberPool {
 public:
  static constexpr size_t kStackBytes = size_t{128} << 10;
  static constexpr size_t kMaxFibers = 8192;

  using Entry = void (*)(Fiber*);

  explicit FiberPool(Entry entry);
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  // A fiber that is running nothing: a used one, or a new one that will start in the pool's entry.
  Fiber* take();
  void give_back(Fiber* fiber) { free_.push_back(fiber); }
  // Forgets everything that was running: for abandoned launches.
  void reset();
  size_t available() const { return free_.size() + (kMaxFibers - fibers_.size()); }

  uintptr_t low() const { return low_; }
  size_t bytes() const { return kStackBytes * kMaxFibers; }

 private:
  void prepare(Fiber* fiber);

  Entry entry_;
  uintptr_t low_;
  std::vector<Fiber*> fibers_;
  std::vector<Fiber*> free_;
};

}  // namespace kwemu
