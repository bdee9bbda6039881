// Inline PTX as functions: the translator turns an instruction into a call, with its operands in
// their order. Plain arithmetic needs no function; this is what touches memory or other threads.
//
// Shared addresses are the 32-bit handles of __cvta_generic_to_shared. The engine that copies
// behind the threads' back has its own part; mbarriers, TMA and wgmma are in ptx_hopper.h.
#pragma once

#include "kwemu/abi.h"
#include "kwemu/ptx_memory.h"
#include "kwemu/sync.h"
#include "kwemu/warp.h"

namespace kwemu::ptx {

// cp.async: asynchronous copies of 4, 8 or 16 bytes from global to shared memory.

template <class To, class From>
KWEMU_DEVICE void cp_async_ca_shared_global(To to, From from, int bytes, int source_bytes) {
  kwemu_async_copy(shared_address(to), global_address(from), static_cast<unsigned>(bytes),
                   static_cast<unsigned>(source_bytes), KWEMU_CALLER);
}

template <class To, class From>
KWEMU_DEVICE void cp_async_ca_shared_global(To to, From from, int bytes) {
  kwemu_async_copy(shared_address(to), global_address(from), static_cast<unsigned>(bytes),
                   static_cast<unsigned>(bytes), KWEMU_CALLER);
}

template <class To, class From>
KWEMU_DEVICE void cp_async_cg_shared_global(To to, From from, int bytes, int source_bytes) {
  kwemu_async_copy(shared_address(to), global_address(from), static_cast<unsigned>(bytes),
                   static_cast<unsigned>(source_bytes), KWEMU_CALLER);
}

template <class To, class From>
KWEMU_DEVICE void cp_async_cg_shared_global(To to, From from, int bytes) {
  kwemu_async_copy(shared_address(to), global_address(from), static_cast<unsigned>(bytes),
                   static_cast<unsigned>(bytes), KWEMU_CALLER);
}

inline void cp_async_commit_group() { kwemu_async_commit(); }
inline void cp_async_wait_group(int groups) { kwemu_async_wait(static_cast<unsigned>(groups)); }
inline void cp_async_wait_all() { kwemu_async_wait_all(); }

// Hints.

template <class Address>
inline void prefetch_global_L1(Address) {}
template <class Address>
inline void prefetch_global_L2(Address) {}

// Barriers and fences.

inline void bar_sync(int id, KWEMU_HERE) {
  if (id == 0) {
    kwemu_barrier(BarrierOp::kPlain, 0, file, line);
  } else {
    const unsigned all = kwemu_block_dim.x * kwemu_block_dim.y * kwemu_block_dim.z;
    kwemu_named_barrier(id, all, 1, file, line);
  }
}

inline void bar_sync(int id, unsigned threads, KWEMU_HERE) {
  kwemu_named_barrier(id, threads, 1, file, line);
}

inline void bar_arrive(int id, unsigned threads, KWEMU_HERE) {
  kwemu_named_barrier(id, threads, 0, file, line);
}

inline void bar_warp_sync(unsigned mask, KWEMU_HERE) {
  kwemu_warp(WarpOp::kSync, mask, 0, 0, 32, file, line);
}

inline void membar_gl() { kwemu_fence(); }
inline void membar_cta() { kwemu_fence(); }

}  // namespace kwemu::ptx
