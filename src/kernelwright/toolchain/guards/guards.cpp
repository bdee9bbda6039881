// An allocator for PyTorch that puts a guard zone before and behind the bytes of each tensor, and
// can say which of them somebody has written to.
//
//     | guard, 512 bytes | the tensor's bytes, all NaN at first | guard, 64 KiB |
//
// The guard behind begins at the very end of the bytes that were asked for. Memory that is freed is
// given out again only once the device was waited for, to a tensor of as many bytes: what was
// written around it, or into it, shows until then, and no stream still uses it. What is allocated
// while a CUDA graph is captured stays, for its replays.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace {

constexpr size_t kBefore = 512;  // as far as PyTorch's own allocator aligns
constexpr size_t kBehind = size_t{64} << 10;
constexpr unsigned char kMark = 0xA5;
constexpr int kNan = 0xFF;                     // all bits set, in every floating-point type
constexpr size_t kMostKept = size_t{4} << 30;  // bytes of freed memory

struct Runtime {
  int (*allocate)(void**, size_t) = find<int (*)(void**, size_t)>("cudaMalloc");
  int (*release)(void*) = find<int (*)(void*)>("cudaFree");
  int (*fill)(void*, int, size_t,
              void*) = find<int (*)(void*, int, size_t, void*)>("cudaMemsetAsync");
  int (*copy)(void*, const void*, size_t,
              int) = find<int (*)(void*, const void*, size_t, int)>("cudaMemcpy");
  int (*wait)() = find<int (*)()>("cudaDeviceSynchronize");
  int (*wait_for)(void*) = find<int (*)(void*)>("cudaStreamSynchronize");
  int (*is_capturing)(void*, int*) = find<int (*)(void*, int*)>("cudaStreamIsCapturing");
  int (*exchange_mode)(int*) = find<int (*)(int*)>("cudaThreadExchangeStreamCaptureMode");
  int (*make_stream)(void**,
                     unsigned) = find<int (*)(void**, unsigned)>("cudaStreamCreateWithFlags");
  int (*forget_error)() = find<int (*)()>("cudaGetLastError");
};

constexpr int kToHost = 2;        // cudaMemcpyDeviceToHost
constexpr int kRelaxed = 2;       // cudaStreamCaptureModeRelaxed
constexpr unsigned kNoOrder = 1;  // cudaStreamNonBlocking

struct Block {
  char* base;
  size_t size;
  bool is_captured;  // a graph may use it as long as the process lives

  char* begin() const { return base + kBefore; }
  char* end() const { return begin() + size; }
  size_t whole() const { return kBefore + size + kBehind; }
};

struct State {
  Runtime runtime;
  std::mutex mutex;
  std::unordered_map<void*, Block> live;
  std::vector<Block> freed;                    // since the device was last waited for
  std::vector<Block> captured;                 // freed, and some graph's
  std::map<size_t, std::vector<Block>> ready;  // to be given out again, by size
  size_t ready_bytes = 0;
  void* stream = nullptr;
  std::string said;      // lines of "<side> <first> <last> <count> <size> <kernel>"
  size_t looked_at = 0;  // blocks
};

State& state() {
  static State* const only = new State;  // outlives whatever is freed at exit
  return *only;
}

// While it lives, this thread may allocate and wait though some stream is being captured.
class Relaxed {
 public:
  Relaxed() { state().runtime.exchange_mode(&mode_); }
  ~Relaxed() { state().runtime.exchange_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  int mode_ = kRelaxed;
};

bool is_capturing(void* stream) {
  int status = 0;
  const int failed = state().runtime.is_capturing(stream, &status);
  if (failed != 0) state().runtime.forget_error();
  return failed != 0 || status != 0;
}

void* own_stream() {
  if (state().stream == nullptr) state().runtime.make_stream(&state().stream, kNoOrder);
  return state().stream;
}

void mark(const Block& block, void* stream) {
  state().runtime.fill(block.base, kMark, kBefore, stream);
  state().runtime.fill(block.end(), kMark, kBehind, stream);
}

void describe(const char* side, size_t first, size_t last, size_t count, const Block& block,
              const char* kernel) {
  std::string& said = state().said;
  said += std::string(side) + ' ' + std::to_string(first) + ' ' + std::to_string(last) + ' ' +
          std::to_string(count) + ' ' + std::to_string(block.size) + ' ' + kernel + '\n';
}

// Says what was written to the guards of a block that nobody uses now, and marks them anew.
void examine(const Block& block, const char* kernel) {
  static std::vector<unsigned char>* const seen = new std::vector<unsigned char>(kBehind);
  struct Side {
    const char* name;
    const char* place;
    size_t size;
  };
  bool is_whole = true;
  for (const Side& side :
       {Side{"before", block.base, kBefore}, Side{"behind", block.end(), kBehind}}) {
    if (state().runtime.copy(seen->data(), side.place, side.size, kToHost) != 0) return;
    size_t first = side.size, last = 0, count = 0;
    for (size_t i = 0; i < side.size; ++i) {
      if ((*seen)[i] == kMark) continue;
      if (count++ == 0) first = i;
      last = i;
    }
    if (count == 0) continue;
    is_whole = false;
    const bool is_before = side.place == block.base;
    describe(side.name, is_before ? kBefore - 1 - last : first,
             is_before ? kBefore - first : last + 1, count, block, kernel);
  }
  if (!is_whole) mark(block, own_stream());
}

void release_ready() {
  for (auto& [size, blocks] : state().ready) {
    for (const Block& block : blocks) state().runtime.release(block.base);
  }
  state().ready.clear();
  state().ready_bytes = 0;
}

// Waits for the device, looks at every guard, and lets freed memory be given out again.
void look(const char* kernel) {
  State& all = state();
  if (all.runtime.wait() != 0) return;  // a device that is lost: somebody else says so
  for (const auto& [pointer, block] : all.live) examine(block, kernel);
  for (const Block& block : all.captured) examine(block, kernel);
  for (const Block& block : all.freed) {
    examine(block, kernel);
    all.ready[block.size].push_back(block);
    all.ready_bytes += block.whole();
  }
  all.looked_at += all.live.size() + all.captured.size() + all.freed.size();
  all.freed.clear();
  if (all.stream != nullptr) all.runtime.wait_for(all.stream);
  if (all.ready_bytes > kMostKept) release_ready();
}

bool take_ready(size_t size, Block* block) {
  const auto found = state().ready.find(size);
  if (found == state().ready.end() || found->second.empty()) return false;
  *block = found->second.back();
  found->second.pop_back();
  state().ready_bytes -= block->whole();
  return true;
}

// A block of the device's memory; false if there is none left.
bool make(size_t size, bool may_wait, Block* block) {
  State& all = state();
  *block = Block{nullptr, size, false};
  for (const bool again : {false, true}) {
    void* base = nullptr;
    if (all.runtime.allocate(&base, block->whole()) == 0) {
      block->base = static_cast<char*>(base);
      return true;
    }
    all.runtime.forget_error();
    if (again || !may_wait) break;
    look("");
    release_ready();
  }
  return false;
}

}  // namespace

// What PyTorch calls; raises where there is no memory.
EXPORT void* kw_guards_allocate(ptrdiff_t size, int, void* stream) {
  const std::lock_guard lock(state().mutex);
  const Relaxed relaxed;
  const bool captures = is_capturing(stream);
  Block block;
  const bool is_marked = take_ready(static_cast<size_t>(size), &block);
  if (!is_marked && !make(static_cast<size_t>(size), !captures, &block)) throw std::bad_alloc();
  block.is_captured = captures;
  void* const filler = captures ? own_stream() : stream;
  if (!is_marked) mark(block, filler);
  state().runtime.fill(block.begin(), kNan, block.size, filler);
  if (captures) state().runtime.wait_for(filler);
  state().live.emplace(block.begin(), block);
  return block.begin();
}

EXPORT void kw_guards_free(void* pointer, ptrdiff_t, int, void*) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().live.find(pointer);
  if (found == state().live.end()) return;
  (found->second.is_captured ? state().captured : state().freed).push_back(found->second);
  state().live.erase(found);
}

// Looks at all guards; the number that were looked at since the process began.
EXPORT size_t kw_guards_look() {
  const std::lock_guard lock(state().mutex);
  look("");
  return state().looked_at;
}

// Looks at all guards after a launch of `kernel`, and names it for what was written since the last
// look; nothing while its stream is captured.
EXPORT void kw_guards_blame(const char* kernel, void* stream) {
  const std::lock_guard lock(state().mutex);
  if (!is_capturing(stream)) look(kernel);
}

// What the looks have found, lines with a closing zero, as far as `size` goes; the size of it all.
EXPORT size_t kw_guards_said(char* buffer, size_t size) {
  const std::lock_guard lock(state().mutex);
  const std::string& text = state().said;
  if (size > 0) {
    const size_t copied = text.size() < size ? text.size() : size - 1;
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return text.size() + 1;
}

EXPORT void kw_guards_forget() {
  const std::lock_guard lock(state().mutex);
  state().said.clear();
}
