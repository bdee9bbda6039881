#pragma once
// Matrix products of bfloat16 by a warpgroup with few columns: see wgmma_narrow.cuh.

#include <cuda_bf16.h>

#include "wgmma_narrow.cuh"

template <>
struct NarrowProduct<8, __nv_bfloat16> {
  static constexpr int REGISTERS = 4;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3}, "
        "%4, %5, accumulate, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS],
                                                  const uint32_t (&lhs)[4], uint64_t rhs,
                                                  int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %9, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, %8, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};

template <>
struct NarrowProduct<16, __nv_bfloat16> {
  static constexpr int REGISTERS = 8;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, accumulate, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS],
                                                  const uint32_t (&lhs)[4], uint64_t rhs,
                                                  int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %13, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};

template <>
struct NarrowProduct<32, __nv_bfloat16> {
  static constexpr int REGISTERS = 16;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, accumulate, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS],
                                                  const uint32_t (&lhs)[4], uint64_t rhs,
                                                  int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};
