// The words of the device language that mean nothing to a host compiler.
// `__shared__` and `__noinline__` are the translator's: the first becomes a call, and the second
// is an attribute's spelling inside the standard library's headers.
#pragma once

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __nv_pure__
// As a demand, every instance repeats what it calls: one of convolutions took 20 seconds to
// compile, and takes 12.
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) static_cast<void>(0)
#define CUDART_CB
#define CUDARTAPI
