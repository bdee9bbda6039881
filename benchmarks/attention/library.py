"""Builds attention.cu for a table of configs, a library for each, and calls its entry points."""

import ctypes
import struct
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "src" / "kernelwright" / "kernels"
SOURCE = ROOT / "tests" / "kernels" / "attention" / "attention.cu"
NOTHING = [0, 4, *[1] * 4, *[0] * 4]
"""A tensor that is not there, packed."""
_ELEMENTS = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16"}


@dataclass(frozen=True, slots=True)
class Variant:
    """A config of attention_sm90.cuh: see attention_problem.cuh for the words."""

    dtype: str
    depth: int
    width: int
    block_n: int
    stages: int
    consumers: int
    masking: str
    causal: bool
    few: int = 0

    def __str__(self) -> str:
        few = f" few{self.few}" * (self.few > 0)
        return f"n{self.block_n} s{self.stages} c{self.consumers}{few}"

    def text(self) -> str:
        """As C++."""
        numbers = (self.depth, self.width, self.block_n, self.stages, self.consumers)
        words = (_ELEMENTS[self.dtype], *map(str, numbers), f"Masking::{self.masking}")
        return f"AttentionConfig<{', '.join(words)}, {str(self.causal).lower()}, true, {self.few}>"

    def file_name(self) -> str:
        """Of its library."""
        sizes = f"{self.dtype}_{self.depth}_{self.width}_{self.masking}_{self.causal:d}"
        return f"{sizes}_{self}.so".replace(" ", "_")


def build(variant: Variant, folder: Path) -> Path:
    """Compile with nvcc unless the library is there."""
    target = folder / variant.file_name()
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    source, part = target.with_suffix(".cu"), target.with_suffix(".part")
    text = SOURCE.read_text().replace("CONFIGS", variant.text())
    source.write_text('#include "attention_few_launch.cuh"\n' + text)
    command = ["nvcc", "-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    command += ["-Xcompiler", "-fPIC", "-shared", *(f"-I{folder}" for folder in KERNELS.glob("*/"))]
    subprocess.run([*command, "-o", str(part), str(source)], check=True)
    part.rename(target)
    return target


def build_all(
    variants: list[Variant], folder: Path, pool: ThreadPoolExecutor
) -> dict[Variant, Future[Path]]:
    """Every library, as soon as the pool has a thread for it."""
    return {variant: pool.submit(build, variant, folder) for variant in variants}


def _pack(tensor: torch.Tensor | None) -> list[int]:
    if tensor is None:
        return NOTHING
    return [tensor.data_ptr(), tensor.dim(), *tensor.shape, *tensor.stride()]


class Launch:
    """One variant's launch of one call. RuntimeError if it does not take it."""

    def __init__(
        self, library: Path, operands: list[torch.Tensor], mask: torch.Tensor | None,
        result: torch.Tensor,
    ) -> None:  # fmt: skip
        self._entries = ctypes.CDLL(str(library))
        self._entries.attention_workspace.restype = ctypes.c_int64
        self._entries.attention_launch.restype = ctypes.c_int64
        self._words = [0]
        for tensor in (*operands, mask, result):
            self._words += _pack(tensor)
        size = self._entries.attention_workspace(self._packed(0))
        if size < 0:
            raise RuntimeError("the variant does not take the call")
        self._workspace = torch.empty(size + 256, dtype=torch.uint8, device="cuda")

    def _packed(self, address: int) -> bytes:
        head = (torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream, address)
        return struct.pack(f"{len(self._words) + 3}qd", *head, *self._words, 0.0)

    def __call__(self) -> None:
        """Launch; RuntimeError on a CUDA error."""
        address = (self._workspace.data_ptr() + 127) // 128 * 128
        status = self._entries.attention_launch(self._packed(address))
        if status:
            raise RuntimeError(f"CUDA error {status}")
