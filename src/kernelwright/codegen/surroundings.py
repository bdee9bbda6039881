"""What kernels that pool or scan have in common: expressions before and after, and variants."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.codegen.expressions import (
    ExpressionWriter,
    Member,
    coordinate_name,
    operand_name,
)
from kernelwright.codegen.functor import camel_case
from kernelwright.codegen.spelling import COMPUTED, STORED
from kernelwright.ir.expr import Coordinate, Expr, Operand, walk
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import DType, TensorType, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of the functor."""

    name: str
    result: str
    """C++ type that it returns."""
    parameters: tuple[str, ...]
    """After the place: `"float a"` for each operand that it reads, and the anchor's value."""
    statements: tuple[str, ...]
    """Coordinates and shared subexpressions."""
    value: str
    """What it returns."""
    reads: tuple[str, ...]
    """Stored types of the operands."""
    tensors: tuple[str, ...]
    """Names of the operands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The functor of the two expressions around an anchor."""

    name: str
    members: tuple[Member, ...]
    value: str
    """C++ type of what the anchor takes and gives."""
    methods: tuple[Method, Method]
    """`prologue` and `epilogue`."""
    tensors: tuple[str, ...]
    """Names of all tensor inputs, in order."""

    @property
    def types(self) -> str:
        """Template arguments for the operands of both."""
        return ", ".join(f"Reads<{', '.join(method.reads)}>" for method in self.methods)

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the tensors in the order of `types`."""
        return tuple(name for method in self.methods for name in method.tensors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A `__global__` function."""

    name: str
    function: str
    """Device function that it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compute that the launcher chooses from."""

    suffix: str
    why: str
    """What it is for."""
    template: str
    members: tuple[str, ...]
    """Declarations in its config, after `static constexpr`."""
    kernels: tuple[Device, ...]
    pointers: tuple[str, ...]
    """What the variant's members are initialised with."""
    blocks: int | None = None
    """Blocks that a multiprocessor holds, where the registers are to be limited."""


def surroundings(kernel: Kernel) -> Surroundings:
    """The functor of `kernel`."""
    before, after = kernel.expressions
    writer = ExpressionWriter(kernel.inputs, (before, after), operand_name)
    value = COMPUTED[before.dtype]
    prologue = _method(writer, kernel.inputs, "prologue", before, value, ())
    writer.start_scope()
    result = COMPUTED[kernel.output.dtype]
    epilogue = _method(writer, kernel.inputs, "epilogue", after, result, (value,))
    return Surroundings(
        name=camel_case(kernel.name),
        members=tuple(writer.members.values()),
        value=value,
        methods=(prologue, epilogue),
        tensors=tuple(
            operand_name(index)
            for index, kind in enumerate(kernel.inputs)
            if isinstance(kind, TensorType)
        ),
    )


def _method(
    writer: ExpressionWriter,
    inputs: Sequence[ValueType],
    name: str,
    expr: Expr,
    result: str,
    accumulators: tuple[str, ...],
) -> Method:
    operands = _operands(expr, inputs)
    names = [operand_name(index) for index in operands]
    value = writer.write(expr)
    dims = sorted({part.dim for part in walk(expr) if isinstance(part, Coordinate)})
    places = [f"const int64_t {coordinate_name(dim)} = at.from_end({-dim});" for dim in dims]
    return Method(
        name=name,
        result=result,
        parameters=(
            *(f"{kind} acc" for kind in accumulators),
            *(f"{COMPUTED[operands[index]]} {operand_name(index)}" for index in operands),
        ),
        statements=(*places, *writer.statements),
        value=value.text,
        reads=tuple(STORED[dtype] for dtype in operands.values()),
        tensors=tuple(names),
    )


def _operands(expr: Expr, inputs: Sequence[ValueType]) -> dict[int, DType]:
    """The tensors that an expression reads, by index, ascending."""
    found = sorted({part.index for part in walk(expr) if isinstance(part, Operand)})
    kinds = {index: inputs[index] for index in found}
    return {index: kind.dtype for index, kind in kinds.items() if isinstance(kind, TensorType)}
