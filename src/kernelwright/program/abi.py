"""Launch packing: the 64-bit words of a launch, which kernels/common/launch.cuh reads.

    status = library.launch_scale(pack([out, x, 0.5, 3]))

Whoever launches from here packs with this: tuning, tests and benchmarks. An emitted file imports
nothing of the package and carries its own copy; a test compares the two.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Missing:
    """A tensor that the launcher may take and that is not there: its address is 0."""

    rank: int
    """Dimensions that the launcher expects; each has size 1 and stride 0."""


Argument = torch.Tensor | Missing | int | float
"""What a launcher takes: a tensor, its absence, a size or a real number."""


def pack(
    arguments: Sequence[Argument], *, device: int = 0, stream: int = 0, workspace: int = 0
) -> bytes:
    """Words of one launch: device index, stream, address of the workspace, then the arguments.

    A tensor is its address, rank, sizes and strides in elements; an integer is itself; a real
    number is the bits of a double.
    """
    words = [device, stream, workspace, *(word for it in arguments for word in _words(it))]
    return struct.pack(f"{len(words)}q", *words)


def _words(argument: Argument) -> Iterator[int]:
    match argument:
        case torch.Tensor():
            yield from (argument.data_ptr(), argument.dim(), *argument.shape, *argument.stride())
        case Missing(rank):
            yield from (0, rank, *[1] * rank, *[0] * rank)
        case float():
            yield from struct.unpack("q", struct.pack("d", argument))
        case _:
            yield int(argument)
