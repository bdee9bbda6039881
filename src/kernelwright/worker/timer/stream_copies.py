"""Results copied on the caller's stream right after a call, as whoever comes next finds them.

All of small results, parts of large ones. Of a call that waits for the device by itself the end is
on the host, and what the host does there counts as time outside of the call's events: so numbers
are drawn before, and records made after; in between there are the copies alone.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.worker.timer.driver import Driver
from kernelwright.worker.timer.memory import extent_of
from kernelwright.worker.timer.records import Part, SharedTensor

_LARGEST = 256 << 20
"""Bytes of results up to which all of them are copied."""
_PARTS, _PART = 16, 4 << 20
"""Parts of larger ones that are, and the bytes of each."""
_ALIGNMENT = 512

Results = Sequence[tuple[str, Tensor]]


@dataclass(frozen=True, slots=True)
class _Copy:
    name: str
    tensor: Tensor
    at: int
    """Bytes from the first element."""
    size: int
    place: int
    """Bytes into the memory for copies."""


class StreamCopies:
    """Memory for the copies of one module's results."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._random = random.SystemRandom()
        self._memory = 0
        self._size = 0
        self._handle, self._start = "", 0
        self._is_for_parts = False
        self._draws: list[tuple[float, float]] = []
        self._copies: list[_Copy] = []

    def prepare(self, results: Results) -> None:
        """Make room for such results."""
        size = sum(_aligned(_extent(tensor)) for _, tensor in results)
        if size == 0:
            return
        self._is_for_parts = size > _LARGEST
        self._size = _PARTS * _PART if self._is_for_parts else size
        self._memory = self._driver.allocate(self._size)
        self._handle, self._start = self._driver.share(self._memory)

    def draw(self) -> None:
        """Forget the copies of before, and choose the parts of the next call's results."""
        self._copies = []
        self._draws = [(self._random.random(), self._random.random()) for _ in range(_PARTS)]

    def take(self, results: Results) -> None:
        """Copy."""
        chosen = self._parts_of(results) if self._is_for_parts else self._all_of(results)
        for it in chosen:
            if it.size:
                self._driver.copy(self._memory + it.place, it.tensor.data_ptr() + it.at, it.size)
        self._copies = chosen

    def snapshot(self) -> tuple[SharedTensor, ...]:
        """All of the results; empty where they are large."""
        if self._is_for_parts:
            return ()
        return tuple(
            SharedTensor(
                name=it.name,
                dtype=str(it.tensor.dtype),
                shape=tuple(it.tensor.shape),
                strides=tuple(it.tensor.stride()),
                handle=self._handle,
                place=self._start + it.place,
            )
            for it in self._copies
        )

    def parts(self) -> tuple[Part, ...]:
        """Parts of large results, here and there."""
        if not self._is_for_parts:
            return ()
        return tuple(
            Part(
                copy=SharedTensor(
                    name=it.name,
                    dtype=str(torch.uint8),
                    shape=(it.size,),
                    strides=(1,),
                    handle=self._handle,
                    place=self._start + it.place,
                ),
                at=it.at,
            )
            for it in self._copies
        )

    def _all_of(self, results: Results) -> list[_Copy]:
        copies, place = [], 0
        for name, tensor in results:
            size = _extent(tensor)
            copies.append(_Copy(name, tensor, 0, size, place))
            place += _aligned(size)
        return copies if place <= self._size else []

    def _parts_of(self, results: Results) -> list[_Copy]:
        """Each begins anywhere in all the bytes of the results, and ends within one of them."""
        extents = [_extent(tensor) for _, tensor in results]
        copies = []
        for number, (which, where) in enumerate(self._draws):
            first = int(which * sum(extents))
            for (name, tensor), extent in zip(results, extents, strict=True):
                if first < extent:
                    size = min(_PART, extent)
                    at = int(where * (extent - size))
                    copies.append(_Copy(name, tensor, at, size, number * _PART))
                    break
                first -= extent
        return copies


def _extent(tensor: Tensor) -> int:
    return extent_of(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
