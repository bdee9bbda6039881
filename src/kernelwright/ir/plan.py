"""The plan: which kernels run, on what, in what order; the last stage before text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from kernelwright.ir.calls import AtenCall
from kernelwright.ir.configs import Config, RowConfig, ScanConfig, WindowConfig
from kernelwright.ir.expr import Expr, Size, Total, walk
from kernelwright.ir.graph import Contract, Graph, Reduction, Scan, ViewMap, Window
from kernelwright.ir.library_calls import EINSUM
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One CUDA kernel: an anchor, or none, and what happens to each element of its result."""

    name: str
    """After what it does, unique in the plan: `linear_relu_div`."""
    anchor: Contract | None
    """The product of the first two inputs, or None for a pointwise kernel."""
    inputs: tuple[ValueType, ...]
    """Types of the inputs, in order; scalars are run-time values."""
    epilogue: Expr
    """The element of the result from Accumulator and Operands (indices into `inputs`)."""
    output: TensorType
    operators: tuple[str, ...]
    """ATen operators it replaces, in order."""
    config: Config
    sources: tuple[str, ...] = ()
    """`file:line` of the replaced operators in the user's file."""
    triangle: Triangle | None = None
    """The part of the result that the epilogue keeps, where it sets the rest to zero."""
    turned: bool = False
    """Whether an input is known to lie along another dimension than the result."""

    @property
    def family(self) -> str:
        """`"pointwise"` or `"gemm"`."""
        return "pointwise" if self.anchor is None else "gemm"

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of the results: one."""
        return (self.output,)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        return (self.epilogue,)


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


# --- Rows --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One reduction of every row."""

    op: Reduction
    value: Expr
    """Of an element, from Operands, Coordinates and the Totals of folds before this one."""
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

    def result_shape(self, extent: Extent) -> tuple[Dim, ...]:
        """Shape of a result of this extent."""
        if extent is Extent.ELEMENT:
            return self.shape
        one = Dim.static(1)
        return tuple(one if at in self.dims else dim for at, dim in enumerate(self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKernel:
    """A kernel, or the few that it takes for long rows, of one row program."""

    name: str
    program: RowProgram
    inputs: tuple[ValueType, ...]
    """Types of the Operands, in order; scalars are run-time values."""
    outputs: tuple[TensorType, ...]
    """One for each of the program's results."""
    operators: tuple[str, ...]
    config: RowConfig
    sources: tuple[str, ...] = ()
    family: ClassVar[str] = "rows"

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        folds = tuple(fold.value for fold in self.program.folds)
        return (*folds, *(result.value for result in self.program.results))

    @property
    def untold(self) -> tuple[Dim | None, ...]:
        """Sizes of the program's shape that no tensor has; None for the others."""
        return untold_sizes(self.program.shape, (*self.inputs, *self.outputs))

    @property
    def is_short(self) -> tuple[bool, ...]:
        """For each dimension along the row, whether the program's size is always 1."""
        return tuple(self.program.shape[at].text == "1" for at in self.program.dims)

    @property
    def are_ones(self) -> tuple[tuple[bool, ...], ...]:
        """For each input and each dimension along the row, whether its size is always 1."""
        rank = len(self.program.shape)
        return tuple(
            tuple(
                not isinstance(kind, TensorType)
                or at < rank - kind.rank
                or kind.shape[at - rank + kind.rank].text == "1"
                for at in self.program.dims
            )
            for kind in self.inputs
        )


# --- Scans and windows -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKernel:
    """Running totals of a pointwise expression, and what happens to each of them."""

    name: str
    scan: Scan
    inputs: tuple[ValueType, ...]
    """Types of the Operands, in order; they broadcast to the result's shape."""
    prologue: Expr
    """What is accumulated, from Operands."""
    epilogue: Expr
    """The element of the result from Accumulator and Operands."""
    output: TensorType
    operators: tuple[str, ...]
    config: ScanConfig
    sources: tuple[str, ...] = ()
    family: ClassVar[str] = "scan"

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of the results: one."""
        return (self.output,)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        return (self.prologue, self.epilogue)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowKernel:
    """Pooling of a pointwise expression, and what happens to each pooled value."""

    name: str
    window: Window
    source: tuple[Dim, ...]
    """Shape of what is pooled."""
    inputs: tuple[ValueType, ...]
    """Types of the Operands, in order: first those of the prologue, which broadcast to `source`,
    then those of the epilogue, which broadcast to the result's shape."""
    prologue_inputs: int
    """How many inputs belong to the prologue. The last input is the weights of a dot product."""
    prologue: Expr
    """What is pooled, from Operands."""
    epilogue: Expr
    """The element of the result from Accumulator and Operands."""
    output: TensorType
    operators: tuple[str, ...]
    config: WindowConfig
    sources: tuple[str, ...] = ()
    family: ClassVar[str] = "pooling"

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """Types of the results: one."""
        return (self.output,)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        return (self.prologue, self.epilogue)

    @property
    def untold(self) -> tuple[Dim | None, ...]:
        """Sizes of what is pooled that no tensor of the prologue has; None for the others."""
        return untold_sizes(self.source, self.inputs[: self.prologue_inputs])


AnyKernel = Kernel | RowKernel | ScanKernel | WindowKernel
"""What they share: name, family, inputs, outputs, expressions, operators, config, sources."""


def sizes_used(kernel: AnyKernel) -> tuple[Dim, ...]:
    """Sizes that the kernel computes with and that are known at call time only, each once."""
    parts = (part for expr in kernel.expressions for part in walk(expr))
    sizes = dict.fromkeys(part.dim for part in parts if isinstance(part, Size))
    return tuple(dim for dim in sizes if not dim.is_static)


# --- Steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Run a kernel of ours: its results have a Room, or are new contiguous tensors, or buffers that
    they update."""

    results: tuple[str, ...]
    """One for each of the kernel's outputs."""
    kernel: AnyKernel
    inputs: tuple[str, ...]

    @property
    def result(self) -> str:
        """The first result, which names the launch."""
        return self.results[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A part of a tensor: places along one dimension, all of the others."""

    whole: str
    dim: int
    start: Dim
    stop: Dim

    def __str__(self) -> str:
        return f"{self.whole}, {self.start} to {self.stop} of dimension {self.dim}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Memory for a value that launches write, at once or in parts: new, or part of another's."""

    result: str
    type: TensorType
    within: Within | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinterpret:
    """Another index map over a tensor that is there: no kernel, but a copy if Reshape must."""

    result: str
    input: str
    map: ViewMap
    type: TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelsLast:
    """When a convolution gets the operand that its call names, which is channels-last."""

    sizes: tuple[int, ...]
    """Of the operand. At others cuDNN may compute it with fewer digits than the user's call."""
    given: str
    """What the user's call reads; the operand itself where nothing else is in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCall:
    """A call left to PyTorch."""

    result: str
    call: AtenCall
    type: ValueType
    why: str
    """Why no kernel of ours does it."""
    mutates: tuple[str, ...] = ()
    source: str | None = None
    channels_last: ChannelsLast | None = None
    """For a convolution on such an operand; its result is channels-last at all sizes."""

    @property
    def name(self) -> str:
        """The operator, for people."""
        return self.call.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Einsum:
    """A contraction left to PyTorch that no single ATen call of the user stands for."""

    result: str
    contract: Contract
    inputs: tuple[str, str]
    type: TensorType
    why: str
    source: str | None = None

    @property
    def name(self) -> str:
        """The operator, for people."""
        return EINSUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Item `index` of a call that returned several."""

    result: str
    input: str
    index: int


Step = Launch | Room | Reinterpret | TorchCall | Einsum | Take


def reads(step: Step) -> tuple[str, ...]:
    """What a step reads, in order."""
    match step:
        case Launch(inputs=inputs) | Einsum(inputs=inputs):
            return inputs
        case Reinterpret(input=source) | Take(input=source):
            return (source,)
        case Room(within=within):
            return () if within is None else (within.whole,)
        case TorchCall(call=call, channels_last=planned):
            return call.refs if planned is None else (*call.refs, planned.given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole `forward` as steps in execution order."""

    graph: Graph
    """The rewritten graph: its leaves, returns, updates, symbols and guards still hold."""
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[AnyKernel, ...]:
        """Our kernels, in launch order, each once."""
        found: dict[str, AnyKernel] = {}
        for step in self.steps:
            if isinstance(step, Launch):
                found.setdefault(step.kernel.name, step.kernel)
        return tuple(found.values())

    @property
    def left_to_pytorch(self) -> tuple[TorchCall | Einsum, ...]:
        """Calls that stay PyTorch's."""
        return tuple(step for step in self.steps if isinstance(step, TorchCall | Einsum))
