#pragma once
// Copies of boxes of a tensor by the tensor memory accelerator (compute capability 9.0): one thread
// asks, the bytes arrive at a barrier. What lies outside the tensor arrives as zeros.

#include <cuda.h>

#include <cstdint>

#include "bulk_copy.cuh"

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box of `map` whose first element is (x, y, z), innermost first, to `shared` (128-byte
// aligned).
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, int x, int y, int z,
                                         Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// The box of a 4-D tensor whose first element is (x, y, z, w).
__device__ __forceinline__ void copy_box_of_four(void* shared, const CUtensorMap* map, int x, int y,
                                                 int z, int w, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The same to all blocks of the cluster that `mask` names, at the same place in each, each at its
// own barrier.
__device__ __forceinline__ void copy_box_to_cluster(void* shared, const CUtensorMap* map, int x,
                                                    int y, int z, Barrier* barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(mask)
      : "memory");
}

// Brings the box of `map` to the L2.
__device__ __forceinline__ void prefetch_box(const CUtensorMap* map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x),
               "r"(y), "r"(z)
               : "memory");
}

// `bytes` of this block's shared memory, a multiple of 16, to shared memory of the cluster, and at
// the barrier there.
__device__ __forceinline__ void copy_to_cluster(uint32_t target, uint32_t source, int bytes,
                                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
      " [%0], [%1], %2, [%3];" ::"r"(target),
      "r"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

// To the same place in block `rank`, and at its barrier.
__device__ __forceinline__ void send_to_rank(const void* shared, int bytes, Barrier* barrier,
                                             int rank) {
  const uint32_t source = shared_address(shared);
  copy_to_cluster(address_at_rank(source, rank), source, bytes,
                  address_at_rank(shared_address(barrier), rank));
}

// The box from `shared` to the 4-D tensor of `map`; what lies outside the tensor goes nowhere. The
// thread that asks is the one that can wait (wait_bulk_stores_read).
__device__ __forceinline__ void store_box(const CUtensorMap* map, const void* shared, int x, int y,
                                          int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
  commit_bulk_stores();
}

// A tensor in device memory, innermost dimension first.
struct TensorBox {
  static constexpr int MAX_RANK = 4;

  CUtensorMapDataType type;
  int rank = 3;
  uint64_t sizes[MAX_RANK];        // elements
  uint64_t strides[MAX_RANK - 1];  // bytes, from the second dimension on: multiples of 16
  uint32_t box[MAX_RANK];          // elements
  CUtensorMapSwizzle swizzle;
};

// The driver's cuTensorMapEncodeTiled, which no library needs to be linked for.
using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
inline EncodeTensorMap find_encode_tensor_map() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                   &found);
#else
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  return found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTensorMap>(function)
                                              : nullptr;
}

// `data` must be a multiple of 16 bytes.
inline cudaError_t encode_map(CUtensorMap* map, void* data, const TensorBox& tensor) {
  static const EncodeTensorMap encode = find_encode_tensor_map();
  if (encode == nullptr) return cudaErrorNotSupported;
  const uint32_t steps[TensorBox::MAX_RANK] = {1, 1, 1, 1};
  const CUresult result =
      encode(map, tensor.type, static_cast<uint32_t>(tensor.rank), data, tensor.sizes,
             tensor.strides, tensor.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tensor.swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
