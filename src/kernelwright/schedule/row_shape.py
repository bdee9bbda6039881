"""Shape of a row program's rows at the captured sizes, which its configurations depend on."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kernelwright.ir.anchors import Extent, RowProgram
from kernelwright.ir.expr import Call, Operand, operations, walk
from kernelwright.ir.types import TensorType, ValueType
from kernelwright.machine import Machine

_FUNCTIONS = frozenset({"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "xlogy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """Sizes of a program's rows, and what a thread reads and computes for an element."""

    count: int
    length: int
    """Elements of a row."""
    inner: int
    """Neighbours in memory: elements of a run of a row, or rows."""
    is_along: bool
    """Whether neighbours in memory belong to one row."""
    runs: int
    """Runs of a row."""
    levels: int
    inputs: tuple[int, ...]
    """Bytes of an element of each input with as many elements as the program."""
    others: int
    """Inputs with fewer elements that are not one for each row."""
    differ: int
    """Those of them that differ among neighbours."""
    line: int
    """Neighbours of a row among which each of them is one element, or differs from one to the
    next; all of the row where there are none."""
    results: tuple[int, ...]
    """Bytes of an element of each result with as many elements as the program."""
    folds: int
    is_computed: bool
    """Whether a fold takes something else than what an input holds."""
    operations: int
    """Operations on an element, for all folds and results."""
    functions: int
    """Those of them that take some twenty instructions each."""
    access_bytes: int
    """Bytes of the widest access of a thread."""

    @property
    def width(self) -> int:
        """Elements that one access of the narrowest type moves, up to 8."""
        return min(8, self.access_bytes // min((*self.inputs, *self.results)))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of all inputs."""
        return self.length * sum(self.inputs)


def row_shape(program: RowProgram, inputs: Sequence[ValueType], machine: Machine) -> RowShape:
    """The shape of a program's rows."""
    sizes = [dim.hint for dim in program.shape]
    walked = [at for at, size in enumerate(sizes) if size > 1]
    is_along = bool(walked) and walked[-1] in program.dims
    inner = 1
    for at in reversed(walked):
        if (at in program.dims) != is_along:
            break
        inner *= sizes[at]
    length = prod(sizes[at] for at in program.dims)
    tensors = [kind for kind in inputs if isinstance(kind, TensorType)]
    whole = [kind for kind in tensors if kind.numel_hint == prod(sizes)]
    fewer = [kind for kind in tensors if kind not in whole]
    expressions = [*(fold.value for fold in program.folds)]
    expressions += [result.value for result in program.results]
    return RowShape(
        count=prod(sizes) // length if length else 0,
        length=length,
        inner=inner,
        is_along=is_along,
        runs=length // inner if is_along and inner else 1,
        levels=len(program.levels),
        inputs=tuple(kind.dtype.itemsize for kind in whole),
        others=sum(_varies_along(program, kind) for kind in fewer),
        differ=sum(_size_at(program, kind, walked[-1]) > 1 for kind in fewer) if walked else 0,
        line=_line(program, [kind for kind in fewer if _varies_along(program, kind)]),
        results=tuple(
            result.value.dtype.itemsize
            for result in program.results
            if result.extent is Extent.ELEMENT
        ),
        folds=len(program.folds),
        is_computed=not all(isinstance(fold.value, Operand) for fold in program.folds),
        access_bytes=machine.limits.access_bytes,
        operations=sum(operations(value) + _operands(value) for value in expressions),
        functions=sum(
            isinstance(part, Call) and part.op in _FUNCTIONS
            for value in expressions
            for part in walk(value)
        ),
    )


def _operands(value: object) -> int:
    return sum(isinstance(part, Operand) for part in walk(value))  # type: ignore[arg-type]


def _varies_along(program: RowProgram, kind: TensorType) -> bool:
    return any(_size_at(program, kind, at) > 1 for at in program.dims)


def _line(program: RowProgram, others: Sequence[TensorType]) -> int:
    """Elements of the innermost reduced dimensions along which none of these changes whether it
    varies."""
    line, innermost = 1, None
    for at in sorted(program.dims, reverse=True):
        if (size := program.shape[at].hint) == 1:
            continue
        varying = [_size_at(program, kind, at) > 1 for kind in others]
        if innermost not in (None, varying):
            break
        line, innermost = line * size, varying
    return line


def _size_at(program: RowProgram, kind: TensorType, at: int) -> int:
    """Along a dimension of the program; 1 where the tensor does not have that."""
    own = at - len(program.shape) + kind.rank
    return kind.shape[own].hint if own >= 0 else 1
