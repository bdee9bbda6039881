#include "tensor_map.h"

#include <cstring>
#include <initializer_list>

#include "kwemu/tensor_map.h"

#pragma GCC visibility push(default)

namespace kwemu {
namespace {

constexpr uint64_t kMostSize = uint64_t{1} << 32;
constexpr uint64_t kMostStride = uint64_t{1} << 40;
constexpr unsigned kMostBox = 256;
constexpr unsigned kMostStep = 8;
constexpr unsigned kMostPixels = 1024;
constexpr int kCornerBits[] = {16, 8, 5};  // signed, of 1, 2 and 3 dimensions of pixels

unsigned bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 4;
  }
}

unsigned span_of(CUtensorMapSwizzle swizzle) {
  constexpr unsigned kSpans[] = {16, 32, 64, 128};
  return kSpans[swizzle];
}

// What the driver asks of each dimension.
bool are_dimensions_valid(const TensorMap& map, const uint32_t* steps) {
  for (unsigned d = 0; d < map.rank; ++d) {
    if (map.sizes[d] == 0 || map.sizes[d] > kMostSize) return false;
    if (map.box[d] == 0 || map.box[d] > kMostBox) return false;
    if (steps[d] == 0 || steps[d] > kMostStep) return false;
  }
  for (unsigned d = 0; d + 1 < map.rank; ++d) {
    if (map.strides[d] % 16 != 0 || map.strides[d] >= kMostStride) return false;
  }
  return true;
}

// What the map has of the tensor itself; false where the driver refuses it.
bool describe_tensor(TensorMap& map, CUtensorMapDataType type, uint32_t rank, void* address,
                     const uint64_t* sizes, const uint64_t* strides, CUtensorMapSwizzle swizzle,
                     CUtensorMapFloatOOBfill fill) {
  const auto place = reinterpret_cast<uintptr_t>(address);
  if (rank == 0 || rank > TensorMap::kMaxRank) return false;
  if (address == nullptr || place % 16 != 0) return false;
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B || type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) {
    return false;
  }
  map.magic = TensorMap::kMagic;
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(bytes_of(type));
  map.span_bytes = static_cast<uint8_t>(span_of(swizzle));
  map.fills_nan = fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  map.address = place;
  map.type = static_cast<uint16_t>(type);
  for (unsigned d = 0; d < rank; ++d) {
    map.sizes[d] = sizes[d];
    if (d + 1 < rank) map.strides[d] = strides[d];
  }
  return !map.fills_nan || type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

// Rows of 16 bytes, that fit the swizzle.
bool are_rows_valid(const TensorMap& map, CUtensorMapSwizzle swizzle) {
  const bool is_swizzled = swizzle != CU_TENSOR_MAP_SWIZZLE_NONE;
  return map.row_bytes() % 16 == 0 && !(is_swizzled && map.row_bytes() > map.span_bytes);
}

// The bounding box's corners for W, H, D: false where they have more bits than there are, or leave
// no pixel between them.
bool set_corners(TensorMap& map, const int* lower, const int* upper) {
  const int most = 1 << (kCornerBits[map.spatial() - 1] - 1);
  for (unsigned d = 0; d < map.spatial(); ++d) {
    for (const int corner : {lower[d], upper[d]}) {
      if (corner < -most || corner >= most) return false;
    }
    if (static_cast<int64_t>(map.sizes[d + 1]) + upper[d] <= lower[d]) return false;
    map.lower[d] = static_cast<int16_t>(lower[d]);
    map.upper[d] = static_cast<int16_t>(upper[d]);
  }
  return true;
}

}  // namespace

#pragma GCC visibility push(hidden)
size_t TensorMap::rows() const {
  if (is_im2col) return box[1];
  size_t rows = 1;
  for (unsigned d = 1; d < rank; ++d) rows *= box[d];
  return rows;
}

bool TensorMap::is_real() const { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }

bool TensorMap::is_rounded() const { return type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32; }
#pragma GCC visibility pop

}  // namespace kwemu

extern "C" CUresult kwemu_cuTensorMapEncodeTiled(CUtensorMap* target, CUtensorMapDataType type,
                                                 cuuint32_t rank, void* address,
                                                 const cuuint64_t* sizes, const cuuint64_t* strides,
                                                 const cuuint32_t* box, const cuuint32_t* steps,
                                                 CUtensorMapInterleave interleave,
                                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                                 CUtensorMapFloatOOBfill fill) {
  using kwemu::TensorMap;
  static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap), "the map fits what holds it");
  const auto target_place = reinterpret_cast<uintptr_t>(target);
  if (target == nullptr || target_place % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  TensorMap map = {};
  if (!kwemu::describe_tensor(map, type, rank, address, sizes, strides, swizzle, fill)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  for (unsigned d = 0; d < rank; ++d) {
    if (box[d] > kwemu::kMostBox) return CUDA_ERROR_INVALID_VALUE;
    map.box[d] = static_cast<uint16_t>(box[d]);
    if (steps[d] > 1) return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!kwemu::are_dimensions_valid(map, steps)) return CUDA_ERROR_INVALID_VALUE;
  if (!kwemu::are_rows_valid(map, swizzle)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(target, &map, sizeof map);
  return CUDA_SUCCESS;
}

extern "C" CUresult kwemu_cuTensorMapEncodeIm2col(
    CUtensorMap* target, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower_corner,
    const int* upper_corner, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill) {
  using kwemu::TensorMap;
  const auto target_place = reinterpret_cast<uintptr_t>(target);
  if (target == nullptr || target_place % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (rank < 3) return CUDA_ERROR_INVALID_VALUE;
  TensorMap map = {};
  if (!kwemu::describe_tensor(map, type, rank, address, sizes, strides, swizzle, fill)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (channels == 0 || channels > kwemu::kMostBox) return CUDA_ERROR_INVALID_VALUE;
  if (pixels == 0 || pixels > kwemu::kMostPixels) return CUDA_ERROR_INVALID_VALUE;
  map.is_im2col = 1;
  for (unsigned d = 0; d < rank; ++d) {
    map.box[d] = 1;
    map.steps[d] = static_cast<uint8_t>(steps[d]);
  }
  map.box[0] = static_cast<uint16_t>(channels);
  if (!kwemu::are_dimensions_valid(map, steps)) return CUDA_ERROR_INVALID_VALUE;
  map.box[1] = static_cast<uint16_t>(pixels);
  if (!kwemu::set_corners(map, lower_corner, upper_corner)) return CUDA_ERROR_INVALID_VALUE;
  if (!kwemu::are_rows_valid(map, swizzle)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(target, &map, sizeof map);
  return CUDA_SUCCESS;
}
