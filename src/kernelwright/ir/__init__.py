"""Records that flow through the compiler. Knows no CUDA and no ATen semantics."""
