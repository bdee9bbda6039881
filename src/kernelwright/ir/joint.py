"""Products of few rows in one launch: what they share is read, and made, once."""

from dataclasses import dataclass
from typing import ClassVar

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Contract
from kernelwright.ir.types import Dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves:
    """How a result lies whose columns are computed two at a time, `distance` apart: those of each
    run of twice as many, as rotary embedding makes them of each other."""

    distance: int
    """Columns from one half of a run to the other, and in each."""
    shape: tuple[Dim, ...]
    """The result's, with the half as a dimension of its own."""
    half: int
    """That dimension, of size 2; the one after it may be one with it in the result."""
    inner: int
    """The dimension of a column within its half."""
    outer: int | None
    """That of the run; None where there is one."""
    rows: tuple[int | None, ...]
    """For each dimension of the rows the one that it is; None: its size is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProduct:
    """One result: of products of the shared rows, element by element."""

    contract: Contract
    """The rows, whose letters are those of the product but for the last, times a factor."""
    factors: tuple[int, ...]
    """Indices of the kernel's inputs: the factor of each accumulator, in order; of halves the one
    of both."""
    epilogues: tuple[Expr, ...]
    """The element of the result, or of each half of it, from Accumulators and Operands, indices of
    the kernel's inputs."""
    halves: Halves | None = None
    """None: the result is the product's."""

    @property
    def sums(self) -> int:
        """Accumulators of an element."""
        return len(self.factors) if self.halves is None else 2

    def __str__(self) -> str:
        by = f"{self.contract} by inputs {', '.join(map(str, self.factors))}"
        return by if self.halves is None else f"{by}, columns {self.halves.distance} apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProducts:
    """Products that have their first factor in common: one result for each of them."""

    rows: RowProgram | None
    """What makes the rows, of the kernel's first inputs; None: the first input is the rows."""
    row_inputs: int
    """How many of the kernel's inputs, the first ones, are what the rows are made of."""
    products: tuple[JointProduct, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        own = self.rows.expressions if self.rows is not None else ()
        return (*own, *(expr for it in self.products for expr in it.epilogues))


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """Tunables of products of few 16-bit rows in one launch."""

    loads: int
    """Runs of 32 elements along K of each column that a warp has under way."""
    warps: int
    """Warps of a block, which share K."""
    resident: int
    """Blocks that a multiprocessor has at one time."""
    multiprocessors: int
    room: int
    """Bytes of shared memory that the blocks of a multiprocessor have together."""
    held: int
    """Vectors of 8 elements of a row that a lane holds; 0: it reads them for each fold."""
    row_warps: int
    """Warps that make a row: one, or all where rows are few."""

    ROWS: ClassVar[int] = 16
    COLUMNS: ClassVar[int] = 8
    RUN: ClassVar[int] = 32

    def block_bytes(self, depth: int, rows: int, factors: int) -> int:
        """Bytes of shared memory of a block (`JointTile::shared_bytes`), and 1 KB besides."""
        under_way = self.loads * max(factors, 2) * self.warps * 32 * 16
        sums = 2 * self.warps * self.ROWS * self.COLUMNS * factors * 4
        pitch = (depth + 63) // 64 * 64 + 32
        return under_way + sums + min(rows, self.ROWS) * pitch * 2 + 1024

    def __str__(self) -> str:
        return (
            f"{self.ROWS} rows in shared memory, {self.COLUMNS} columns a turn of {self.warps} "
            f"warps, {self.loads * self.RUN} of K a warp at once, {self.resident} blocks a "
            "multiprocessor"
        )
