// Warp-wide operations: shuffles, votes, matches, reductions.
#pragma once

#include <cstring>
#include <type_traits>

#include "kwemu/abi.h"

#define KWEMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace kwemu {

template <class T>
KWEMU_UNCHECKED inline uint64_t to_bits(const T& value) {
  static_assert(sizeof(T) <= 8, "warp-wide operations move at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
KWEMU_UNCHECKED inline T from_bits(uint64_t bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}

template <class T>
KWEMU_UNCHECKED inline T shuffle(WarpOp op, unsigned mask, const T& value, unsigned operand,
                                 int width, const char* file, int line) {
  return from_bits<T>(
      kwemu_warp(op, mask, to_bits(value), operand, static_cast<unsigned>(width), file, line));
}

}  // namespace kwemu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, KWEMU_HERE) {
  return ::kwemu::shuffle(::kwemu::WarpOp::kShuffle, mask, value, static_cast<unsigned>(lane),
                          width, file, line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, KWEMU_HERE) {
  return ::kwemu::shuffle(::kwemu::WarpOp::kShuffleUp, mask, value, delta, width, file, line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, KWEMU_HERE) {
  return ::kwemu::shuffle(::kwemu::WarpOp::kShuffleDown, mask, value, delta, width, file, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, KWEMU_HERE) {
  return ::kwemu::shuffle(::kwemu::WarpOp::kShuffleXor, mask, value,
                          static_cast<unsigned>(lane_mask), width, file, line);
}

inline void __syncwarp(unsigned mask = 0xffffffffu, KWEMU_HERE) {
  kwemu_warp(::kwemu::WarpOp::kSync, mask, 0, 0, 32, file, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, KWEMU_HERE) {
  return static_cast<unsigned>(
      kwemu_warp(::kwemu::WarpOp::kBallot, mask, predicate != 0, 0, 32, file, line));
}

inline int __any_sync(unsigned mask, int predicate, KWEMU_HERE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, KWEMU_HERE) {
  return __ballot_sync(mask, !predicate, file, line) == 0;
}

inline unsigned __activemask(KWEMU_HERE) {
  return static_cast<unsigned>(
      kwemu_warp(::kwemu::WarpOp::kActiveMask, 0xffffffffu, 0, 0, 32, file, line));
}

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, KWEMU_HERE) {
  return static_cast<unsigned>(
      kwemu_warp(::kwemu::WarpOp::kMatchAny, mask, ::kwemu::to_bits(value), 0, 32, file, line));
}

template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, KWEMU_HERE) {
  const auto lanes = static_cast<unsigned>(
      kwemu_warp(::kwemu::WarpOp::kMatchAll, mask, ::kwemu::to_bits(value), 0, 32, file, line));
  *predicate = lanes != 0;
  return lanes;
}

#define KWEMU_REDUCE(name, type, op)                                                             \
  inline type __reduce_##name##_sync(unsigned mask, type value, KWEMU_HERE) {                    \
    return static_cast<type>(                                                                    \
        kwemu_warp(::kwemu::WarpOp::op, mask, static_cast<unsigned>(value), 0, 32, file, line)); \
  }
KWEMU_REDUCE(add, unsigned, kReduceAdd)
KWEMU_REDUCE(add, int, kReduceAdd)
KWEMU_REDUCE(min, unsigned, kReduceMin)
KWEMU_REDUCE(min, int, kReduceMinSigned)
KWEMU_REDUCE(max, unsigned, kReduceMax)
KWEMU_REDUCE(max, int, kReduceMaxSigned)
KWEMU_REDUCE(and, unsigned, kReduceAnd)
KWEMU_REDUCE(or, unsigned, kReduceOr)
KWEMU_REDUCE(xor, unsigned, kReduceXor)
#undef KWEMU_REDUCE
