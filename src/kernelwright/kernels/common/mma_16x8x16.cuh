#pragma once
// Matrix products of 16-bit numbers by a warp, with all of them in registers (mma.sync, compute
// capability 8.0). Thread 4 * g + t has of lhs (16 x 16) the pairs (g, 2 t), (g + 8, 2 t), (g, 2 t
// + 8), (g + 8, 2 t + 8), of rhs (16 x 8) the pairs of rows 2 t and 2 t + 8 in column g, and of
// sums (16 x 8) elements (g, 2 t), (g, 2 t + 1) and those eight rows further.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

template <class Element>
struct WarpProduct;

template <>
struct WarpProduct<__half> {
  __device__ __forceinline__ static void add(float (&sums)[4], const uint32_t (&lhs)[4],
                                             const uint32_t (&rhs)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "r"(rhs[0]), "r"(rhs[1]));
  }
};

template <>
struct WarpProduct<__nv_bfloat16> {
  __device__ __forceinline__ static void add(float (&sums)[4], const uint32_t (&lhs)[4],
                                             const uint32_t (&rhs)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "r"(rhs[0]), "r"(rhs[1]));
  }
};

// A matrix of 8 x 8 elements of which thread 4 * g + t has the pair (g, 2 t), turned.
__device__ __forceinline__ uint32_t transposed_pairs(uint32_t pairs) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pairs));
  return turned;
}
