// kernel<<<grid, block, bytes, stream>>>(arguments) as a function call.
#pragma once

#include <type_traits>
#include <utility>

#include "kwemu/abi.h"

namespace kwemu {

inline Config config(dim3 grid, dim3 block, size_t shared_bytes = 0, const void* stream = nullptr) {
  return Config{grid, block, shared_bytes, const_cast<void*>(stream)};
}

// Integral streams: frameworks hand them over as addresses.
inline Config config(dim3 grid, dim3 block, size_t shared_bytes, unsigned long stream) {
  return Config{grid, block, shared_bytes, reinterpret_cast<void*>(stream)};
}

// Calls `kernel(args...)` once per thread of the grid. The arguments are copied here, once, and
// handed to every thread by value. Returns the cudaError_t of the launch.
template <class Kernel, class... Args>
int launch(const char* name, const char* file, int line, const Config& config, Kernel kernel,
           Args&&... args) {
  auto thread = [&kernel, ... args = std::decay_t<Args>(std::forward<Args>(args))]()
                    KWEMU_UNCHECKED { kernel(args...); };
  auto body = [](void* closure) KWEMU_UNCHECKED { (*static_cast<decltype(thread)*>(closure))(); };
  return kwemu_launch(name, file, line, &config, body, &thread, sizeof thread);
}

}  // namespace kwemu
