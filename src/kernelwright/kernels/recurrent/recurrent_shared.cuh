#pragma once
// What the blocks of a cluster share: barriers; and accesses to shared memory by address.

#include "mbarrier.cuh"

template <class Tile>
struct RecurrentShared {
  Barrier x_full[Tile::STAGES], x_empty[Tile::STAGES];
  Barrier h_full[2];  // the other blocks' units have come
  uint32_t lane;
};

// A register's value that the compiler computes once, and not where it is used.
__device__ __forceinline__ void keep(uint32_t& value) { asm volatile("" : "+r"(value)); }

// 16-byte aligned.
__device__ __forceinline__ void write_shared(uint32_t address, const float (&four)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(four[0]),
               "f"(four[1]), "f"(four[2]), "f"(four[3])
               : "memory");
}
__device__ __forceinline__ void read_shared(uint32_t address, float (&four)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four[0]), "=f"(four[1]), "=f"(four[2]), "=f"(four[3])
               : "r"(address)
               : "memory");
}
// 8-byte aligned.
__device__ __forceinline__ void write_shared(uint32_t address, const float (&two)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(two[0]), "f"(two[1])
               : "memory");
}
__device__ __forceinline__ void read_shared(uint32_t address, float (&two)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(two[0]), "=f"(two[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void write_shared(uint32_t address, uint16_t bits) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(bits) : "memory");
}
