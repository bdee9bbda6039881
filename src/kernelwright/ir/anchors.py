"""Anchors of kernels: what the threads of a kernel do together with its expressions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.expr import Call, Expr, Literal, Total, walk
from kernelwright.ir.kinds import Conv, Reduction, TileReduction, Window
from kernelwright.ir.recurrence import Recurrent
from kernelwright.ir.types import Dim, DType, TensorType, ValueType


class Side(StrEnum):
    """Which part of a matrix is kept."""

    UPPER = "upper"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Triangle:
    """A result that is zero on one side of a diagonal, whatever the operands are."""

    kept: Side
    diagonal: int
    """Column minus row of the kept elements: at least this (UPPER) or at most this (LOWER)."""

    def __str__(self) -> str:
        return f"{self.kept} triangle from diagonal {self.diagonal}"


def untold_sizes(shape: Sequence[Dim], operands: Iterable[ValueType]) -> tuple[Dim | None, ...]:
    """Known sizes of `shape` that none of the tensors that broadcast to it has; None for others.

    They are in the text of a kernel, so kernels that differ in them cannot share it.
    """
    told = [False] * len(shape)
    for operand in operands:
        if isinstance(operand, TensorType):
            for at, own in enumerate(reversed(operand.shape), start=1):
                told[-at] |= own.text != "1"
    return tuple(
        dim if dim.is_static and dim.text != "1" and not has_it else None
        for has_it, dim in zip(told, shape, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One reduction of every row."""

    op: Reduction
    value: Expr
    """What an element gives, from Operands, Coordinates and the Totals of folds before this one."""
    totals: tuple[DType, ...]
    """Types of what it gives, `op.totals` of them."""


class Extent(StrEnum):
    """Which shape a result of a row program has."""

    ELEMENT = "element"
    """The program's shape."""
    ROW = "row"
    """One value for each row: the program's shape with size 1 along the reduced dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """One result of a row program."""

    value: Expr
    """From Operands and Totals; with extent ROW only Operands of size 1 along the row."""
    extent: Extent


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProgram:
    """Reductions and pointwise steps over rows: softmax, norms, losses, sums are instances.

    Operands broadcast to `shape` by trailing dimensions. A row is made of the elements that differ
    in `dims` only.
    """

    shape: tuple[Dim, ...]
    dims: tuple[int, ...]
    """Ascending, counted from 0; none empty."""
    folds: tuple[Fold, ...]
    results: tuple[RowResult, ...]

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Indices of folds that can be made together, without the totals of one another."""
        owner = [number for number, fold in enumerate(self.folds) for _ in fold.totals]
        level: list[int] = []
        for fold in self.folds:
            used = {owner[part.index] for part in walk(fold.value) if isinstance(part, Total)}
            level.append(1 + max((level[number] for number in used), default=-1))
        count = max(level, default=-1) + 1
        return tuple(
            tuple(number for number, own in enumerate(level) if own == at) for at in range(count)
        )

    def is_share(self, value: Expr) -> bool:
        """Whether this is exp(x - the largest x) by the sum of that, or 0: from 0 to 1.

        Both are from 0 on, and the sum from 1.
        """
        match value:
            case Call("where", (_, Literal(0.0), share)):
                return self.is_share(share)
            case Call("div", (element, divisor)):
                return (element, divisor) in self._exponentials()
        return False

    def _exponentials(self) -> Iterator[tuple[Expr, Expr]]:
        """What a sum of exponentials adds up, and the sum."""
        total = 0
        for fold in self.folds:
            if fold.op is Reduction.EXP_SUM:
                largest, dtype = Total(total, fold.totals[0]), fold.totals[1]
                term = Call("exp", (Call("sub", (fold.value, largest), dtype),), dtype)
                yield term, Total(total + 1, dtype)
            total += len(fold.totals)

    def result_shape(self, extent: Extent) -> tuple[Dim, ...]:
        """Shape of a result of this extent."""
        if extent is Extent.ELEMENT:
            return self.shape
        one = Dim.static(1)
        return tuple(one if at in self.dims else dim for at, dim in enumerate(self.shape))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        return (*(it.value for it in self.folds), *(it.value for it in self.results))

    @property
    def is_short(self) -> tuple[bool, ...]:
        """For each dimension along the row, whether the program's size is always 1."""
        return tuple(self.shape[at].text == "1" for at in self.dims)

    def are_ones(self, kind: ValueType) -> tuple[bool, ...]:
        """For each dimension along the row, whether the size of such an input is always 1."""
        rank = len(self.shape)
        return tuple(
            not isinstance(kind, TensorType)
            or at < rank - kind.rank
            or kind.shape[at - rank + kind.rank].text == "1"
            for at in self.dims
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledSource:
    """Windows over a prologue's values, and what the kernel reads to compute these."""

    window: Window
    source: tuple[Dim, ...]
    """Shape of what is pooled."""
    prologue_inputs: int
    """How many inputs, the first ones, belong to the prologue and broadcast to `source`. The others
    belong to the epilogue and broadcast to the result, but for the weights of a dot product, which
    come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of the first two inputs; a third one, if `has_bias`, is added by channel."""

    conv: Conv
    has_bias: bool
    rounding: Rounding
    sizes: tuple[int, ...]
    """Sizes of the first input at the capture."""
    why: str = field(default="", compare=False)
    """Why it is ours and what is known of the arithmetic, for people."""

    @property
    def outputs(self) -> tuple[Dim, ...]:
        """Results along each dimension that is convolved, where these are reduced; else none."""
        return self.conv.reduction.shape[2:] if self.conv.reduction else ()

    def __str__(self) -> str:
        conv = self.conv
        how = "transposed, " if conv.transposed else ""
        numbers = f"stride {conv.stride}, padding {conv.padding}, dilation {conv.dilation}"
        groups = f", {conv.groups} groups" if conv.groups > 1 else ""
        left = f"; {_of_reduction(conv.reduction)}" if conv.reduction else ""
        return f"{how}{numbers}{groups}; {self.rounding}{left}"


def _of_reduction(reduction: TileReduction) -> str:
    """Which results are not written, for people."""
    parts = []
    if reduction.over_windows is not None:
        parts.append(f"the {reduction.over_windows} of windows of {reduction.window}")
    if reduction.over_channels is not None:
        made = "" if reduction.result is None else f" and {reduction.result} of it"
        parts.append(f"the {reduction.over_channels} over channels{made}")
    if reduction.moments is not None:
        return f"moments of each channel of an image, {reduction.moments}"
    return ", then ".join(parts) + ", before anything is written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """Recurrent layers, and those of their results that a launch writes."""

    layers: Recurrent
    hidden: int
    """Units of a layer's direction."""
    results: tuple[int, ...]
    """Indices of the results, ascending."""
