"""From source text to something that runs: toolchains, the cache, CUDA builds, the emulator."""
