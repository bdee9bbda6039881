// The functions of kwemu/abi.h, as device code calls them.
#include <assert.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "access.h"
#include "device_limits.h"
#include "export.h"
#include "kwemu/abi.h"
#include "runtime.h"

using kwemu::Access;
using kwemu::Block;
using kwemu::current_block;
using kwemu::Place;

namespace {

constexpr int kInvalidValue = 1;          // cudaErrorInvalidValue
constexpr int kInvalidConfiguration = 9;  // cudaErrorInvalidConfiguration
constexpr int kInvalidClusterSize = 912;  // cudaErrorInvalidClusterSize

bool is_cluster_valid(const kwemu::Config& config, unsigned most) {
  const dim3& g = config.grid;
  const dim3& c = config.cluster;
  if (c.x == 0 || c.y == 0 || c.z == 0 || uint64_t{c.x} * c.y * c.z > most) return false;
  return g.x % c.x == 0 && g.y % c.y == 0 && g.z % c.z == 0;
}

bool is_valid(const kwemu::Config& config) {
  const dim3& g = config.grid;
  const dim3& b = config.block;
  const uint64_t threads = uint64_t{b.x} * b.y * b.z;
  return threads > 0 && threads <= kwemu::kThreadsPerBlock && b.z <= kwemu::kThreadsPerBlockZ &&
         g.x > 0 && g.y > 0 && g.z > 0 && g.x <= 0x7fffffffu && g.y <= kwemu::kGridYZ &&
         g.z <= kwemu::kGridYZ;
}

}  // namespace

extern "C" {

KWEMU_EXPORT int kwemu_launch(const char* kernel, const char* file, int line,
                              const kwemu::Config* config, void (*body)(void*), void* closure,
                              size_t closure_bytes) {
  if (current_block != nullptr) kwemu_unsupported("a launch from device code", file, line);
  kwemu::Runtime& runtime = kwemu::Runtime::instance();
  if (!is_valid(*config)) return runtime.remember(kInvalidConfiguration);
  const void* caller = reinterpret_cast<const void*>(body);
  if (!is_cluster_valid(*config, runtime.cluster_limit(kernel, caller))) {
    return runtime.remember(kInvalidClusterSize);
  }
  if (config->shared_bytes > runtime.shared_limit(kernel, caller)) {
    return runtime.remember(kInvalidValue);
  }
  kwemu::Launch launch;
  launch.kernel = kernel;
  launch.place = Place::at(file, line);
  launch.config = *config;
  launch.body = body;
  launch.closure = closure;
  launch.closure_bytes = closure_bytes;
  launch.block_count = uint64_t{config->grid.x} * config->grid.y * config->grid.z;
  launch.threads_per_block = config->block.x * config->block.y * config->block.z;
  return runtime.remember(runtime.run(launch));
}

// cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
KWEMU_EXPORT int kwemu_allow_shared(const void* kernel, size_t bytes) {
  kwemu::Runtime& runtime = kwemu::Runtime::instance();
  if (bytes > size_t{kwemu::kSharedBytesOptIn}) return runtime.remember(kInvalidValue);
  runtime.allow_shared(kernel, bytes);
  return 0;
}

// cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)
KWEMU_EXPORT int kwemu_allow_wide_clusters(const void* kernel) {
  kwemu::Runtime::instance().allow_wide_clusters(kernel);
  return 0;
}

KWEMU_EXPORT const char* kwemu_kernel_name(const void* kernel) {
  return kwemu::Runtime::instance().kernel_name(kernel);
}

// A launch that the host asked for in a way the emulator cannot follow.
KWEMU_EXPORT int kwemu_unsupported_launch(const char* what, const char* file, int line) {
  kwemu::Finding finding;
  finding.kind = kwemu::FindingKind::kUnsupported;
  finding.kernel = what;
  finding.place = Place::at(file, line);
  finding.message = std::string(what) + " has no model in the emulator";
  kwemu::Report::instance().add(std::move(finding));
  return kwemu::Runtime::instance().remember(801 /* cudaErrorNotSupported */);
}

KWEMU_EXPORT void* kwemu_shared(kwemu::SharedSite* site, size_t bytes, size_t alignment) {
  void* memory = current_block->shared.variable(*site, bytes, alignment);
  if (memory == nullptr) {
    kwemu_unsupported("more shared memory than the 227 KB that a block can have",
                      current_block->launch->place.file, site->line);
  }
  return memory;
}

KWEMU_EXPORT void* kwemu_dynamic_shared() { return current_block->shared.dynamic(); }

KWEMU_EXPORT int kwemu_barrier(kwemu::BarrierOp op, int predicate, const char* file, int line) {
  return current_block->barrier(op, predicate, Place::at(file, line));
}

KWEMU_EXPORT void kwemu_named_barrier(int id, unsigned count, int wait, const char* file,
                                      int line) {
  current_block->named_barrier(id, count, wait != 0, Place::at(file, line));
}

KWEMU_EXPORT uint64_t kwemu_warp(kwemu::WarpOp op, unsigned mask, uint64_t value, unsigned operand,
                                 unsigned width, const char* file, int line) {
  return current_block->warp_call(op, mask, value, operand, width, Place::at(file, line));
}

KWEMU_EXPORT void kwemu_fence() {
  if (current_block != nullptr) current_block->synchronises(nullptr, __builtin_return_address(0));
}

KWEMU_EXPORT void kwemu_atomic(const void* address, size_t bytes, void* caller) {
  Block* block = current_block;
  if (block == nullptr) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at % bytes != 0) kwemu::fail_misaligned(*block, at, bytes, Access::kAtomic, caller);
  kwemu::check_access(*block, at, bytes, Access::kAtomic, caller);
  block->synchronises(address, caller);
}

KWEMU_EXPORT void kwemu_access(const void* address, size_t bytes, int is_write, void* caller) {
  Block* block = current_block;
  if (block == nullptr) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Access access = is_write != 0 ? Access::kWrite : Access::kRead;
  const bool is_stack = at - block->stack_low < block->stack_bytes;
  if (at % bytes != 0 && !is_stack) kwemu::fail_misaligned(*block, at, bytes, access, caller);
  kwemu::check_access(*block, at, bytes, access, caller);
}

KWEMU_EXPORT unsigned kwemu_shared_handle(const void* address) {
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(address) - current_block->shared_low);
}

KWEMU_EXPORT void* kwemu_shared_address(unsigned handle) {
  return reinterpret_cast<void*>(current_block->shared_low + handle);
}

KWEMU_EXPORT int kwemu_is_shared(const void* address) {
  return reinterpret_cast<uintptr_t>(address) - current_block->shared_low <
         kwemu::SharedMemory::kBytes;
}

KWEMU_EXPORT void kwemu_async_copy(void* shared, const void* global, unsigned bytes,
                                   unsigned source_bytes, void* caller) {
  Block& block = *current_block;
  const auto from = reinterpret_cast<uintptr_t>(global);
  const auto to = reinterpret_cast<uintptr_t>(shared);
  // Both addresses must be aligned to the size of the copy, however much of it is zero.
  if (from % bytes != 0) kwemu::fail_misaligned(block, from, bytes, Access::kRead, caller);
  if (to % bytes != 0) kwemu::fail_misaligned(block, to, bytes, Access::kWrite, caller);
  const unsigned copied = source_bytes < bytes ? source_bytes : bytes;
  kwemu::check_access(block, from, copied, Access::kRead, caller);
  block.current->copies.ask(
      block, {static_cast<char*>(shared), static_cast<const char*>(global), bytes, copied, caller});
}

KWEMU_EXPORT void kwemu_async_commit() { current_block->current->copies.commit(); }

KWEMU_EXPORT void kwemu_async_wait(unsigned groups_in_flight) {
  current_block->current->copies.wait(*current_block, groups_in_flight);
}

KWEMU_EXPORT void kwemu_async_wait_all() {
  current_block->current->copies.wait_all(*current_block);
}

KWEMU_EXPORT void kwemu_trap(int error) { current_block->abandon(error); }

KWEMU_EXPORT void kwemu_unsupported(const char* what, const char* file, int line) {
  current_block->report(kwemu::FindingKind::kUnsupported, Place::at(file, line), what);
  current_block->abandon(801 /* cudaErrorNotSupported */);
}

KWEMU_EXPORT unsigned kwemu_linear_thread() { return current_block->current->linear; }

KWEMU_EXPORT unsigned long long kwemu_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The C library's functions, as units call them.
KWEMU_EXPORT void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  if (current_block != nullptr) {
    void* caller = __builtin_return_address(0);
    kwemu::check_access(*current_block, reinterpret_cast<uintptr_t>(from), bytes, Access::kRead,
                        caller);
    kwemu::check_access(*current_block, reinterpret_cast<uintptr_t>(to), bytes, Access::kWrite,
                        caller);
  }
  return std::memcpy(to, from, bytes);
}

KWEMU_EXPORT void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  if (current_block != nullptr) {
    void* caller = __builtin_return_address(0);
    kwemu::check_access(*current_block, reinterpret_cast<uintptr_t>(from), bytes, Access::kRead,
                        caller);
    kwemu::check_access(*current_block, reinterpret_cast<uintptr_t>(to), bytes, Access::kWrite,
                        caller);
  }
  return std::memmove(to, from, bytes);
}

KWEMU_EXPORT void* __wrap_memset(void* to, int value, size_t bytes) {
  if (current_block != nullptr) {
    kwemu::check_access(*current_block, reinterpret_cast<uintptr_t>(to), bytes, Access::kWrite,
                        __builtin_return_address(0));
  }
  return std::memset(to, value, bytes);
}

[[noreturn]] KWEMU_EXPORT void __wrap___assert_fail(const char* expression, const char* file,
                                                    unsigned line, const char* function) {
  if (current_block == nullptr) __assert_fail(expression, file, line, function);
  const uint3& b = current_block->index;
  const uint3& t = current_block->current->index;
  std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
               file, line, function, b.x, b.y, b.z, t.x, t.y, t.z, expression);
  kwemu_trap(710 /* cudaErrorAssert */);
}
}
