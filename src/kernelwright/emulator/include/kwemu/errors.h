// cudaError_t: those codes that the emulator gives, and those that programs ask for by name.
#pragma once

// number, enumerator after `cuda`, what cudaGetErrorString says
#define KWEMU_ERRORS(X)                                                        \
  X(0, Success, "no error")                                                    \
  X(1, ErrorInvalidValue, "invalid argument")                                  \
  X(2, ErrorMemoryAllocation, "out of memory")                                 \
  X(3, ErrorInitializationError, "initialization error")                       \
  X(9, ErrorInvalidConfiguration, "invalid configuration argument")            \
  X(98, ErrorInvalidDeviceFunction, "invalid device function")                 \
  X(100, ErrorNoDevice, "no CUDA-capable device is detected")                  \
  X(101, ErrorInvalidDevice, "invalid device ordinal")                         \
  X(600, ErrorNotReady, "device not ready")                                    \
  X(700, ErrorIllegalAddress, "an illegal memory access was encountered")      \
  X(701, ErrorLaunchOutOfResources, "too many resources requested for launch") \
  X(702, ErrorLaunchTimeout, "the launch timed out and was terminated")        \
  X(710, ErrorAssert, "device-side assert triggered")                          \
  X(716, ErrorMisalignedAddress, "misaligned address")                         \
  X(719, ErrorLaunchFailure, "unspecified launch failure")                     \
  X(801, ErrorNotSupported, "operation not supported")                         \
  X(912, ErrorInvalidClusterSize, "invalid cluster size")                      \
  X(999, ErrorUnknown, "unknown error")

enum cudaError {
#define KWEMU_ENUMERATOR(number, name, text) cuda##name = number,
  KWEMU_ERRORS(KWEMU_ENUMERATOR)
#undef KWEMU_ENUMERATOR
};
typedef cudaError cudaError_t;
