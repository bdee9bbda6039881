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

template <class Kernel>
cudaError_t cudaLaunchCooperativeKernel(Kernel, dim3, dim3, void**, size_t = 0,
                                        cudaStream_t = nullptr, KWEMU_HERE) {
  return static_cast<cudaError_t>(kwemu_unsupported_launch("a cooperative launch", file, line));
}
