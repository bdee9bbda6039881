"""The plan: which kernels run, on what, in what order; the last stage before text."""

from dataclasses import dataclass, replace
from typing import TypeVar

from kernelwright.ir.anchors import Convolution, RowProgram, Triangle
from kernelwright.ir.calls import AtenCall
from kernelwright.ir.configs import Config
from kernelwright.ir.expr import Expr, Size, walk
from kernelwright.ir.graph import Graph
from kernelwright.ir.joint import JointProducts
from kernelwright.ir.kinds import Contract, Reduction, ViewMap
from kernelwright.ir.library_calls import EINSUM
from kernelwright.ir.types import Dim, TensorType, ValueType

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of ours, or the few of one launch: an anchor, or none, between two expressions."""

    name: str
    """After what it does, unique in the plan: `linear_relu_div`."""
    family: str
    """Row of the tables of families and of writers: `"gemm"`."""
    anchor: object | None
    """What its threads do together, a record that only the family knows: Contract, Scan,
    PooledSource, or a RowProgram, which has expressions of its own. None: nothing."""
    inputs: tuple[ValueType, ...]
    """Types of the inputs, in order; scalars are run-time values."""
    prologue: Expr | None = None
    """What the anchor takes, from Operands (indices into `inputs`); None: inputs as they are."""
    epilogue: Expr | None
    """The element of the result from Accumulator and Operands; None: the anchor says."""
    outputs: tuple[TensorType, ...]
    """Types of the results."""
    operators: tuple[str, ...]
    """ATen operators it replaces, in order."""
    config: Config
    sources: tuple[str, ...] = ()
    """`file:line` of the replaced operators in the user's file."""
    triangle: Triangle | None = None
    """The part of a product's result that the epilogue keeps, where it sets the rest to zero."""
    together: int = 1
    """Products of one left factor, alike in all else: `inputs` begin with that factor. Then come of
    each product in turn its right factor and what its epilogue reads; the expressions name those of
    the first. There is one output for each."""
    kept: Reduction | None = None
    """MAXIMUM or MINIMUM: of each row of a product's result that one element is written, and the
    result has one column."""
    pairs: bool = False
    """Whether a row program writes, or a product reads as its left factor, rows of numbers from 0
    to 1 as pairs of fp16 numbers where they are whole lines (`gemm_paired.cuh`)."""
    moments: bool = False
    """Whether moments of the result's columns are written besides, in parts of its rows, as the
    last output, or a row program begins with them, its last input (`column_moments.cuh`)."""
    serves_several_sizes: bool = False
    """Whether launches with other sizes than these run it as well, which its text has to know."""

    @property
    def output(self) -> TensorType:
        """Type of the only result."""
        (output,) = self.outputs[:-1] if self.makes_moments else self.outputs
        return output

    @property
    def makes_moments(self) -> bool:
        """Whether its last output are moments of the others' columns."""
        return self.moments and not isinstance(self.anchor, RowProgram)

    @property
    def operands(self) -> tuple[ValueType, ...]:
        """Types of the inputs that its expressions and its anchor read."""
        is_given = self.moments and not self.makes_moments
        return self.inputs[:-1] if is_given else self.inputs

    @property
    def is_whole(self) -> bool:
        """Whether all elements of a product's result are computed, and written."""
        return self.triangle is None and self.kept is None

    @property
    def one_product(self) -> "Kernel":
        """A kernel of the first of its products alone."""
        if self.together == 1:
            return self
        own = (len(self.inputs) - 1) // self.together
        inputs, outputs = self.inputs[: 1 + own], self.outputs[:1]
        return replace(self, inputs=inputs, outputs=outputs, together=1)

    @property
    def reads_transposed(self) -> bool:
        """Whether an input is known to lie along another dimension than the result."""
        return any(isinstance(it, TensorType) and it.is_transposed for it in self.inputs)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Everything it evaluates."""
        own = (it for it in (self.prologue, self.epilogue) if it is not None)
        anchor = self.anchor
        inner = anchor.expressions if isinstance(anchor, RowProgram | JointProducts) else ()
        return (*inner, *own)

    def anchored(self, kind: type[A]) -> A:
        """The anchor, which is of this kind."""
        assert isinstance(self.anchor, kind), f"{self.name} has {self.anchor} for an anchor"
        return self.anchor

    def configured(self, kind: type[A]) -> A:
        """The configuration, which is of this kind."""
        assert isinstance(self.config, kind), f"{self.name} is configured as {self.config}"
        return self.config


def sizes_used(kernel: Kernel) -> tuple[Dim, ...]:
    """Sizes that the kernel computes with and that are known at call time only, each once."""
    parts = (part for expr in kernel.expressions for part in walk(expr))
    sizes = dict.fromkeys(part.dim for part in parts if isinstance(part, Size))
    if isinstance(kernel.anchor, Convolution):
        sizes |= dict.fromkeys(kernel.anchor.outputs)
    return tuple(dim for dim in sizes if not dim.is_static)


# --- Steps -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Run a kernel of ours: its results have a Room, or are new contiguous tensors, or buffers that
    they update."""

    results: tuple[str, ...]
    """One for each of the kernel's outputs."""
    kernel: Kernel
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
    """Sizes of the operand. At others cuDNN may compute with fewer digits than the user's call."""
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
    def kernels(self) -> tuple[Kernel, ...]:
        """Our kernels, in launch order, each once."""
        found: dict[str, Kernel] = {}
        for step in self.steps:
            if isinstance(step, Launch):
                found.setdefault(step.kernel.name, step.kernel)
        return tuple(found.values())

    @property
    def kernels_to_write(self) -> tuple[Kernel, ...]:
        """`kernels`, those marked that launches with several sizes share."""
        sizes: dict[str, set[object]] = {}
        for step in self.steps:
            if isinstance(step, Launch):
                own = (step.kernel.inputs, step.kernel.outputs)
                sizes.setdefault(step.kernel.name, set()).add(own)
        return tuple(
            replace(it, serves_several_sizes=len(sizes[it.name]) > 1) for it in self.kernels
        )

    @property
    def left_to_pytorch(self) -> tuple[TorchCall | Einsum, ...]:
        """Calls that stay PyTorch's."""
        return tuple(step for step in self.steps if isinstance(step, TorchCall | Einsum))
