// Inline PTX as functions: the translator turns an instruction into a call, with its operands in
// their order. Plain arithmetic needs no function; this is what touches memory or other threads.
//
// Shared addresses are the 32-bit handles of __cvta_generic_to_shared. The engine that copies
// behind the threads' back has its own part; mbarriers, TMA and wgmma are in ptx_hopper.h.
#pragma once

#include "kwemu/abi.h"
#include "kwemu/ptx_memory.h"
#include "kwemu/small_float.h"
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

template <class Policy>
inline void create_policy(Policy& policy) {
  policy = 0;
}
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

// Products of a warp, and matrices that it holds.

inline float half_of_pair(unsigned pair, int place, bool is_bfloat16) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * place));
  return is_bfloat16 ? SmallFormat<8, 7>::to_float(bits) : SmallFormat<5, 10>::to_float(bits);
}

// Sums (16 x 8) of a (16 x 16) times b (16 x 8) and c. Thread 4 * g + t has elements (g, 2 t) and
// its neighbour, and those eight rows or columns further.
template <bool IS_BFLOAT16>
inline void multiply_16x8x16(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1,
                             unsigned a2, unsigned a3, unsigned b0, unsigned b1, float c0, float c1,
                             float c2, float c3, KWEMU_HERE) {
  constexpr unsigned ALL = 0xffffffffu;
  const int lane = static_cast<int>(kwemu_linear_thread() % 32), g = lane / 4, t = lane % 4;
  const unsigned lhs[4] = {a0, a1, a2, a3}, rhs[2] = {b0, b1};
  double sums[4] = {c0, c1, c2, c3};
  for (int k = 0; k < 16; k += 2) {
    const int from = k % 8 / 2, place = k / 8;
    const unsigned upper = __shfl_sync(ALL, lhs[2 * place], g * 4 + from, 32, file, line);
    const unsigned lower = __shfl_sync(ALL, lhs[2 * place + 1], g * 4 + from, 32, file, line);
    const unsigned left = __shfl_sync(ALL, rhs[place], 8 * t + from, 32, file, line);
    const unsigned right = __shfl_sync(ALL, rhs[place], 8 * t + 4 + from, 32, file, line);
    const unsigned rows[2] = {upper, lower}, columns[2] = {left, right};
    for (int i = 0; i < 4; ++i) {
      for (int half = 0; half < 2; ++half) {
        sums[i] += double{half_of_pair(rows[i / 2], half, IS_BFLOAT16)} *
                   half_of_pair(columns[i % 2], half, IS_BFLOAT16);
      }
    }
  }
  d0 = static_cast<float>(sums[0]);
  d1 = static_cast<float>(sums[1]);
  d2 = static_cast<float>(sums[2]);
  d3 = static_cast<float>(sums[3]);
}

// A matrix of 8 x 8 16-bit elements, turned: thread 4 * g + t has elements (g, 2 t) and (g, 2 t +
// 1).
inline void transpose_8x8(unsigned& to, unsigned from, KWEMU_HERE) {
  const int lane = static_cast<int>(kwemu_linear_thread() % 32), g = lane / 4, t = lane % 4;
  unsigned parts[2];
  for (int i = 0; i < 2; ++i) {
    const unsigned pair = __shfl_sync(0xffffffffu, from, (2 * t + i) * 4 + g / 2, 32, file, line);
    parts[i] = pair >> (16 * (g % 2)) & 0xffffu;
  }
  to = parts[0] | parts[1] << 16;
}

}  // namespace kwemu::ptx
