#pragma once
// Matrix products of TF32 by a warpgroup, from shared memory into fp32 registers (wgmma,
// compute capability 9.0a). Asynchronous: see wgmma.cuh.
//
// Numbers are those of fp32 without their last 13 bits, whatever these are: who writes them there
// rounds them before (CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 does).

#include <cstdint>

// sums (64 x 16) = lhs (64 x 8) * rhs (8 x 16), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma16Tf32 {
  using Element = float;
  static constexpr int N = 16;
  static constexpr int REGISTERS = 8;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %10, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, accumulate, 1, 1;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
};

// sums (64 x 32) = lhs (64 x 8) * rhs (8 x 32), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma32Tf32 {
  using Element = float;
  static constexpr int N = 32;
  static constexpr int REGISTERS = 16;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, accumulate, 1, 1;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
};

// sums (64 x 64) = lhs (64 x 8) * rhs (8 x 64), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma64Tf32 {
  using Element = float;
  static constexpr int N = 64;
  static constexpr int REGISTERS = 32;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, accumulate, 1, 1;\n"
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
};

// sums (64 x 128) = lhs (64 x 8) * rhs (8 x 128), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma128Tf32 {
  using Element = float;
  static constexpr int N = 128;
  static constexpr int REGISTERS = 64;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, accumulate, 1, 1;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31]), "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]),
          "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]),
          "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]),
          "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]),
          "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]),
          "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
};

// sums (64 x 192) = lhs (64 x 8) * rhs (8 x 192), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma192Tf32 {
  using Element = float;
  static constexpr int N = 192;
  static constexpr int REGISTERS = 96;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
        "%96, %97, accumulate, 1, 1;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31]), "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]),
          "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]),
          "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]),
          "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]),
          "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]),
          "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63]), "+f"(sums[64]), "+f"(sums[65]),
          "+f"(sums[66]), "+f"(sums[67]), "+f"(sums[68]), "+f"(sums[69]), "+f"(sums[70]),
          "+f"(sums[71]), "+f"(sums[72]), "+f"(sums[73]), "+f"(sums[74]), "+f"(sums[75]),
          "+f"(sums[76]), "+f"(sums[77]), "+f"(sums[78]), "+f"(sums[79]), "+f"(sums[80]),
          "+f"(sums[81]), "+f"(sums[82]), "+f"(sums[83]), "+f"(sums[84]), "+f"(sums[85]),
          "+f"(sums[86]), "+f"(sums[87]), "+f"(sums[88]), "+f"(sums[89]), "+f"(sums[90]),
          "+f"(sums[91]), "+f"(sums[92]), "+f"(sums[93]), "+f"(sums[94]), "+f"(sums[95])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
};

// sums (64 x 256) = lhs (64 x 8) * rhs (8 x 256), added to sums unless `accumulate` is 0.
// Sources are descriptors of wgmma.cuh, contiguous along K: there are no others of 32 bits.
struct Wgmma256Tf32 {
  using Element = float;
  static constexpr int N = 256;
  static constexpr int REGISTERS = 128;

  template <int TRANSPOSE_LHS, int TRANSPOSE_RHS>
  __device__ __forceinline__ static void multiply(float (&sums)[REGISTERS], uint64_t lhs,
                                                  uint64_t rhs, int accumulate) {
    static_assert(TRANSPOSE_LHS == 0 && TRANSPOSE_RHS == 0, "TF32 lies along K");
    asm volatile(
        "{\n"
        ".reg .pred accumulate;\n"
        "setp.ne.b32 accumulate, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
        "%111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
        "%127}, "
        "%128, %129, accumulate, 1, 1;\n"
        "}\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31]), "+f"(sums[32]), "+f"(sums[33]), "+f"(sums[34]), "+f"(sums[35]),
          "+f"(sums[36]), "+f"(sums[37]), "+f"(sums[38]), "+f"(sums[39]), "+f"(sums[40]),
          "+f"(sums[41]), "+f"(sums[42]), "+f"(sums[43]), "+f"(sums[44]), "+f"(sums[45]),
          "+f"(sums[46]), "+f"(sums[47]), "+f"(sums[48]), "+f"(sums[49]), "+f"(sums[50]),
          "+f"(sums[51]), "+f"(sums[52]), "+f"(sums[53]), "+f"(sums[54]), "+f"(sums[55]),
          "+f"(sums[56]), "+f"(sums[57]), "+f"(sums[58]), "+f"(sums[59]), "+f"(sums[60]),
          "+f"(sums[61]), "+f"(sums[62]), "+f"(sums[63]), "+f"(sums[64]), "+f"(sums[65]),
          "+f"(sums[66]), "+f"(sums[67]), "+f"(sums[68]), "+f"(sums[69]), "+f"(sums[70]),
          "+f"(sums[71]), "+f"(sums[72]), "+f"(sums[73]), "+f"(sums[74]), "+f"(sums[75]),
          "+f"(sums[76]), "+f"(sums[77]), "+f"(sums[78]), "+f"(sums[79]), "+f"(sums[80]),
          "+f"(sums[81]), "+f"(sums[82]), "+f"(sums[83]), "+f"(sums[84]), "+f"(sums[85]),
          "+f"(sums[86]), "+f"(sums[87]), "+f"(sums[88]), "+f"(sums[89]), "+f"(sums[90]),
          "+f"(sums[91]), "+f"(sums[92]), "+f"(sums[93]), "+f"(sums[94]), "+f"(sums[95]),
          "+f"(sums[96]), "+f"(sums[97]), "+f"(sums[98]), "+f"(sums[99]), "+f"(sums[100]),
          "+f"(sums[101]), "+f"(sums[102]), "+f"(sums[103]), "+f"(sums[104]), "+f"(sums[105]),
          "+f"(sums[106]), "+f"(sums[107]), "+f"(sums[108]), "+f"(sums[109]), "+f"(sums[110]),
          "+f"(sums[111]), "+f"(sums[112]), "+f"(sums[113]), "+f"(sums[114]), "+f"(sums[115]),
          "+f"(sums[116]), "+f"(sums[117]), "+f"(sums[118]), "+f"(sums[119]), "+f"(sums[120]),
          "+f"(sums[121]), "+f"(sums[122]), "+f"(sums[123]), "+f"(sums[124]), "+f"(sums[125]),
          "+f"(sums[126]), "+f"(sums[127])
        : "l"(lhs), "l"(rhs), "r"(accumulate));
  }
};
