#pragma once
// Copies of pixels by the tensor memory accelerator's mode im2col (compute capability 9.0): of
// output positions that follow each other, the input pixels that one tap of the filter meets.
//
// The tensor is channels last. Its bounding box holds the pixels that the first tap meets; a tap's
// offset moves all of them. What lies outside the tensor arrives as zeros, which is the padding.

#include <cuda.h>

#include <cstdint>

#include "bulk_copy.cuh"
#include "tma.cuh"

constexpr int MAX_SPATIAL = 3;

// Where pixels begin: W, H, D as far as there are, channel and image; and a tap's offsets.
struct PixelPlace {
  int channel, image;
  int at[MAX_SPATIAL];
  int offset[MAX_SPATIAL];
};

// The pixels of `map`, of SPATIAL dimensions, to `shared`: rows of a pixel's channels each.
template <int SPATIAL>
__device__ __forceinline__ void copy_pixels(void* shared, const CUtensorMap* map,
                                            const PixelPlace& place, Barrier* barrier) {
  const uint32_t to = shared_address(shared), full = shared_address(barrier);
  if constexpr (SPATIAL == 1) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5}], [%2], {%6};" ::"r"(to),
        "l"(map), "r"(full), "r"(place.channel), "r"(place.at[0]), "r"(place.image),
        "h"(static_cast<uint16_t>(place.offset[0]))
        : "memory");
  } else if constexpr (SPATIAL == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(map), "r"(full), "r"(place.channel), "r"(place.at[0]), "r"(place.at[1]),
        "r"(place.image), "h"(static_cast<uint16_t>(place.offset[0])),
        "h"(static_cast<uint16_t>(place.offset[1]))
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
        "l"(map), "r"(full), "r"(place.channel), "r"(place.at[0]), "r"(place.at[1]),
        "r"(place.at[2]), "r"(place.image), "h"(static_cast<uint16_t>(place.offset[0])),
        "h"(static_cast<uint16_t>(place.offset[1])), "h"(static_cast<uint16_t>(place.offset[2]))
        : "memory");
  }
}

// The box of `map` whose first pixel is `at` (W, H, D), with the channels from `channel` on, of one
// image: what the taps of neighbouring positions meet, once for all taps.
template <int SPATIAL>
__device__ __forceinline__ void copy_patch(void* shared, const CUtensorMap* map, int channel,
                                           const int (&at)[MAX_SPATIAL], int image,
                                           Barrier* barrier) {
  static_assert(SPATIAL == 2 || SPATIAL == 3, "a patch has rows");
  const uint32_t to = shared_address(shared), full = shared_address(barrier);
  if constexpr (SPATIAL == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
        "l"(map), "r"(full), "r"(channel), "r"(at[0]), "r"(at[1]), "r"(image)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
        "l"(map), "r"(full), "r"(channel), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(image)
        : "memory");
  }
}

// Bits of the bounding box's corners, which have a sign, and of the offsets, which have none.
constexpr int corner_bits(int spatial) { return spatial == 1 ? 16 : spatial == 2 ? 8 : 5; }
constexpr int MAX_TRAVERSAL_STEP = 8;
constexpr int MAX_BOX_PIXELS = 256;  // of one copy here; the mode itself has 1024

// Pixels in device memory and the bounding box, W first.
struct PixelBox {
  int spatial;
  int64_t images, channels, pitch;  // elements
  int64_t sizes[MAX_SPATIAL];
  int64_t in_memory[MAX_SPATIAL];              // pixels from one row, or plane, to the next
  int lower[MAX_SPATIAL], upper[MAX_SPATIAL];  // corners, from the first and the last pixel
  int steps[MAX_SPATIAL];                      // from one position to the next
  int box_channels, box_pixels;
  CUtensorMapSwizzle swizzle;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  int element_bytes = 2;
};

// The driver's cuTensorMapEncodeIm2col, which no library needs to be linked for.
using EncodePixelMap = decltype(&cuTensorMapEncodeIm2col);
inline EncodePixelMap find_encode_pixel_map() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeIm2col", &function, 12000, cudaEnableDefault,
                                   &found);
#else
  cudaGetDriverEntryPoint("cuTensorMapEncodeIm2col", &function, cudaEnableDefault, &found);
#endif
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodePixelMap>(function)
                                              : nullptr;
}

// `data` and the pitch must be multiples of 16 bytes.
inline cudaError_t encode_pixels(CUtensorMap* map, void* data, const PixelBox& pixels) {
  static const EncodePixelMap encode = find_encode_pixel_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const int rank = pixels.spatial + 2;
  uint64_t sizes[MAX_SPATIAL + 2], strides[MAX_SPATIAL + 1];
  uint32_t steps[MAX_SPATIAL + 2];
  sizes[0] = pixels.channels;
  steps[0] = 1;
  strides[0] = pixels.pitch * pixels.element_bytes;
  for (int d = 0; d < pixels.spatial; ++d) {
    sizes[d + 1] = pixels.sizes[d];
    steps[d + 1] = pixels.steps[d];
    strides[d + 1] = strides[d] * pixels.in_memory[d];
  }
  sizes[rank - 1] = pixels.images;
  steps[rank - 1] = 1;
  const CUresult result =
      encode(map, pixels.type, static_cast<uint32_t>(rank), data, sizes, strides, pixels.lower,
             pixels.upper, static_cast<uint32_t>(pixels.box_channels),
             static_cast<uint32_t>(pixels.box_pixels), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             pixels.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

constexpr int MAX_BOX_SIDE = 256;

// fp16 pixels as a tensor of boxes: `columns` by `rows` pixels of one image, and of one D.
struct PatchBox {
  int spatial;
  int64_t images, channels;
  int64_t sizes[MAX_SPATIAL];
  int box_channels, columns, rows;
  CUtensorMapSwizzle swizzle;
};

inline cudaError_t encode_patch(CUtensorMap* map, void* data, const PatchBox& patch) {
  static const EncodeTensorMap encode = find_encode_tensor_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const int rank = patch.spatial + 2;
  uint64_t sizes[MAX_SPATIAL + 2], strides[MAX_SPATIAL + 1];
  const uint32_t steps[MAX_SPATIAL + 2] = {1, 1, 1, 1, 1};
  const uint32_t box[MAX_SPATIAL + 2] = {static_cast<uint32_t>(patch.box_channels),
                                         static_cast<uint32_t>(patch.columns),
                                         static_cast<uint32_t>(patch.rows), 1, 1};
  sizes[0] = patch.channels;
  strides[0] = patch.channels * 2;
  for (int d = 0; d < patch.spatial; ++d) {
    sizes[d + 1] = patch.sizes[d];
    strides[d + 1] = strides[d] * patch.sizes[d];
  }
  sizes[rank - 1] = patch.images;
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, static_cast<uint32_t>(rank), data, sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, patch.swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
