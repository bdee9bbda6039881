"""Builds kernels.cu and calls its entry points."""

import ctypes
import struct
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src" / "kernelwright" / "kernels"

GEMM_CONFIGS = (
    "128x128x16 8x8 s2 p512",
    "128x128x16 8x8 s3",
    "128x128x32 8x8 s2",
    "128x128x16 16x8 s2 p512",
    "128x128x16 8x16 s2 p512",
    "128x256x16 8x16 s3 p512",
    "256x128x16 16x8 s3 p512",
    "64x128x16 8x8 s3 p512",
    "64x64x16 4x4 s3 p512",
    "32x64x16 4x4 s3 p512",
    "32x32x32 4x4 s4 p512",
)
"""Tile, accumulators of a thread, stages, products per promotion."""
GENERAL_CONFIGS = ("64x64x16 4x4 s3 p512", "32x64x16 4x4 s3 p512", "32x32x32 4x4 s4 p512")
"""Those for any strides."""
LINEAR_CONFIGS = (
    "128x128x16 8x8 s2 p512",
    "128x128x32 8x8 s2",
    "128x256x16 8x16 s3 p512",
    "general 64x64x16 4x4 s3 p512",
)
"""Those of linear_relu_div."""
POINTWISE_CONFIGS = (
    "256x1x4",
    "256x2x4",
    "256x4x4",
    "512x1x4",
    "512x2x4",
    "1024x1x4",
    "128x1x4",
    "128x2x4",
)
"""Threads, accesses in flight, elements of one access."""
GENERAL = 4
"""The layout in which nothing is assumed."""


class Library:
    """The entry points of kernels.cu."""

    def __init__(self, folder: Path) -> None:
        target = folder / "kernels.so"
        major, minor = torch.cuda.get_device_capability()
        arch = f"{major}{minor}" + ("a" if major >= 9 else "")
        command = ["nvcc", "-std=c++17", "-O3", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
        command += ["-Xcompiler", "-fPIC", "-shared", f"-I{SOURCES}", "-o", str(target)]
        subprocess.run([*command, str(HERE / "kernels.cu")], check=True)
        self._entries = ctypes.CDLL(str(target))
        self._entries.error_name.restype = ctypes.c_char_p

    def __call__(self, name: str, *arguments: torch.Tensor | float | int) -> None:
        """Launch `name`; raise RuntimeError on a CUDA error."""
        stream = torch.cuda.current_stream().cuda_stream
        words = [torch.cuda.current_device(), stream, 0]
        for value in arguments:
            if isinstance(value, torch.Tensor):
                words += [value.data_ptr(), value.dim(), *value.shape, *value.stride()]
            elif isinstance(value, float):
                words += struct.unpack("q", struct.pack("d", value))
            else:
                words.append(value)
        status = getattr(self._entries, name)(struct.pack(f"{len(words)}q", *words))
        if status:
            raise RuntimeError(f"{name}: {self._entries.error_name(status).decode()}")


def factors(layout: int, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform [0, 1) factors lying as NN, NT, TN, TT, or with no unit stride."""
    if layout == GENERAL:
        lhs = torch.rand(m, 2 * k + 1, device="cuda")[:, 1::2][:, :k]
        return lhs, torch.rand(k, 3 * n, device="cuda")[:, ::3]
    lhs = torch.rand(k, m, device="cuda").t() if layout & 2 else torch.rand(m, k, device="cuda")
    rhs = torch.rand(n, k, device="cuda").t() if layout & 1 else torch.rand(k, n, device="cuda")
    return lhs, rhs


def admitted(layout: int, m: int, n: int) -> bool:
    """Whether vectors along M (N) divide it, where the layout relies on them."""
    return (layout not in (2, 3) or m % 4 == 0) and (layout not in (0, 2) or n % 4 == 0)


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius norm of the error over that of the exact result; NaN counts as infinite."""
    norm = exact.norm().item() or 1.0
    error = (actual.double() - exact).norm().item() / norm
    return error if error == error else float("inf")
