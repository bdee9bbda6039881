"""Builds conv.cu for a table of configs, a library for each, and calls its entry points."""

import ctypes
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from cases import Case

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import built

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "kernels" / "conv" / "conv.cu"


@dataclass(frozen=True, slots=True)
class Variant:
    """A config of conv_sm90.cuh: see conv_tile.cuh for the words."""

    spatial: int
    chunk: int
    planes: int = 1
    parts: int = 2
    width: int = 256
    schedule: Literal["SHARED", "ALTERNATE"] = "SHARED"
    stages: int = 4
    cluster: int = 1
    row_taps: Literal["APART", "FOLDED", "OVERLAPPING"] = "APART"
    patches: int = 0
    patch_bytes: int = 0
    store: Literal["LINES", "ROWS"] = "LINES"

    def __str__(self) -> str:
        alternates = self.schedule == "ALTERNATE"
        positions = self.width if alternates or self.parts == 2 else 2 * self.width
        return (
            f"{self.spatial}d {self.row_taps[0].lower()}{self.chunk} p{self.planes} "
            f"{64 * self.parts}x{positions}{'alt' if alternates else ''} "
            f"s{self.stages} k{self.cluster}{self._room()}"
        )

    def _room(self) -> str:
        patches = f" h{self.patches}x{self.patch_bytes}" if self.patches else ""
        return patches + (" rows" if self.store == "ROWS" else "")

    def text(self) -> str:
        """As C++."""
        words = (
            f"Wgmma{self.width}F16",
            *(str(n) for n in (self.spatial, self.chunk, self.planes, self.parts)),
            f"ConvSchedule::{self.schedule}",
            *(str(n) for n in (self.stages, self.cluster)),
            f"RowTaps::{self.row_taps}",
            *(str(n) for n in (self.patches, self.patch_bytes)),
            f"ConvStore::{self.store}",
        )
        return f"ConvConfig<{', '.join(words)}>"

    def file_name(self) -> str:
        """Of its library."""
        return str(self).replace(" ", "_") + ".so"


def build(variant: Variant, folder: Path) -> Path:
    """Compile with nvcc unless the library is there."""
    text = SOURCE.read_text().replace("CONFIGS", variant.text()).replace("ELEMENT", "float")
    return built(
        '#include "conv_launch.cuh"\n#include "wgmma_f16.cuh"\n' + text,
        folder / variant.file_name(),
    )


class Convolution:
    """One variant's launches of one case."""

    def __init__(self, library: Path, case: Case) -> None:
        self._entries = ctypes.CDLL(str(library))
        self._entries.conv_workspace.restype = ctypes.c_int64
        self._entries.conv_launch.restype = ctypes.c_int64
        self._case = case

    def prepare(self, out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> bool:
        """Whether the variant takes the call; allocates its workspace."""
        case, n = self._case, self._case.spatial
        bias = torch.zeros(out.shape[1], device="cuda")
        words = [0, int(case.transposed), case.groups]
        for kind in (case.stride, case.padding, case.dilation):
            words += [*reversed(kind[:n]), *[0] * (3 - n)]
        for tensor in (out, x, weight, bias):
            words += [tensor.data_ptr(), tensor.dim(), *tensor.shape, *tensor.stride()]
        self._keep = (out, x, weight, bias)
        size = self._entries.conv_workspace(struct.pack(f"{len(words) + 3}q", 0, 0, 0, *words))
        if size < 0:
            return False
        self._workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        head = (torch.cuda.current_device(), stream, self._workspace.data_ptr())
        self._words = struct.pack(f"{len(words) + 3}q", *head, *words)
        return True

    def __call__(self) -> None:
        """Launch; raise RuntimeError on a CUDA error."""
        status = self._entries.conv_launch(self._words)
        if status:
            raise RuntimeError(f"CUDA error {status}")
