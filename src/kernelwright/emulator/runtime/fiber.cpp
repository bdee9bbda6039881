#include "fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

namespace kwemu {
namespace {

constexpr size_t kGuardBytes = 4096;
// Stacks that start at the same offset of a page fight for the same cache sets.
constexpr size_t kColors = 32;
constexpr size_t kColorBytes = 192;

}  // namespace

#if defined(__x86_64__)

extern "C" void kwemu_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type kwemu_switch_stack, @function
.hidden kwemu_switch_stack
.globl kwemu_switch_stack
kwemu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kwemu_switch_stack, . - kwemu_switch_stack

.p2align 4
.type kwemu_enter_fiber, @function
.hidden kwemu_enter_fiber
.globl kwemu_enter_fiber
kwemu_enter_fiber:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size kwemu_enter_fiber, . - kwemu_enter_fiber
)");
extern "C" void kwemu_enter_fiber();

void switch_context(Context& from, const Context& to) {
  kwemu_switch_stack(&from.stack_pointer, to.stack_pointer);
}

namespace {

// The frame that the switch pops: r15 r14 r13 r12 rbx rbp and the return address.
void* first_frame(uintptr_t top, FiberPool::Entry entry, Fiber* fiber) {
  void** frame = reinterpret_cast<void**>(top) - 9;  // leaves the stack aligned at the call
  frame[3] = fiber;
  frame[4] = reinterpret_cast<void*>(entry);
  frame[5] = nullptr;
  frame[6] = reinterpret_cast<void*>(&kwemu_enter_fiber);
  return frame;
}

}  // namespace

#elif defined(__aarch64__)

extern "C" void kwemu_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type kwemu_switch_stack, %function
.hidden kwemu_switch_stack
.globl kwemu_switch_stack
kwemu_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kwemu_switch_stack, . - kwemu_switch_stack

.p2align 4
.type kwemu_enter_fiber, %function
.hidden kwemu_enter_fiber
.globl kwemu_enter_fiber
kwemu_enter_fiber:
  mov x0, x19
  blr x20
  brk #1
.size kwemu_enter_fiber, . - kwemu_enter_fiber
)");
extern "C" void kwemu_enter_fiber();

void switch_context(Context& from, const Context& to) {
  kwemu_switch_stack(&from.stack_pointer, to.stack_pointer);
}

namespace {

void* first_frame(uintptr_t top, FiberPool::Entry entry, Fiber* fiber) {
  void** frame = reinterpret_cast<void**>(top) - 20;
  frame[0] = fiber;
  frame[1] = reinterpret_cast<void*>(entry);
  frame[10] = nullptr;
  frame[11] = reinterpret_cast<void*>(&kwemu_enter_fiber);
  return frame;
}

}  // namespace

#else

// Other processors: the C library's contexts. A Context then points at a ucontext_t.
namespace {

void enter_fiber(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low) {
  const auto join = [](unsigned a, unsigned b) { return (static_cast<uint64_t>(a) << 32) | b; };
  reinterpret_cast<FiberPool::Entry>(join(entry_high, entry_low))(
      reinterpret_cast<Fiber*>(join(high, low)));
}

void* first_frame(uintptr_t top, FiberPool::Entry entry, Fiber* fiber) {
  auto* context = new ucontext_t;
  getcontext(context);
  context->uc_stack.ss_size = FiberPool::kStackBytes - 2 * kGuardBytes - kColors * kColorBytes;
  context->uc_stack.ss_sp = reinterpret_cast<void*>(top - context->uc_stack.ss_size);
  context->uc_link = nullptr;
  const auto e = reinterpret_cast<uint64_t>(entry), f = reinterpret_cast<uint64_t>(fiber);
  makecontext(context, reinterpret_cast<void (*)()>(enter_fiber), 4, unsigned(e >> 32), unsigned(e),
              unsigned(f >> 32), unsigned(f));
  return context;
}

}  // namespace

void switch_context(Context& from, const Context& to) {
  if (from.stack_pointer == nullptr) from.stack_pointer = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from.stack_pointer),
              static_cast<const ucontext_t*>(to.stack_pointer));
}

#endif

FiberPool::FiberPool(Entry entry) : entry_(entry) {
  void* range = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    std::fprintf(stderr, "kernelwright emulator: no address space for stacks\n");
    std::abort();
  }
  low_ = reinterpret_cast<uintptr_t>(range);
}

FiberPool::~FiberPool() {
  for (Fiber* fiber : fibers_) delete fiber;
  munmap(reinterpret_cast<void*>(low_), bytes());
}

void FiberPool::prepare(Fiber* fiber) {
  const uintptr_t top = low_ + (fiber->index + 1) * kStackBytes;
  fiber->context.stack_pointer =
      first_frame(top - (fiber->index % kColors) * kColorBytes, entry_, fiber);
}

Fiber* FiberPool::take() {
  if (!free_.empty()) {
    Fiber* fiber = free_.back();
    free_.pop_back();
    return fiber;
  }
  auto* fiber = new Fiber;
  fiber->index = static_cast<unsigned>(fibers_.size());
  fibers_.push_back(fiber);
  mprotect(reinterpret_cast<void*>(low_ + fiber->index * kStackBytes), kGuardBytes, PROT_NONE);
  prepare(fiber);
  return fiber;
}

void FiberPool::reset() {
  free_.clear();
  for (size_t i = fibers_.size(); i-- > 0;) {
    prepare(fibers_[i]);
    free_.push_back(fibers_[i]);
  }
}

}  // namespace kwemu
