// The host's runtime API, on the emulated device: one H200, whose memory is the host's.
#pragma once

#include <stddef.h>
#include <string.h>

#include <type_traits>

#include "kwemu/abi.h"
#include "kwemu/errors.h"
#include "kwemu/tensor_map.h"

#define KWEMU_HOST(name) __asm__("kwemu_" #name)

typedef void* cudaStream_t;
typedef void* cudaEvent_t;
typedef int CUdevice;
typedef void* CUstream;
typedef void* CUcontext;

#define cudaStreamDefault 0
#define cudaStreamNonBlocking 1
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))
#define cudaEventDefault 0
#define cudaEventDisableTiming 2
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};

enum cudaFuncCache {
  cudaFuncCachePreferNone,
  cudaFuncCachePreferShared,
  cudaFuncCachePreferL1,
  cudaFuncCachePreferEqual
};

enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxGridDimY = 6,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrTotalConstantMemory = 9,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxRegistersPerMultiprocessor = 82,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrClusterLaunch = 120
};

enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2
};
#define cudaEnableDefault 0x0
#define cudaEnableLegacyStream 0x1
#define cudaEnablePerThreadDefaultStream 0x2

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  size_t sharedMemPerBlockOptin;
  size_t sharedMemPerMultiprocessor;
  size_t totalConstMem;
  int regsPerBlock;
  int regsPerMultiprocessor;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int major;
  int minor;
  int multiProcessorCount;
  int l2CacheSize;
  int concurrentKernels;
  int clockRate;
  int memoryClockRate;
  int memoryBusWidth;
  int maxBlocksPerMultiProcessor;
  int cooperativeLaunch;
};

struct cudaFuncAttributes {
  size_t sharedSizeBytes;
  size_t constSizeBytes;
  size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int maxDynamicSharedSizeBytes;
};

cudaError_t cudaMalloc(void** memory, size_t bytes) KWEMU_HOST(cudaMalloc);
cudaError_t cudaFree(void* memory) KWEMU_HOST(cudaFree);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind)
    KWEMU_HOST(cudaMemcpy);
cudaError_t cudaMemset(void* memory, int value, size_t bytes) KWEMU_HOST(cudaMemset);
cudaError_t cudaGetLastError() KWEMU_HOST(cudaGetLastError);
cudaError_t cudaPeekAtLastError() KWEMU_HOST(cudaPeekAtLastError);
const char* cudaGetErrorName(cudaError_t error) KWEMU_HOST(cudaGetErrorName);
const char* cudaGetErrorString(cudaError_t error) KWEMU_HOST(cudaGetErrorString);
cudaError_t cudaDeviceSynchronize() KWEMU_HOST(cudaDeviceSynchronize);
cudaError_t cudaSetDevice(int device) KWEMU_HOST(cudaSetDevice);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device)
    KWEMU_HOST(cudaGetDeviceProperties);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device)
    KWEMU_HOST(cudaDeviceGetAttribute);
cudaError_t cudaEventCreate(cudaEvent_t* event) KWEMU_HOST(cudaEventCreate);
cudaError_t cudaEventDestroy(cudaEvent_t event) KWEMU_HOST(cudaEventDestroy);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr)
    KWEMU_HOST(cudaEventRecord);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end)
    KWEMU_HOST(cudaEventElapsedTime);

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* found = nullptr)
    KWEMU_HOST(cudaGetDriverEntryPoint);
inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* symbol, void** function, unsigned, unsigned long long flags,
    cudaDriverEntryPointQueryResult* found = nullptr) {
  return cudaGetDriverEntryPoint(symbol, function, flags, found);
}

template <class T>
inline cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
inline cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned = 1) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
inline cudaError_t cudaMallocHost(T** memory, size_t bytes, unsigned = 0) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <class T>
inline cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return cudaFree(memory); }
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(memory, value, bytes);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpy(reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(&symbol)) + offset,
                    from, bytes, kind);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes, kind);
}
template <class T>
inline cudaError_t cudaGetSymbolAddress(void** address, T& symbol) {
  *address = const_cast<std::remove_const_t<T>*>(&symbol);
  return cudaSuccess;
}

inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  return *version = CUDART_VERSION, cudaSuccess;
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  return *version = CUDA_VERSION, cudaSuccess;
}

inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, 0);
  *free_bytes = *total_bytes = properties.totalGlobalMem;
  return error;
}

// Everything runs at once and in order: streams and events have nothing to wait for.
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaDeviceSynchronize(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }

template <class Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute attribute, int value) {
  const auto* entry = reinterpret_cast<const void*>(kernel);
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed && value != 0) {
    return static_cast<cudaError_t>(kwemu_allow_wide_clusters(entry));
  }
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  return static_cast<cudaError_t>(kwemu_allow_shared(entry, static_cast<size_t>(value)));
}
template <class Kernel>
inline cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) {
  return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
  *attributes = {0, 0, 0, 1024, 32, 227 << 10};
  return cudaSuccess;
}

// What the threads alone would allow: registers are not known here.
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel,
                                                                 int threads_per_block, size_t) {
  *blocks = threads_per_block > 0 ? 2048 / threads_per_block : 0;
  if (*blocks > 32) *blocks = 32;
  return cudaSuccess;
}
template <class Kernel>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0,
                                                      int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  const cudaError_t error = cudaDeviceGetAttribute(grid, cudaDevAttrMultiProcessorCount, 0);
  *grid *= 2048 / *block;
  return error;
}
