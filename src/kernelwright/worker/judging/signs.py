"""What a candidate's text says of its kernels before anybody runs it."""

from pathlib import Path

_KERNELS = ("__global__", "triton", "cupy", "cpp_extension", "nvrtc", "ctypes", "numba", "cutlass")
"""What a text has in it that brings kernels of its own, or loads them."""
_GRAPHS = ("CUDAGraph", "cuda.graph", "make_graphed_callables", "reduce-overhead")
"""What a text has in it that captures CUDA graphs."""


def brings_kernels(text: str) -> bool:
    """Whether a candidate with this text may have kernels that are not PyTorch's."""
    return any(sign in text for sign in _KERNELS)


def may_bring_kernels(path: Path) -> bool:
    """Whether a file may have some; one that is still to be written, by us, does."""
    try:
        return brings_kernels(path.read_text(encoding="utf-8"))
    except OSError:
        return True


def may_capture_graphs(path: Path) -> bool:
    """Whether a file may replay graphs: memory that one uses is not freed. Ours does not."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return False
    return any(sign in text for sign in _GRAPHS)
