#pragma once
// Kernels that start while the one before them in the stream still runs (programmatic dependent
// launch, compute capability 9.0): blocks of a kernel begin where blocks of the one before have
// ended, and wait there. Every kernel waits before it touches memory, other than what no kernel
// that may still run writes.

#include <cuda_runtime.h>

// Returns when the kernel before is complete and its writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start as soon as every block has said so or ended. Blocks that wait keep
// others from a multiprocessor, so a block says it when it ends; sooner in kernels of few rows,
// which have few blocks, and where the next kernel need not wait.
__device__ __forceinline__ void let_next_kernel_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Clusters of `cluster` blocks that the device runs at one time; 0 where it does not say.
template <class Parameters>
int most_clusters(void (*kernel)(Parameters), int threads, int shared_bytes, int cluster) {
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(cluster));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status =
      cudaOccupancyMaxActiveClusters(&clusters, reinterpret_cast<const void*>(kernel), &config);
  return status == cudaSuccess ? clusters : 0;
}

inline bool has_dependent_launches() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

// Starts `kernel` in clusters of `cluster` blocks, as soon as the kernel before in the stream lets
// it.
template <class Parameters>
cudaError_t launch_dependent(void (*kernel)(Parameters), dim3 blocks, unsigned threads,
                             cudaStream_t stream, const Parameters& parameters,
                             int shared_bytes = 0, int cluster = 1) {
  constexpr int WITHOUT_REQUEST = 32 << 10;  // bytes; static variables have the rest of 48 KB
  if (shared_bytes > WITHOUT_REQUEST) {
    const cudaError_t status =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (has_dependent_launches()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  // A cluster of one block is a cluster all the same but for asynchronous stores
  // (store_quad_at_rank), and blocks begin faster without.
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, parameters);
}
