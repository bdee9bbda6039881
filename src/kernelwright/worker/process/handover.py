"""Results on their way from a candidate to the reference: memory of the device, or files.

Large results stay where they were computed; the reference reads them there while the candidate's
process is stopped. Small ones, and those that cannot be shared, are written to files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from kernelwright.worker.process.tensors import (
    TensorHeader,
    read_tensor,
    write_tensor,
    write_tensors,
)
from kernelwright.worker.timer.driver import DriverError
from kernelwright.worker.timer.memory import DTYPES, Memory, borrowed, share_tensor
from kernelwright.worker.timer.records import SharedTensor

Handed = TensorHeader | SharedTensor
"""Where one result is."""

MemoryMaker = Callable[[], Memory]

_LEAST_SHARED = 32 << 20
"""Bytes from which on a tensor stays on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """Body of "write": results of the latest run that the reference cannot read on the device."""

    shared: tuple[SharedTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReply:
    """Reply to "write": the same results, in their order."""

    files: tuple[TensorHeader, ...]


class Outbox:
    """What a candidate's process hands over, kept until it is cleared."""

    def __init__(self, memory: MemoryMaker | None) -> None:
        """`memory` makes the device's, when it is first needed; None where nothing is shared."""
        self._make_memory = memory
        self._memory: Memory | None = None
        self._kept: dict[SharedTensor, Tensor] = {}

    def clear(self) -> None:
        """Drop what was handed over: its memory may be used again."""
        self._kept.clear()

    def hand_over(
        self, folder: Path, prefix: str, tensors: Mapping[str, Tensor]
    ) -> tuple[Handed, ...]:
        """Where the reference finds `tensors`; files are made in `folder`."""
        shared = {name: self._shared(name, tensor) for name, tensor in tensors.items()}
        named = [
            (f"{prefix}-{number}.bin", name, tensor)
            for number, (name, tensor) in enumerate(tensors.items())
            if shared[name] is None
        ]
        written = {it.name: it for it in write_tensors(folder, named)} if named else {}
        return tuple(shared[name] or written[name] for name in tensors)

    def write(self, folder: Path, request: WriteRequest) -> WriteReply:
        """Files of what was shared; KeyError for what was not."""
        return WriteReply(
            files=tuple(
                write_tensor(folder, f"asked-{number}.bin", shared.name, self._kept[shared])
                for number, shared in enumerate(request.shared)
            )
        )

    def _shared(self, name: str, tensor: Tensor) -> SharedTensor | None:
        """How to find a tensor on the device; None if it has to be written."""
        if self._make_memory is None or tensor.numel() * tensor.element_size() < _LEAST_SHARED:
            return None
        if tensor.is_conj() or tensor.is_neg() or str(tensor.dtype) not in DTYPES:
            return None
        self._memory = self._memory or self._make_memory()
        try:
            shared = share_tensor(self._memory, name, tensor)
        except DriverError:  # memory of the host, or none of PyTorch's allocator
            return None
        self._kept[shared] = tensor
        return shared


@contextmanager
def taken(
    memory: MemoryMaker | None, folder: Path, handed: Sequence[Handed]
) -> Iterator[Mapping[str, Tensor]]:
    """The results by name, for the length of the block.

    Raises TensorFileError, NotShareableError or DriverError for what cannot be read.
    """
    found = {it.name: read_tensor(folder, it) for it in handed if isinstance(it, TensorHeader)}
    shared = [it for it in handed if isinstance(it, SharedTensor)]
    if not shared:
        yield found
        return
    if memory is None:
        raise DriverError("no memory can be shared here")
    with borrowed(memory(), shared) as tensors:
        yield found | {it.name: tensor for it, tensor in zip(shared, tensors, strict=True)}
