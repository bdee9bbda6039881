// What the emulated device says of itself: an H200 (compute capability 9.0).
#pragma once

#include <cstddef>

namespace kwemu {

constexpr int kMajor = 9;
constexpr int kMinor = 0;
constexpr int kMultiprocessors = 132;
constexpr unsigned kBlocksPerCluster = 8;
constexpr unsigned kBlocksPerWideCluster = 16;  // with cudaFuncSetAttribute
constexpr int kThreadsPerBlock = 1024;
constexpr int kThreadsPerBlockZ = 64;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kGridYZ = 65535;
constexpr int kRegisters = 65536;
constexpr int kClockKilohertz = 1980000;
constexpr int kMemoryClockKilohertz = 3201000;
constexpr int kMemoryBusBits = 6144;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr int kConstantBytes = 64 << 10;
constexpr int kL2Bytes = 60 << 20;
constexpr int kSharedBytes = 48 << 10;        // without asking for more
constexpr int kSharedBytesOptIn = 227 << 10;  // with cudaFuncSetAttribute
constexpr int kSharedBytesPerMultiprocessor = 228 << 10;
constexpr size_t kGlobalBytes = size_t{141} << 30;

}  // namespace kwemu
