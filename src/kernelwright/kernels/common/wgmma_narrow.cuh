#pragma once
// Matrix products of fp16 by a warpgroup with few columns (wgmma, compute capability 9.0a), and
// matrices in shared memory that are not swizzled. Asynchronous: see wgmma.cuh. Those of bfloat16
// are in wgmma_narrow_bf16.cuh.

#include <cuda_fp16.h>

#include <cstdint>

#include "shared_address.cuh"

// A 16-bit matrix in shared memory as core matrices: 8 rows of 16 bytes, 128 bytes in all, the next
// 8 rows right behind. The next 8 of K lie `group_bytes` further (PTX ISA, "Shared memory matrix
// layout", no swizzle, K-major). The upper half is the same for all.
struct CoreMatrices {
  uint32_t low;

  __device__ __forceinline__ operator uint64_t() const {
    constexpr uint64_t EIGHT_ROWS = 128;
    return (EIGHT_ROWS >> 4) << 32 | low;
  }
};

__device__ __forceinline__ CoreMatrices describe_cores(const void* shared, int group_bytes) {
  const uint32_t low = (shared_address(shared) & 0x3ffff) >> 4 | (group_bytes >> 4) << 16;
  return {__shfl_sync(0xffffffffu, low, 0)};
}

// The same matrices, `bytes` further: descriptors count in units of 16 bytes.
__device__ __forceinline__ CoreMatrices advance_cores(CoreMatrices matrices, int bytes) {
  return {matrices.low + (bytes >> 4)};
}

// sums (64 x N) = lhs (64 x 16) * rhs (16 x N), added to sums unless `accumulate` is 0. lhs is a
// descriptor, or of each thread four pairs: rows lane / 4 and 8 more of its warp's 16, elements 2 *
// (lane % 4) of K and 8 more, rows first. sums of a thread, for each 8 columns: two neighbours of
// its first row, two of its second, the same place.
template <int N, class Plane>
struct NarrowProduct;

template <>
struct NarrowProduct<8, __half> {
  static constexpr int REGISTERS = 4;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
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
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, %8, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};

template <>
struct NarrowProduct<16, __half> {
  static constexpr int REGISTERS = 8;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
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
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "{%8, %9, %10, %11}, %12, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};

template <>
struct NarrowProduct<32, __half> {
  static constexpr int REGISTERS = 16;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
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
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "{%16, %17, %18, %19}, %20, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};

template <>
struct NarrowProduct<64, __half> {
  static constexpr int REGISTERS = 32;

  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, accumulate, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS],
                                                  const uint32_t (&lhs)[4], uint64_t rhs,
                                                  int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, accumulate, 1, 1, 0;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31])
        : "r"(lhs[0]), "r"(lhs[1]), "r"(lhs[2]), "r"(lhs[3]), "l"(rhs), "r"(accumulate));
  }
};
