// Inline PTX of compute capability 9.0: clusters, barriers in shared memory, bulk copies, products
// of warpgroups. Names and operands are the instructions'.
#pragma once

#include "kwemu/abi.h"
#include "kwemu/ptx_memory.h"
#include "kwemu/tensor_map.h"
#include "kwemu/warp.h"

namespace kwemu::ptx {

// Barriers in shared memory.

KWEMU_DEVICE inline void mbarrier_init(unsigned barrier, unsigned count) {
  kwemu_mbarrier_init(barrier, count, KWEMU_CALLER);
}
KWEMU_DEVICE inline void mbarrier_inval(unsigned barrier) {
  kwemu_mbarrier_invalidate(barrier, KWEMU_CALLER);
}
// What an instruction writes to `_`. The state that arriving gives is the phase's parity.
struct Sink {
  template <class T>
  KWEMU_INLINE void operator=(T) const {}
};
constexpr Sink SINK;

template <class State>
KWEMU_DEVICE void mbarrier_arrive(State&& state, unsigned barrier, unsigned count = 1) {
  state = kwemu_mbarrier_arrive(barrier, count, 0, KWEMU_CALLER);
}
template <class State>
KWEMU_DEVICE void mbarrier_arrive_expect_tx(State&& state, unsigned barrier, unsigned bytes) {
  state = kwemu_mbarrier_arrive(barrier, 1, bytes, KWEMU_CALLER);
}
KWEMU_DEVICE inline void mbarrier_expect_tx(unsigned barrier, unsigned bytes) {
  kwemu_mbarrier_expect(barrier, bytes, KWEMU_CALLER);
}
// The last operand, a time in nanoseconds, is no more than a hint.
template <class Predicate>
KWEMU_DEVICE void mbarrier_wait(Predicate& complete, unsigned barrier, unsigned parity,
                                unsigned = 0) {
  complete = kwemu_mbarrier_wait(barrier, parity, KWEMU_CALLER) != 0;
}

// Clusters.

inline void cluster_wait(KWEMU_HERE) { kwemu_cluster_wait(file, line); }

// To the shared memory of a block of the cluster, at an address of mapa's.
template <class T>
KWEMU_DEVICE void store_cluster(unsigned address, T value) {
  static_assert(sizeof(T) == 4, "one word at a time");
  kwemu_store_cluster(address, __builtin_bit_cast(unsigned, value), KWEMU_CALLER);
}

// One lane of the mask, the lowest.
template <class Predicate>
inline void elect(Predicate& elected, unsigned mask, KWEMU_HERE) {
  kwemu_warp(WarpOp::kBallot, mask, 1, 0, 32, file, line);
  elected = kwemu_linear_thread() % 32 == static_cast<unsigned>(__builtin_ctz(mask));
}
template <class Lane, class Predicate>
inline void elect(Lane&& leader, Predicate& elected, unsigned mask, KWEMU_HERE) {
  elect(elected, mask, file, line);
  leader = __builtin_ctz(mask);
}

// Bulk copies: target, map, a place for each dimension, barrier, and the blocks of a multicast.

template <int RANK, class Map>
KWEMU_UNCHECKED inline BoxCopy box_copy(unsigned to, Map map, const int (&values)[RANK + 1]) {
  BoxCopy copy = {};
  copy.map = global_address(map);
  copy.rank = RANK;
  copy.to = to;
  copy.barrier = static_cast<unsigned>(values[RANK]);
  for (int d = 0; d < RANK; ++d) copy.place[d] = values[d];
  return copy;
}

template <int RANK, class Map, class... Values>
KWEMU_DEVICE void copy_box(unsigned to, Map map, Values... values) {
  static_assert(sizeof...(Values) == RANK + 1);
  const BoxCopy copy = box_copy<RANK>(to, map, {static_cast<int>(values)...});
  kwemu_copy_box(&copy, KWEMU_CALLER);
}

template <int RANK, class Map, class... Values>
KWEMU_DEVICE void copy_box_to_cluster(unsigned mask, unsigned to, Map map, Values... values) {
  static_assert(sizeof...(Values) == RANK + 1);
  BoxCopy copy = box_copy<RANK>(to, map, {static_cast<int>(values)...});
  copy.mask = mask & 0xffff;
  kwemu_copy_box(&copy, KWEMU_CALLER);
}

// Pixels of an im2col map: the offsets of W, H and D, as many as there are, follow the barrier.
template <int RANK>
KWEMU_UNCHECKED inline BoxCopy pixel_copy(unsigned to, const void* map,
                                          const int (&values)[2 * RANK - 1]) {
  BoxCopy copy = {};
  copy.map = map;
  copy.rank = RANK;
  copy.to = to;
  copy.barrier = static_cast<unsigned>(values[RANK]);
  copy.is_im2col = true;
  for (int d = 0; d < RANK; ++d) copy.place[d] = values[d];
  for (int d = 0; d < RANK - 2; ++d) copy.offsets[d] = values[RANK + 1 + d] & 0xffff;
  return copy;
}

template <int RANK, class Map, class... Values>
KWEMU_DEVICE void copy_pixels(unsigned to, Map map, Values... values) {
  static_assert(sizeof...(Values) == 2 * RANK - 1);
  const BoxCopy copy = pixel_copy<RANK>(to, global_address(map), {static_cast<int>(values)...});
  kwemu_copy_box(&copy, KWEMU_CALLER);
}

template <int RANK, class Map, class... Values>
KWEMU_DEVICE void copy_pixels_to_cluster(unsigned mask, unsigned to, Map map, Values... values) {
  static_assert(sizeof...(Values) == 2 * RANK - 1);
  BoxCopy copy = pixel_copy<RANK>(to, global_address(map), {static_cast<int>(values)...});
  copy.mask = mask & 0xffff;
  kwemu_copy_box(&copy, KWEMU_CALLER);
}

// Back: map, a place for each dimension, source.
template <int RANK, class Map, class... Values>
KWEMU_DEVICE void store_box(Map map, Values... values) {
  static_assert(sizeof...(Values) == RANK + 1);
  const int all[] = {static_cast<int>(values)...};
  BoxCopy copy = {};
  copy.map = global_address(map);
  copy.rank = RANK;
  copy.to = static_cast<unsigned>(all[RANK]);
  for (int d = 0; d < RANK; ++d) copy.place[d] = all[d];
  kwemu_store_box(&copy, KWEMU_CALLER);
}

// To a cache, which the emulator has none of.
template <class Map, class... Values>
KWEMU_DEVICE void prefetch_box(Map, Values...) {}
template <class Address, class Bytes>
KWEMU_DEVICE void prefetch_bulk(Address, Bytes) {}

// From this block's shared memory to a block's of the cluster.
template <class Bytes>
KWEMU_DEVICE void send_shared(unsigned to, unsigned from, Bytes bytes, unsigned barrier) {
  kwemu_send_shared(to, from, static_cast<unsigned>(bytes), barrier, KWEMU_CALLER);
}

// Four words to a block's shared memory, counted at its barrier.
template <class Word>
KWEMU_DEVICE void store_async(unsigned to, Word a, Word b, Word c, Word d, unsigned barrier) {
  const unsigned words[] = {a, b, c, d};
  kwemu_store_async(to, words, barrier, KWEMU_CALLER);
}

// From memory to this block's shared memory, and back.
template <class Address, class Bytes>
KWEMU_DEVICE void copy_bulk(unsigned to, Address from, Bytes bytes, unsigned barrier) {
  kwemu_copy_bulk(to, global_address(from), static_cast<unsigned>(bytes), barrier, KWEMU_CALLER);
}
template <class Address, class Bytes>
KWEMU_DEVICE void store_bulk(Address to, unsigned from, Bytes bytes) {
  kwemu_store_bulk(global_address(to), from, static_cast<unsigned>(bytes), KWEMU_CALLER);
}

// Products of warpgroups: descriptors, whether to accumulate, signs, transpositions; the registers.

template <unsigned N, ProductElement KIND, class... Registers>
KWEMU_DEVICE void multiply(unsigned long long lhs, unsigned long long rhs, bool accumulates,
                           int lhs_sign, int rhs_sign, int lhs_transposed, int rhs_transposed,
                           Registers&... registers) {
  static_assert(sizeof...(Registers) == N / 2, "a thread has half a register for each column");
  float* const all[] = {&registers...};
  const Product product = {all,
                           nullptr,
                           N,
                           KIND,
                           lhs,
                           rhs,
                           accumulates,
                           lhs_sign < 0,
                           rhs_sign < 0,
                           lhs_transposed != 0,
                           rhs_transposed != 0};
  kwemu_product(&product, KWEMU_CALLER);
}

// The same of TF32.
template <unsigned N, class... Registers>
KWEMU_DEVICE void multiply_tf32(unsigned long long lhs, unsigned long long rhs, bool accumulates,
                                int lhs_sign, int rhs_sign, Registers&... registers) {
  multiply<N, ProductElement::kTf32>(lhs, rhs, accumulates, lhs_sign, rhs_sign, 0, 0, registers...);
}

// The same with the first matrix in registers.
template <unsigned N, ProductElement KIND, class... Registers>
KWEMU_DEVICE void multiply_registers(unsigned a, unsigned b, unsigned c, unsigned d,
                                     unsigned long long rhs, bool accumulates, int lhs_sign,
                                     int rhs_sign, int rhs_transposed, Registers&... registers) {
  static_assert(sizeof...(Registers) == N / 2, "a thread has half a register for each column");
  float* const all[] = {&registers...};
  const uint32_t lhs[] = {a, b, c, d};
  const Product product = {all,
                           lhs,
                           N,
                           KIND,
                           0,
                           rhs,
                           accumulates,
                           lhs_sign < 0,
                           rhs_sign < 0,
                           false,
                           rhs_transposed != 0};
  kwemu_product(&product, KWEMU_CALLER);
}

KWEMU_DEVICE inline void wait_products(unsigned groups) {
  kwemu_product_wait(groups, KWEMU_CALLER);
}

// Registers.

KWEMU_DEVICE inline void setmaxnreg_inc(unsigned count) {
  kwemu_set_registers(count, 1, KWEMU_CALLER);
}
KWEMU_DEVICE inline void setmaxnreg_dec(unsigned count) {
  kwemu_set_registers(count, 0, KWEMU_CALLER);
}

// Flags between blocks.

template <class T, class Address>
KWEMU_DEVICE void load_acquire(T& value, Address address) {
  const auto* from = static_cast<const T*>(global_address(address));
  kwemu_atomic(from, sizeof(T), KWEMU_CALLER);
  value = __atomic_load_n(from, __ATOMIC_SEQ_CST);
}
template <class Address, class T>
KWEMU_DEVICE void store_release(Address address, T value) {
  auto* to = static_cast<T*>(const_cast<void*>(global_address(address)));
  kwemu_atomic(to, sizeof(T), KWEMU_CALLER);
  __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}
// Words that say themselves whether they have come.
template <class T, class Address>
KWEMU_DEVICE void load_relaxed(T& value, Address address) {
  load_acquire(value, address);
}
template <class Address, class T>
KWEMU_DEVICE void store_relaxed(Address address, T value) {
  store_release(address, value);
}

}  // namespace kwemu::ptx
