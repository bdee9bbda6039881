// A function whose loops the compiler makes vectors of, as wide as the processor has.
#pragma once

#if defined(__x86_64__)
#define KWEMU_VECTORS __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define KWEMU_VECTORS __attribute__((optimize("O3")))
#endif
