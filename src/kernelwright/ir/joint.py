"""Products of few rows in one launch: what they share is read, and made, once."""

from dataclasses import dataclass
from typing import ClassVar

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.expr import Expr
from kernelwright.ir.kinds import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProduct:
    """One result: of products of the shared rows with factors of one shape, element by element."""

    contract: Contract
    """Of the rows, whose letters are those of the result but for the last, and a factor."""
    factors: tuple[int, ...]
    """Indices of the kernel's inputs: the factor of each accumulator, in order."""
    epilogue: Expr
    """The element of the result from Accumulators and Operands, indices of the kernel's inputs."""

    def __str__(self) -> str:
        return f"{self.contract} by inputs {', '.join(map(str, self.factors))}"


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
        return (*own, *(it.epilogue for it in self.products))


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

    ROWS: ClassVar[int] = 16
    COLUMNS: ClassVar[int] = 8
    RUN: ClassVar[int] = 32

    def __str__(self) -> str:
        return (
            f"{self.ROWS} rows in shared memory, {self.COLUMNS} columns a turn of {self.warps} "
            f"warps, {self.loads * self.RUN} of K a warp at once, {self.resident} blocks a "
            "multiprocessor"
        )
