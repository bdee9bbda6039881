// The whole interface between a translated unit and the runtime library, libkwemu.so.
//
// How translated text calls it (the translator's side of the contract):
//
//   kernel<T><<<grid, block, bytes, stream>>>(a, b);
//     ::kwemu::launch("kernel", __FILE__, __LINE__, ::kwemu::config(grid, block, bytes, stream),
//                     [&](auto... kwemu_args) { kernel<T>(kwemu_args...); }, a, b);
//   __shared__ float tile[16][17];
//     typedef float tile_kwemu_t[16][17];
//     static constinit ::kwemu::SharedSite tile_kwemu_site{"tile", __LINE__};
//     auto& tile = ::kwemu::shared<tile_kwemu_t>(tile_kwemu_site);
//   extern __shared__ float buffer[];            inside a function, or at namespace scope:
//     float* buffer = ::kwemu::dynamic_shared<float>();
//     static constexpr ::kwemu::DynamicShared<float> buffer{};
//   asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src));
//     ::kwemu::ptx::cp_async_cg_shared_global(dst, src, 16);      (names: see kwemu/ptx.h)
//
// A unit is compiled with -fsanitize=thread --param tsan-instrument-func-entry-exit=0
// --param tsan-distinguish-volatile=1, and linked without it:
//   g++ -shared -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=__assert_fail -o x.so x.o
// The runtime defines the __tsan_* functions and the __wrap_* functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kwemu/vector_types.h"

// Code of the emulator itself: the checks must not see its accesses.
#define KWEMU_UNCHECKED __attribute__((no_sanitize("thread")))
// A device function whose return address is the line of the user's code.
#define KWEMU_DEVICE __attribute__((noinline, no_sanitize("thread")))
#define KWEMU_INLINE inline __attribute__((always_inline))
#define KWEMU_CALLER __builtin_return_address(0)
#define KWEMU_THREAD_LOCAL extern const __thread __attribute__((tls_model("initial-exec")))

namespace kwemu {

// One `__shared__` declaration; `slot` is the runtime's, set at first use.
struct SharedSite {
  const char* name;
  int line;
  unsigned slot = 0;
};

struct Config {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  void* stream = nullptr;
  dim3 cluster{1, 1, 1};
  bool may_start_early = false;  // before the launch before it is complete
};

enum class ProductElement : int { kHalf, kBfloat16, kTf32 };

// One thread's part in a wgmma instruction: n / 2 registers of sums, descriptors of both matrices
// or four registers of the first.
struct Product {
  float* const* registers;
  const uint32_t* lhs_registers;  // null: lhs is a descriptor
  unsigned n;
  ProductElement element;
  uint64_t lhs, rhs;
  bool accumulates;
  bool is_lhs_negated, is_rhs_negated;
  bool is_lhs_transposed, is_rhs_transposed;
};

// One thread's order for a bulk copy: a box of `rank` dimensions, to the blocks of `mask`, or to
// this one if that is 0; or back, from this one.
struct BoxCopy {
  const void* map;
  int rank;
  int place[5];
  unsigned to, barrier;  // handles: of the shared memory on either way; stores have no barrier
  unsigned mask;
  bool is_im2col;
  int offsets[3];  // im2col: of W, H, D
};

enum class WarpOp : int {
  kShuffle,      // operand: source lane inside the segment
  kShuffleUp,    // operand: delta
  kShuffleDown,  // operand: delta
  kShuffleXor,   // operand: lane mask
  kBallot,       // value: predicate; result: mask of lanes
  kMatchAny,     // result: mask of lanes with the same value
  kMatchAll,     // result: the mask if all values agree, else 0
  kReduceAdd,
  kReduceMin,
  kReduceMax,
  kReduceMinSigned,
  kReduceMaxSigned,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kSync,        // __syncwarp: also orders memory
  kActiveMask,  // result: the lanes that came together
};

enum class BarrierOp : int { kPlain, kCount, kAnd, kOr };

}  // namespace kwemu

extern "C" {

// The position of the running thread. Constants as far as device code can see.
KWEMU_THREAD_LOCAL uint3 kwemu_thread_index;
KWEMU_THREAD_LOCAL uint3 kwemu_block_index;
KWEMU_THREAD_LOCAL uint3 kwemu_block_dim;
KWEMU_THREAD_LOCAL uint3 kwemu_grid_dim;

// Runs `body(closure)` once per thread of the grid; the closure, on the host's stack, may be read.
int kwemu_launch(const char* kernel, const char* file, int line, const kwemu::Config* config,
                 void (*body)(void*), void* closure, size_t closure_bytes);

int kwemu_allow_shared(const void* kernel, size_t bytes);
int kwemu_allow_wide_clusters(const void* kernel);
// The name of a kernel that is known by its address, for as long as the process lives.
const char* kwemu_kernel_name(const void* kernel);
int kwemu_unsupported_launch(const char* what, const char* file, int line);

void* kwemu_shared(kwemu::SharedSite* site, size_t bytes, size_t alignment);
void* kwemu_dynamic_shared();

int kwemu_barrier(kwemu::BarrierOp op, int predicate, const char* file, int line);
// Barrier `id` of the block for `count` threads; `wait` false arrives without waiting.
void kwemu_named_barrier(int id, unsigned count, int wait, const char* file, int line);

// Waits until the live lanes of `mask` have called it with the same op, then gives this lane's
// result.
uint64_t kwemu_warp(kwemu::WarpOp op, unsigned mask, uint64_t value, unsigned operand,
                    unsigned width, const char* file, int line);

void kwemu_fence();
void kwemu_atomic(const void* address, size_t bytes, void* caller);
void kwemu_access(const void* address, size_t bytes, int is_write, void* caller);

// Shared memory as the 32-bit handles that inline PTX uses, and back.
unsigned kwemu_shared_handle(const void* address);
void* kwemu_shared_address(unsigned handle);
int kwemu_is_shared(const void* address);

// griddepcontrol.wait and griddepcontrol.launch_dependents
void kwemu_wait_for_previous();
void kwemu_let_next_start();

// The cluster: its place in the grid, this block's place in it, its size.
uint3 kwemu_cluster_index();
uint3 kwemu_cluster_shape();
uint3 kwemu_place_in_cluster();
unsigned kwemu_cluster_rank();
// The handle, in block `rank` of the cluster, of what has this handle here.
unsigned kwemu_map_to_rank(unsigned handle, unsigned rank);
void kwemu_store_cluster(unsigned handle, unsigned value, void* caller);
void kwemu_cluster_arrive();
void kwemu_cluster_wait(const char* file, int line);

// Barriers in shared memory, by handles that may be of another block.
void kwemu_mbarrier_init(unsigned barrier, unsigned count, void* caller);
void kwemu_mbarrier_invalidate(unsigned barrier, void* caller);
// Gives the parity of the phase that it arrived at.
int kwemu_mbarrier_arrive(unsigned barrier, unsigned count, unsigned bytes, void* caller);
void kwemu_mbarrier_expect(unsigned barrier, unsigned bytes, void* caller);
int kwemu_mbarrier_wait(unsigned barrier, unsigned parity, void* caller);
// fence.proxy.async and fence.mbarrier_init
void kwemu_proxy_fence();

void kwemu_copy_box(const kwemu::BoxCopy* copy, void* caller);
// From this block's shared memory to where the handle and its barrier are.
void kwemu_send_shared(unsigned to, unsigned from, unsigned bytes, unsigned barrier, void* caller);
void kwemu_store_async(unsigned to, const unsigned* words, unsigned barrier, void* caller);
void kwemu_store_box(const kwemu::BoxCopy* order, void* caller);
// Between memory and this block's shared memory, which the handles name.
void kwemu_copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier, void* caller);
void kwemu_store_bulk(const void* to, unsigned from, unsigned bytes, void* caller);
void kwemu_commit_stores();
// Until at most so many of the thread's groups still read shared memory.
void kwemu_wait_stores(unsigned groups_in_flight);

void kwemu_product_fence();
void kwemu_product(const kwemu::Product* product, void* caller);
void kwemu_product_commit();
void kwemu_product_wait(unsigned groups_in_flight, void* caller);

// setmaxnreg: inc or dec
void kwemu_set_registers(unsigned count, int is_more, void* caller);

// cp.async: `source_bytes` of `bytes` are copied, the rest is zero. Nothing lands before a wait.
void kwemu_async_copy(void* shared, const void* global, unsigned bytes, unsigned source_bytes,
                      void* caller);
void kwemu_async_commit();
void kwemu_async_wait(unsigned groups_in_flight);
void kwemu_async_wait_all();

// Ends the launch: `error` is the cudaError_t that the host will see.
[[noreturn]] void kwemu_trap(int error);
// A construct that the emulator has no model of: a finding, and the end of the launch.
[[noreturn]] void kwemu_unsupported(const char* what, const char* file, int line);

unsigned kwemu_linear_thread();
unsigned long long kwemu_clock();
}
