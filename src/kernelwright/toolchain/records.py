"""What building a candidate leaves: `Built`."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelwright.toolchain.ptxas import CubinReport


class Target(StrEnum):
    """What a candidate is built for."""

    CUDA = "cuda"
    """The GPU, through load_inline and nvcc."""
    CPU = "cpu"
    """The emulator, through the host's C++ compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A candidate whose import has succeeded once, so that its libraries are on the disk."""

    candidate: Path
    """The file with `ModelNew`."""
    target: Target
    folder: Path
    """Where its libraries lie."""
    seconds: float
    """Wall time of the import, torch's own not counted."""
    cached: bool
    """Whether the libraries were there before."""
    cubins: tuple[CubinReport, ...] = ()
    """What ptxas says of its kernels, where nvcc is present and the CUDA source is known."""
