"""How kernels of running totals are made."""

from dataclasses import dataclass
from enum import StrEnum


class ScanWay(StrEnum):
    """Who has a row of a scan: the elements along the scanned dimension."""

    ROW_PER_BLOCK = "a block for each row"
    ROW_PER_WARP = "a warp for each row"
    ROW_IN_LANES = "a warp for each row, of which each lane has a run"
    COLUMNS = "a lane for each row"
    """Neighbours in memory are then elements of different rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    """Tunables of the scan family."""

    way: ScanWay
    width: int
    """Neighbouring elements that one access moves."""
    items: int
    """Accesses that a thread has in flight; twice as many with those of the next chunk."""
    warps: int
    """Warps of a block."""
    min_blocks: int = 0
    """With fewer rows than this, blocks share long rows."""
    stages: int = 0
    """Chunks of a row on their way to shared memory; 0: one, to registers."""
    resident: int | None = None
    """Blocks of a multiprocessor, where the registers are to be limited to what that leaves."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.warps

    @property
    def row_warps(self) -> int:
        """Warps that share a row that lies in one run of memory."""
        return self.warps if self.way is ScanWay.ROW_PER_BLOCK else 1

    def __str__(self) -> str:
        each = f"{self.width} elements each" if self.width > 1 else "one element each"
        ahead = f", {self.stages} chunks ahead" if self.stages > 0 else ""
        return f"{self.way}, {self.items} accesses of {each}, {self.threads} threads{ahead}"
