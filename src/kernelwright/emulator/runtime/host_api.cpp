// The host's runtime API.
#include "kwemu/host_api.h"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "device_limits.h"
#include "runtime.h"

#pragma GCC visibility push(default)

namespace {

using kwemu::Runtime;

cudaError_t remember(cudaError_t error) {
  return static_cast<cudaError_t>(Runtime::instance().remember(error));
}

struct Event {
  std::chrono::steady_clock::time_point time;
};

}  // namespace

extern "C" {

cudaError_t kwemu_cudaMalloc(void** memory, size_t bytes) {
  if (memory == nullptr) return remember(cudaErrorInvalidValue);
  *memory = bytes > 0 ? kwemu::allocate_checked(bytes, "cudaMalloc") : nullptr;
  return bytes > 0 && *memory == nullptr ? remember(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t kwemu_cudaFree(void* memory) {
  kwemu::free_checked(memory);
  return cudaSuccess;
}

cudaError_t kwemu_cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memmove(to, from, bytes);
  Runtime::instance().finish_launches();
  return static_cast<cudaError_t>(Runtime::instance().fault());
}

cudaError_t kwemu_cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  Runtime::instance().finish_launches();
  return static_cast<cudaError_t>(Runtime::instance().fault());
}

cudaError_t kwemu_cudaGetLastError() {
  return static_cast<cudaError_t>(Runtime::instance().take_last_error());
}

cudaError_t kwemu_cudaPeekAtLastError() {
  return static_cast<cudaError_t>(Runtime::instance().last_error());
}

cudaError_t kwemu_cudaDeviceSynchronize() {
  Runtime::instance().finish_launches();
  return static_cast<cudaError_t>(Runtime::instance().fault());
}

const char* kwemu_cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define KWEMU_NAME(number, name, text) \
  case number:                         \
    return "cuda" #name;
    KWEMU_ERRORS(KWEMU_NAME)
#undef KWEMU_NAME
  }
  return "unrecognized error code";
}

const char* kwemu_cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define KWEMU_TEXT(number, name, text) \
  case number:                         \
    return text;
    KWEMU_ERRORS(KWEMU_TEXT)
#undef KWEMU_TEXT
  }
  return "unrecognized error code";
}

cudaError_t kwemu_cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : remember(cudaErrorInvalidDevice);
}

cudaError_t kwemu_cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return remember(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "NVIDIA H200 (emulated)");
  properties->totalGlobalMem = kwemu::kGlobalBytes;
  properties->sharedMemPerBlock = kwemu::kSharedBytes;
  properties->sharedMemPerBlockOptin = kwemu::kSharedBytesOptIn;
  properties->sharedMemPerMultiprocessor = kwemu::kSharedBytesPerMultiprocessor;
  properties->totalConstMem = kwemu::kConstantBytes;
  properties->regsPerBlock = properties->regsPerMultiprocessor = kwemu::kRegisters;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = kwemu::kThreadsPerBlock;
  properties->maxThreadsPerMultiProcessor = kwemu::kThreadsPerMultiprocessor;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = kwemu::kThreadsPerBlock;
  properties->maxThreadsDim[2] = kwemu::kThreadsPerBlockZ;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = kwemu::kGridYZ;
  properties->major = kwemu::kMajor;
  properties->minor = kwemu::kMinor;
  properties->multiProcessorCount = Runtime::instance().settings().multiprocessors;
  properties->l2CacheSize = kwemu::kL2Bytes;
  properties->concurrentKernels = 1;
  properties->clockRate = kwemu::kClockKilohertz;
  properties->memoryClockRate = kwemu::kMemoryClockKilohertz;
  properties->memoryBusWidth = kwemu::kMemoryBusBits;
  properties->maxBlocksPerMultiProcessor = kwemu::kBlocksPerMultiprocessor;
  return cudaSuccess;
}

cudaError_t kwemu_cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const std::map<int, int> attributes = {
      {cudaDevAttrMaxThreadsPerBlock, kwemu::kThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, kwemu::kThreadsPerBlock},
      {cudaDevAttrMaxGridDimX, 0x7fffffff},
      {cudaDevAttrMaxGridDimY, kwemu::kGridYZ},
      {cudaDevAttrMaxSharedMemoryPerBlock, kwemu::kSharedBytes},
      {cudaDevAttrTotalConstantMemory, kwemu::kConstantBytes},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, kwemu::kRegisters},
      {cudaDevAttrClockRate, kwemu::kClockKilohertz},
      {cudaDevAttrMultiProcessorCount, Runtime::instance().settings().multiprocessors},
      {cudaDevAttrL2CacheSize, kwemu::kL2Bytes},
      {cudaDevAttrMaxThreadsPerMultiProcessor, kwemu::kThreadsPerMultiprocessor},
      {cudaDevAttrComputeCapabilityMajor, kwemu::kMajor},
      {cudaDevAttrComputeCapabilityMinor, kwemu::kMinor},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kwemu::kSharedBytesPerMultiprocessor},
      {cudaDevAttrMaxRegistersPerMultiprocessor, kwemu::kRegisters},
      {cudaDevAttrCooperativeLaunch, 1},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, kwemu::kSharedBytesOptIn},
      {cudaDevAttrClusterLaunch, 1},
  };
  if (device != 0) return remember(cudaErrorInvalidDevice);
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return remember(cudaErrorInvalidValue);
  *value = found->second;
  return cudaSuccess;
}

cudaError_t kwemu_cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                          cudaDriverEntryPointQueryResult* found) {
  const std::map<std::string, void*> functions = {
      {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&cuTensorMapEncodeTiled)},
      {"cuTensorMapEncodeIm2col", reinterpret_cast<void*>(&cuTensorMapEncodeIm2col)},
  };
  const auto found_function = functions.find(symbol);
  const bool known = found_function != functions.end();
  *function = known ? found_function->second : nullptr;
  if (found != nullptr) {
    *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

cudaError_t kwemu_cudaEventCreate(cudaEvent_t* event) {
  *event = new Event;
  return cudaSuccess;
}

cudaError_t kwemu_cudaEventDestroy(cudaEvent_t event) {
  delete static_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t kwemu_cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  static_cast<Event*>(event)->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t kwemu_cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto elapsed = static_cast<Event*>(end)->time - static_cast<Event*>(start)->time;
  *milliseconds = std::chrono::duration<float, std::milli>(elapsed).count();
  return cudaSuccess;
}
}
