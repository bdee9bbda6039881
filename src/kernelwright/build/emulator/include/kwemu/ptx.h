// Inline PTX as functions: the translator turns an asm statement into a call of the function that
// is named after the instruction, with outputs first, then inputs and immediates in their order.
//
// Names: the instruction's words joined by `_`, without cache hints (.L1::..., .L2::..., .nc, .cs,
// .cg of loads and stores), vector width and type of loads and stores: ld.global.nc.v4.f32 is
// ld_global(a, b, c, d, address). Shared addresses are the 32-bit handles of
// __cvta_generic_to_shared. Each engine that copies behind the threads' back has its own part
// below; mbarriers, TMA and wgmma will have theirs.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kwemu/abi.h"
#include "kwemu/sync.h"
#include "kwemu/warp.h"

namespace kwemu::ptx {

template <class Address>
KWEMU_UNCHECKED inline const void* global_address(Address address) {
  if constexpr (std::is_pointer_v<Address>) {
    return const_cast<const void*>(static_cast<const volatile void*>(address));
  } else {
    return reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
  }
}

template <class Address>
KWEMU_UNCHECKED inline void* shared_address(Address address) {
  if constexpr (std::is_pointer_v<Address>) {
    return const_cast<void*>(static_cast<const volatile void*>(address));
  } else {
    return kwemu_shared_address(static_cast<unsigned>(address));
  }
}

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

// Loads and stores of one, two or four values. The access is one, of their whole size.

template <class T, class Address>
KWEMU_DEVICE void ld_global(T& a, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, sizeof(T), 0, KWEMU_CALLER);
  a = *from;
}

template <class T, class Address>
KWEMU_DEVICE void ld_global(T& a, T& b, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, 2 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1];
}

template <class T, class Address>
KWEMU_DEVICE void ld_global(T& a, T& b, T& c, T& d, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_access(from, 4 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1], c = from[2], d = from[3];
}

template <class T, class Address>
KWEMU_DEVICE void ld_shared(T& a, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, sizeof(T), 0, KWEMU_CALLER);
  a = *from;
}

template <class T, class Address>
KWEMU_DEVICE void ld_shared(T& a, T& b, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, 2 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1];
}

template <class T, class Address>
KWEMU_DEVICE void ld_shared(T& a, T& b, T& c, T& d, Address address) {
  const auto* from = static_cast<const T*>(shared_address(address));
  kwemu_access(from, 4 * sizeof(T), 0, KWEMU_CALLER);
  a = from[0], b = from[1], c = from[2], d = from[3];
}

template <class Address, class T>
KWEMU_DEVICE void st_global(Address address, T a) {
  auto* to = const_cast<T*>(static_cast<const T*>(global_address(address)));
  kwemu_access(to, sizeof(T), 1, KWEMU_CALLER);
  *to = a;
}

template <class Address, class T>
KWEMU_DEVICE void st_global(Address address, T a, T b) {
  auto* to = const_cast<T*>(static_cast<const T*>(global_address(address)));
  kwemu_access(to, 2 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b;
}

template <class Address, class T>
KWEMU_DEVICE void st_global(Address address, T a, T b, T c, T d) {
  auto* to = const_cast<T*>(static_cast<const T*>(global_address(address)));
  kwemu_access(to, 4 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

template <class Address, class T>
KWEMU_DEVICE void st_shared(Address address, T a) {
  auto* to = static_cast<T*>(shared_address(address));
  kwemu_access(to, sizeof(T), 1, KWEMU_CALLER);
  *to = a;
}

template <class Address, class T>
KWEMU_DEVICE void st_shared(Address address, T a, T b) {
  auto* to = static_cast<T*>(shared_address(address));
  kwemu_access(to, 2 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b;
}

template <class Address, class T>
KWEMU_DEVICE void st_shared(Address address, T a, T b, T c, T d) {
  auto* to = static_cast<T*>(shared_address(address));
  kwemu_access(to, 4 * sizeof(T), 1, KWEMU_CALLER);
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}

template <class Address>
inline void prefetch_global(Address) {}

// Barriers and fences.

inline void bar_sync(int id, KWEMU_HERE) {
  if (id == 0) {
    kwemu_barrier(BarrierOp::kPlain, 0, file, line);
  } else {
    const unsigned all = kwemu_block_dim.x * kwemu_block_dim.y * kwemu_block_dim.z;
    kwemu_named_barrier(id, all, 1, file, line);
  }
}

inline void bar_sync_count(int id, unsigned threads, KWEMU_HERE) {
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
inline void fence_acq_rel_gpu() { kwemu_fence(); }

// Special registers and single instructions.

template <class T>
inline void cvta_to_shared(T& to, const void* from) {
  to = static_cast<T>(kwemu_shared_handle(from));
}

template <class T>
inline void mov_laneid(T& to) {
  to = static_cast<T>(kwemu_linear_thread() % 32);
}

}  // namespace kwemu::ptx
