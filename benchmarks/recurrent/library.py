"""Builds recurrent.cu for a table of configs, a library for each, and calls its entry points."""

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
SOURCE = ROOT / "tests" / "kernels" / "recurrent" / "recurrent.cu"
HEADERS = (
    "bfloat16.cuh",
    "dependent_launch.cuh",
    "recurrent_launch.cuh",
    "wgmma_narrow_bf16.cuh",
)
NOTHING = [0, 3, 1, 1, 1, 0, 0, 0]


@dataclass(frozen=True, slots=True)
class Variant:
    """A config of recurrent_sm90.cuh: see recurrent_problem.cuh for the words."""

    cell: Literal["LSTM", "GRU", "RNN_TANH", "RNN_RELU"]
    directions: int
    cluster: int
    batch: int
    inputs: int
    planes: int
    stages: int
    stored: Literal["float", "__half", "__nv_bfloat16"] = "float"
    units: int = 16

    def __str__(self) -> str:
        return (
            f"{self.stored.strip('_')} {self.cell} d{self.directions} k{self.cluster} "
            f"b{self.batch} i{self.inputs} p{self.planes} s{self.stages} u{self.units}"
        )

    def text(self) -> str:
        """As C++."""
        numbers = (self.directions, self.cluster, self.batch, self.inputs, self.planes, self.stages)
        words = (
            self.stored,
            f"RecurrentCell::{self.cell}",
            *map(str, numbers),
            str(self.units),
        )
        return f"RecurrentConfig<{', '.join(words)}>"

    def file_name(self) -> str:
        """Of its library."""
        return str(self).replace(" ", "_") + ".so"


def build(variant: Variant, folder: Path) -> Path:
    """Compile with nvcc unless the library is there."""
    text = SOURCE.read_text().replace("CONFIGS", variant.text())
    return built(
        "".join(f'#include "{name}"\n' for name in HEADERS) + text,
        folder / variant.file_name(),
    )


class Recurrence:
    """One variant's launches of one case."""

    def __init__(self, library: Path, case: Case) -> None:
        self._entries = ctypes.CDLL(str(library))
        self._entries.recurrent_workspace.restype = ctypes.c_int64
        self._entries.recurrent_launch.restype = ctypes.c_int64
        self._entries.recurrent_clusters.restype = ctypes.c_int64
        self._case = case

    def clusters(self) -> int:
        """How many run at one time."""
        return int(self._entries.recurrent_clusters(ctypes.c_int64(0)))

    def prepare(
        self, module: torch.nn.Module, x: torch.Tensor, states: list[torch.Tensor],
        outs: list[torch.Tensor],
    ) -> bool:  # fmt: skip
        """Whether the variant takes the call; allocates its workspace."""
        weights = [tensor.detach() for tensor in module.parameters()]
        self._keep = (x, states, outs, weights)
        words = [0, self._case.layers, self._case.hidden, *_pack(x)]
        for tensors, count in ((states, 2), (outs, 3)):
            for tensor in tensors:
                words += _pack(tensor)
            words += NOTHING * (count - len(tensors))
        for tensor in weights:
            words += _pack(tensor)
        size = self._entries.recurrent_workspace(struct.pack(f"{len(words) + 3}q", 0, 0, 0, *words))
        if size < 0:
            return False
        self._workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._words = words
        return True

    def __call__(self) -> None:
        """Launch; raise RuntimeError on a CUDA error."""
        stream = torch.cuda.current_stream().cuda_stream
        head = (torch.cuda.current_device(), stream, self._workspace.data_ptr())
        packed = struct.pack(f"{len(self._words) + 3}q", *head, *self._words)
        status = self._entries.recurrent_launch(packed)
        if status:
            raise RuntimeError(f"CUDA error {status}")


def _pack(tensor: torch.Tensor) -> list[int]:
    return [tensor.data_ptr(), tensor.dim(), *tensor.shape, *tensor.stride()]
