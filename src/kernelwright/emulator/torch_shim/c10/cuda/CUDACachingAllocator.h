// Device memory is the host's.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda::CUDACachingAllocator {

inline Allocator* get() { return GetAllocator(DeviceType::CPU); }
inline void emptyCache() {}
inline void recordStream(const DataPtr&, CUDAStream) {}
inline void* raw_alloc(size_t bytes) { return get()->raw_allocate(bytes); }
inline void raw_delete(void* memory) { get()->raw_deallocate(memory); }

}  // namespace c10::cuda::CUDACachingAllocator
