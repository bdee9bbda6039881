"""An allocator of PyTorch's that sees what is written outside of tensors; see guards.cpp.

guards = Guards.installed()          # before PyTorch has any memory of the device
module(*arguments)
overruns = guards.look()
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kernelwright.toolchain.launches import Launches
from kernelwright.toolchain.preloaded import library_of

_SOURCE = Path(__file__).with_name("guards.cpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """What was written to one guard zone."""

    side: str
    """"before" or "behind" the tensor."""
    first: int
    """Bytes between the tensor and the nearest one that was written."""
    last: int
    """Bytes from the tensor to the end of the farthest one."""
    count: int
    """Bytes that are no longer what they were."""
    size: int
    """Bytes of the tensor."""
    kernel: str
    """Which launch did it; empty where that was not asked."""


def guards_library() -> Path:
    """The library, compiled if it is not in the cache; raises as `library_of`."""
    return library_of(_SOURCE)


class Guards:
    """The library, loaded into this process."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.kw_guards_look.restype = ctypes.c_size_t
        self._library.kw_guards_said.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._library.kw_guards_said.restype = ctypes.c_size_t
        self._library.kw_guards_blame.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        self.looked_at = 0
        """Tensors, each as often as it was looked at."""

    @classmethod
    def installed(cls, path: Path) -> Self:
        """Those of the library at `path`, the allocator of this process from now on.

        RuntimeError where it has taken memory already.

        What PyTorch's own keeps count of is nothing then: a file may ask for it all the same.
        """
        import torch

        names = "kw_guards_allocate", "kw_guards_free"
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), *names)
        torch.cuda.memory.change_current_allocator(allocator)
        for name, nothing in _COUNTS.items():
            setattr(torch._C, name, lambda *_, it=nothing: it)
        return cls(path)

    def look(self) -> tuple[Overrun, ...]:
        """What was written outside of tensors since the last look; waits for the device."""
        self.looked_at = self._library.kw_guards_look()
        return self._take()

    @contextmanager
    def blaming(self, launches: Launches) -> Iterator[None]:
        """Look after every launch of a stranger's kernel in the block, which is named then."""
        blame = ctypes.cast(self._library.kw_guards_blame, ctypes.c_void_p)
        launches.tell(blame.value)
        try:
            yield
        finally:
            launches.tell(None)

    def blame(self, kernel: str) -> None:
        """A launch of `kernel` has happened, which nobody else tells of."""
        self._library.kw_guards_blame(kernel.encode(), None)

    def _take(self) -> tuple[Overrun, ...]:
        size = self._library.kw_guards_said(None, 0)
        buffer = ctypes.create_string_buffer(size)
        self._library.kw_guards_said(buffer, size)
        self._library.kw_guards_forget()
        return tuple(map(_read, buffer.value.decode(errors="replace").splitlines()))


_COUNTS: dict[str, Any] = {
    "_cuda_memoryStats": {},
    "_cuda_memorySnapshot": {"segments": [], "device_traces": []},
    "_cuda_resetPeakMemoryStats": None,
    "_cuda_resetAccumulatedMemoryStats": None,
}
"""Functions that another allocator than PyTorch's own raises in, and what they give instead."""


def _read(line: str) -> Overrun:
    side, first, last, count, size, kernel = line.split(" ", 5)
    return Overrun(
        side=side,
        first=int(first),
        last=int(last),
        count=int(count),
        size=int(size),
        kernel=kernel,
    )
