// Inline PTX as functions: the translator turns an asm statement into a call of the function that
// is named after the instruction, with outputs first, then inputs and immediates in their order.
//
// Names: the instruction's words joined by `_`; this header is the list of what there is. Shared
// addresses are the 32-bit handles of __cvta_generic_to_shared. The engine that copies behind the
// threads' back has its own part; mbarriers, TMA and wgmma will have theirs.
#pragma once

#include <math.h>

#include "kwemu/abi.h"
#include "kwemu/intrinsics.h"
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

// Hints about the second-level cache.
#define KWEMU_PTX              \
  template <class... Operands> \
  KWEMU_INLINE void
KWEMU_PTX cp_async_ca_shared_global_L2_64B(Operands... o) { cp_async_ca_shared_global(o...); }
KWEMU_PTX cp_async_ca_shared_global_L2_128B(Operands... o) { cp_async_ca_shared_global(o...); }
KWEMU_PTX cp_async_ca_shared_global_L2_256B(Operands... o) { cp_async_ca_shared_global(o...); }
KWEMU_PTX cp_async_cg_shared_global_L2_64B(Operands... o) { cp_async_cg_shared_global(o...); }
KWEMU_PTX cp_async_cg_shared_global_L2_128B(Operands... o) { cp_async_cg_shared_global(o...); }
KWEMU_PTX cp_async_cg_shared_global_L2_256B(Operands... o) { cp_async_cg_shared_global(o...); }
#undef KWEMU_PTX

inline void cp_async_commit_group() { kwemu_async_commit(); }
inline void cp_async_wait_group(int groups) { kwemu_async_wait(static_cast<unsigned>(groups)); }
inline void cp_async_wait_all() { kwemu_async_wait_all(); }

// Loads and stores. Cache hints mean nothing here; widths and types follow from the operands.

#define KWEMU_PTX              \
  template <class... Operands> \
  KWEMU_INLINE void

KWEMU_PTX ld_global_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_b64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_u64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_f64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_b16(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_u16(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_b64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_u64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v2_f64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_b64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_u64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_f64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_b16(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_u16(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_b64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_u64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v2_f64(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_shared_f32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_b32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_u32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_s32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_b64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_u64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_f64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_b16(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_u16(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_f32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_b32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_u32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_b64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_u64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v2_f64(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v4_f32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v4_b32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_shared_v4_u32(Operands&&... o) { load_shared(o...); }
KWEMU_PTX ld_global_cs_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cs_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_cg_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_ca_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_128B_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_nc_L1_no_allocate_L2_256B_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v2_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v2_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v4_f32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v4_u32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v4_s32(Operands&&... o) { load_global(o...); }
KWEMU_PTX ld_global_L1_no_allocate_L2_256B_v4_b32(Operands&&... o) { load_global(o...); }
KWEMU_PTX st_global_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_b64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_u64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_u16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_b16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v2_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v2_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v2_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v4_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v4_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v4_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_v4_s32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_b64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_u64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_u16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_b16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v2_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v2_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v2_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v4_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v4_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v4_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cs_v4_s32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_b64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_u64(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_u16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_b16(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v2_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v2_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v2_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v4_f32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v4_u32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v4_b32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_global_cg_v4_s32(Operands&&... o) { store_global(o...); }
KWEMU_PTX st_shared_f32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_u32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_b32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_b64(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_u64(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_u16(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_b16(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v2_f32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v2_u32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v2_b32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v4_f32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v4_u32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v4_b32(Operands&&... o) { store_shared(o...); }
KWEMU_PTX st_shared_v4_s32(Operands&&... o) { store_shared(o...); }

#undef KWEMU_PTX

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

inline void barrier_sync(int id, KWEMU_HERE) { bar_sync(id, file, line); }
inline void membar_gl() { kwemu_fence(); }
inline void membar_sys() { kwemu_fence(); }
inline void membar_cta() { kwemu_fence(); }
inline void fence_acq_rel_gpu() { kwemu_fence(); }

// Special registers: `mov.u32 %0, %%laneid` is mov_u32(x, sreg_laneid()).

inline unsigned sreg_laneid() { return kwemu_linear_thread() % 32; }
inline unsigned sreg_warpid() { return kwemu_linear_thread() / 32; }
inline unsigned sreg_tid_x() { return kwemu_thread_index.x; }
inline unsigned sreg_tid_y() { return kwemu_thread_index.y; }
inline unsigned sreg_tid_z() { return kwemu_thread_index.z; }
inline unsigned sreg_ctaid_x() { return kwemu_block_index.x; }
inline unsigned sreg_ctaid_y() { return kwemu_block_index.y; }
inline unsigned sreg_ctaid_z() { return kwemu_block_index.z; }
inline unsigned sreg_lanemask_lt() { return (1u << sreg_laneid()) - 1; }
inline unsigned sreg_lanemask_le() { return 2 * (1u << sreg_laneid()) - 1; }
inline unsigned sreg_lanemask_eq() { return 1u << sreg_laneid(); }
inline unsigned long long sreg_clock64() { return kwemu_clock(); }
inline unsigned long long sreg_globaltimer() { return kwemu_clock(); }

// Moves, predicates and single operations.

#define KWEMU_PTX1             \
  template <class To, class A> \
  KWEMU_INLINE void
#define KWEMU_PTX2                      \
  template <class To, class A, class B> \
  KWEMU_INLINE void
KWEMU_PTX1 mov_u32(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 mov_b32(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 mov_s32(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 mov_u64(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 mov_b64(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 mov_f32(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX2 setp_ne_b32(To& to, A a, B b) { to = a != static_cast<A>(b); }
KWEMU_PTX2 setp_eq_b32(To& to, A a, B b) { to = a == static_cast<A>(b); }
KWEMU_PTX2 setp_ne_u32(To& to, A a, B b) { to = a != static_cast<A>(b); }
KWEMU_PTX2 setp_eq_u32(To& to, A a, B b) { to = a == static_cast<A>(b); }
KWEMU_PTX2 setp_ne_s32(To& to, A a, B b) { to = a != static_cast<A>(b); }
KWEMU_PTX1 cvta_to_shared_u64(To& to, A a) {
  to = static_cast<To>(kwemu_shared_handle(global_address(a)));
}
KWEMU_PTX1 cvta_to_global_u64(To& to, A a) { to = static_cast<To>(a); }
KWEMU_PTX1 ex2_approx_f32(To& to, A a) { to = exp2f(a); }
KWEMU_PTX1 ex2_approx_ftz_f32(To& to, A a) { to = exp2f(a); }
KWEMU_PTX1 lg2_approx_f32(To& to, A a) { to = log2f(a); }
KWEMU_PTX1 lg2_approx_ftz_f32(To& to, A a) { to = log2f(a); }
KWEMU_PTX1 rcp_approx_f32(To& to, A a) { to = 1.0f / a; }
KWEMU_PTX1 rcp_approx_ftz_f32(To& to, A a) { to = 1.0f / a; }
KWEMU_PTX1 rsqrt_approx_f32(To& to, A a) { to = __frsqrt_rn(a); }
KWEMU_PTX1 sqrt_approx_f32(To& to, A a) { to = sqrtf(a); }
KWEMU_PTX1 tanh_approx_f32(To& to, A a) { to = tanhf(a); }
// Ties away from zero, to ten bits of mantissa.
KWEMU_PTX1 cvt_rna_tf32_f32(To& to, A a) {
  to = static_cast<To>((__float_as_uint(a) + 0x1000u) & 0xffffe000u);
}
KWEMU_PTX2 add_f32(To& to, A a, B b) { to = a + b; }
KWEMU_PTX2 mul_f32(To& to, A a, B b) { to = a * b; }
template <class To, class A, class B, class C>
KWEMU_INLINE void fma_rn_f32(To& to, A a, B b, C c) {
  to = __builtin_fmaf(a, b, c);
}
#undef KWEMU_PTX1
#undef KWEMU_PTX2

}  // namespace kwemu::ptx
