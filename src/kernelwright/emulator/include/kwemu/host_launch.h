// Launches through the runtime API instead of <<< >>>.
#pragma once

#include <tuple>
#include <utility>

#include "kwemu/host_api.h"
#include "kwemu/launch.h"
#include "kwemu/warp.h"

namespace kwemu {

template <class... Parameters, size_t... kIndices>
cudaError_t launch_packed(void (*kernel)(Parameters...), const Config& config, void** arguments,
                          std::index_sequence<kIndices...>, const char* file, int line) {
  return static_cast<cudaError_t>(
      launch("cudaLaunchKernel", file, line, config, kernel,
             *static_cast<std::decay_t<Parameters>*>(arguments[kIndices])...));
}

}  // namespace kwemu

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr, KWEMU_HERE) {
  return ::kwemu::launch_packed(kernel, ::kwemu::config(grid, block, shared_bytes, stream),
                                arguments, std::index_sequence_for<Parameters...>{}, file, line);
}

// A kernel whose type was cast away cannot be called.
inline cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t = 0,
                                    cudaStream_t = nullptr, KWEMU_HERE) {
  return static_cast<cudaError_t>(
      kwemu_unsupported_launch("cudaLaunchKernel of an untyped kernel", file, line));
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore = 0,
  cudaLaunchAttributeAccessPolicyWindow = 1,
  cudaLaunchAttributeCooperative = 2,
  cudaLaunchAttributeSynchronizationPolicy = 3,
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeClusterSchedulingPolicyPreference = 5,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6,
  cudaLaunchAttributeProgrammaticEvent = 7,
  cudaLaunchAttributePriority = 8
};

union cudaLaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned int x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  int priority;
};

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  char pad[8 - sizeof(cudaLaunchAttributeID)];
  cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned int numAttrs = 0;
};

namespace kwemu {

// Kernels run one after another; whether one relied on that is checked.
inline Config config(const cudaLaunchConfig_t& given) {
  Config result = config(given.gridDim, given.blockDim, given.dynamicSmemBytes, given.stream);
  for (unsigned i = 0; i < given.numAttrs; ++i) {
    const cudaLaunchAttributeValue& value = given.attrs[i].val;
    if (given.attrs[i].id == cudaLaunchAttributeClusterDimension) {
      result.cluster = dim3(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
    } else if (given.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      result.may_start_early = value.programmaticStreamSerializationAllowed != 0;
    }
  }
  return result;
}

inline bool is_cooperative(const cudaLaunchConfig_t& given) {
  for (unsigned i = 0; i < given.numAttrs; ++i) {
    if (given.attrs[i].id == cudaLaunchAttributeCooperative && given.attrs[i].val.cooperative) {
      return true;
    }
  }
  return false;
}

// Blocks of a multiprocessor, by shared memory and threads alone.
inline int resident_blocks(const cudaLaunchConfig_t& given) {
  const dim3& block = given.blockDim;
  const int by_threads = 2048 / static_cast<int>(block.x * block.y * block.z);
  const int by_memory = static_cast<int>((228 << 10) / (given.dynamicSmemBytes + 1024));
  return by_threads < by_memory ? by_threads : by_memory;
}

// Whether all blocks run at the same time. Those that wait give way to others in any launch.
inline bool runs_at_once(const cudaLaunchConfig_t& given) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const dim3& grid = given.gridDim;
  const auto blocks = uint64_t{grid.x} * grid.y * grid.z;
  return blocks <= static_cast<uint64_t>(multiprocessors * resident_blocks(given));
}

template <class... Parameters, size_t... kIndices>
cudaError_t launch_packed(void (*kernel)(Parameters...), const cudaLaunchConfig_t& given,
                          void** arguments, std::index_sequence<kIndices...>, const char* file,
                          int line) {
  return static_cast<cudaError_t>(
      launch(kwemu_kernel_name(reinterpret_cast<const void*>(kernel)), file, line, config(given),
             kernel, *static_cast<std::decay_t<Parameters>*>(arguments[kIndices])...));
}

}  // namespace kwemu

template <class... Parameters>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                                void** arguments, KWEMU_HERE) {
  if (::kwemu::is_cooperative(*config) && !::kwemu::runs_at_once(*config)) {
    return static_cast<cudaError_t>(720 /* cudaErrorCooperativeLaunchTooLarge */);
  }
  return ::kwemu::launch_packed(kernel, *config, arguments,
                                std::index_sequence_for<Parameters...>{}, file, line);
}

inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**, KWEMU_HERE) {
  return static_cast<cudaError_t>(
      kwemu_unsupported_launch("cudaLaunchKernelExC of an untyped kernel", file, line));
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto launch_converted = [&](Parameters... converted) {
    void* pointers[] = {const_cast<void*>(static_cast<const volatile void*>(&converted))...,
                        nullptr};
    return cudaLaunchKernelExC(config, kernel, pointers);
  };
  return launch_converted(std::forward<Arguments>(arguments)...);
}

// Clusters of this shape that the device holds at a time, by shared memory and threads alone.
template <class Kernel>
inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel,
                                                  const cudaLaunchConfig_t* config) {
  const dim3& shape = ::kwemu::config(*config).cluster;
  int multiprocessors = 0;
  const cudaError_t error =
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const int blocks = ::kwemu::resident_blocks(*config);
  *clusters = multiprocessors * blocks / static_cast<int>(shape.x * shape.y * shape.z);
  return error;
}

template <class Kernel>
cudaError_t cudaLaunchCooperativeKernel(Kernel, dim3, dim3, void**, size_t = 0,
                                        cudaStream_t = nullptr, KWEMU_HERE) {
  return static_cast<cudaError_t>(kwemu_unsupported_launch("a cooperative launch", file, line));
}
