#include "tensor_map.h"

#include <cstring>

#include "kwemu/tensor_map.h"

#pragma GCC visibility push(default)

namespace kwemu {
namespace {

constexpr uint64_t kMostSize = uint64_t{1} << 32;
constexpr uint64_t kMostStride = uint64_t{1} << 40;
constexpr unsigned kMostBox = 256;
constexpr unsigned kMostStep = 8;

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

}  // namespace

#pragma GCC visibility push(hidden)
size_t TensorMap::rows() const {
  size_t rows = 1;
  for (unsigned d = 1; d < rank; ++d) rows *= box[d];
  return rows;
}

bool TensorMap::is_real() const { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
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
  const auto place = reinterpret_cast<uintptr_t>(address);
  const auto target_place = reinterpret_cast<uintptr_t>(target);
  if (target == nullptr || target_place % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (rank == 0 || rank > TensorMap::kMaxRank) return CUDA_ERROR_INVALID_VALUE;
  if (address == nullptr || place % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B || type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  TensorMap map = {};
  map.magic = TensorMap::kMagic;
  map.rank = static_cast<uint8_t>(rank);
  map.element_bytes = static_cast<uint8_t>(kwemu::bytes_of(type));
  map.span_bytes = static_cast<uint8_t>(kwemu::span_of(swizzle));
  map.fills_nan = fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  map.address = place;
  map.type = static_cast<uint16_t>(type);
  for (unsigned d = 0; d < rank; ++d) {
    map.sizes[d] = sizes[d];
    if (box[d] > kwemu::kMostBox) return CUDA_ERROR_INVALID_VALUE;
    map.box[d] = static_cast<uint16_t>(box[d]);
    if (d + 1 < rank) map.strides[d] = strides[d];
    if (steps[d] > 1) return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!kwemu::are_dimensions_valid(map, steps)) return CUDA_ERROR_INVALID_VALUE;
  if (map.fills_nan && !map.is_real()) return CUDA_ERROR_INVALID_VALUE;
  if (map.row_bytes() % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool is_swizzled = swizzle != CU_TENSOR_MAP_SWIZZLE_NONE;
  if (is_swizzled && map.row_bytes() > map.span_bytes) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(target, &map, sizeof map);
  return CUDA_SUCCESS;
}
