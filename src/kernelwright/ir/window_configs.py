"""How kernels of windows are made: poolings, and convolutions of single channels."""

from dataclasses import dataclass
from enum import StrEnum


class WindowWay(StrEnum):
    """How the threads of a pooling kernel divide the work."""

    ELEMENTS = "each thread has an element"
    WALK = "each thread walks along its columns"
    """What a plane of the source gives stays in registers until the last window that it is in."""
    LINES = "each block has rows of the result"
    """Windows are pooled over all dimensions but the last, and then along shared memory."""
    TILES = "each block has planes, or a band of one"
    """They come to shared memory as one run of memory, whatever the lengths of rows."""
    FLAT = "each thread has elements of the result"
    """Planes are runs of memory; what windows share comes from the cache."""
    BANDS = "each block has bands of planes in shared memory"
    """Threads go down their columns of a band; sums of a few rows of the result stay."""
    CHANNELS = "each thread has neighbouring channels"
    """Channels are last. Threads go down a few columns; the sums stay likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """Tunables of the window family."""

    way: WindowWay
    threads: int
    """Threads of a block."""
    vector: int = 1
    """Elements of the source that one access moves."""
    outputs: int = 1
    """Neighbouring elements of the result that a thread (WALK, BANDS) or a block (LINES) has, or
    columns of them (CHANNELS)."""
    steps: int = 1
    """Elements along the walk that a thread has (WALK, BANDS, CHANNELS); accesses that it has in
    flight (LINES)."""
    blocks: int = 1
    """Blocks that a multiprocessor holds at least."""
    planes: int = 1
    """Planes of the source that a thread of a walk has in flight."""
    ahead: int = 0
    """Steps of a walk before its use that a plane is asked for."""
    shared: int = 0
    """Bytes of shared memory of a block (TILES), at most (BANDS)."""
    store: int = 1
    """Elements of the result that one access writes (BANDS)."""

    def __str__(self) -> str:
        match self.way:
            case WindowWay.ELEMENTS:
                return f"{self.way}, {self.threads} threads"
            case WindowWay.FLAT:
                return f"{self.way}: {self.outputs}, {self.threads} threads"
            case WindowWay.TILES:
                return f"{self.way}: {self.shared // 1024} KB, {self.threads} threads"
            case WindowWay.WALK:
                own = (
                    f"{self.outputs} columns and up to {self.steps} steps, {self.planes} planes in "
                    f"flight, the cache asked {self.ahead} steps ahead"
                )
            case WindowWay.LINES:
                own = f"{self.outputs} columns, {self.steps} accesses in flight"
            case WindowWay.BANDS:
                own = (
                    f"{self.outputs} columns and up to {self.steps} rows for a thread, stores of "
                    f"{self.store}"
                )
            case WindowWay.CHANNELS:
                own = f"{self.outputs} columns and up to {self.steps} rows"
        each = f"{self.vector} elements each" if self.vector > 1 else "one element each"
        return f"{self.way}: {own}, accesses of {each}, {self.threads} threads"
