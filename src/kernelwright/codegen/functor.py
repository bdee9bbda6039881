"""A kernel's scalar expression as a C++ struct with a call operator."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernelwright.codegen.expressions import (
    ExpressionWriter,
    Member,
    element_parameters,
    operand_name,
)
from kernelwright.codegen.kernel_text import heading, read_inputs
from kernelwright.codegen.spelling import COMPUTED, STORED, Written, before_storing
from kernelwright.ir.expr import Coordinate, Expr, walk
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Functor:
    """The text of one functor and what it expects."""

    name: str
    members: tuple[Member, ...]
    is_located: bool
    """Whether its first two arguments are the row and the column of the element."""
    parameters: tuple[str, ...]
    """`"float x"` for each argument of the call operator, in order."""
    result: str
    """C++ type that it returns."""
    statements: tuple[str, ...]
    """Definitions of shared subexpressions."""
    value: str
    """What it returns."""


def functor(kernel: Kernel, first_element_input: int) -> Functor:
    """The functor of `kernel`; inputs before `first_element_input` are read as tiles, not here."""
    (epilogue,) = kernel.expressions
    elements = range(first_element_input, len(kernel.inputs))
    return stored(functor_of(epilogue, kernel, elements, first_element_input), kernel)


def stored(found: Functor, kernel: Kernel) -> Functor:
    """The functor of what is stored, which is rounded then."""
    return replace(found, value=before_storing(Written(found.value), kernel.outputs[0].dtype).text)


def functor_of(
    expr: Expr, kernel: Kernel, elements: Iterable[int], first: int, suffix: str = ""
) -> Functor:
    """The functor of one of a kernel's expressions, which reads these inputs as elements.

    Its parameters are called a, b, ..., of which input `first` is a.
    """
    writer = ExpressionWriter(kernel.inputs, (expr,), lambda index: operand_name(index, first))
    value = writer.write(expr)
    factor = kernel.inputs[0] if kernel.anchor else None
    place = _place(expr)
    accumulator = (f"{COMPUTED[factor.dtype]} acc",) if isinstance(factor, TensorType) else ()
    parameters = element_parameters(kernel.inputs, elements, first)
    return Functor(
        name=camel_case(kernel.name) + suffix,
        members=tuple(writer.members.values()),
        is_located=bool(place),
        parameters=(*place, *accumulator, *parameters),
        result=COMPUTED[kernel.outputs[0].dtype],
        statements=tuple(writer.statements),
        value=value.text,
    )


def elementwise_fields(kernel: Kernel, tiles: int) -> dict[str, object]:
    """Fields of a template of kernels with one functor, which reads no input before `tiles`."""
    item = functor(kernel, tiles)
    elements = [
        (operand_name(index, tiles), kind.dtype)
        for index, kind in enumerate(kernel.inputs)
        if index >= tiles and isinstance(kind, TensorType)
    ]
    tensors = ["lhs", "rhs"][:tiles] + [name for name, _ in elements]
    return {
        **heading(kernel),
        "functor": item,
        "types": ", ".join(
            STORED[it] for it in (kernel.outputs[0].dtype, *(it for _, it in elements))
        ),
        "arguments": read_inputs(kernel, tensors, item.members),
        "tensors": tensors,
    }


def camel_case(name: str) -> str:
    """`linear_relu` -> `LinearRelu`."""
    return "".join(word.capitalize() for word in name.split("_"))


def _place(epilogue: Expr) -> tuple[str, ...]:
    """The parameters that say where the element stands, without names where it does not matter."""
    used = {part.dim for part in walk(epilogue) if isinstance(part, Coordinate)}
    if not used:
        return ()
    names = ((-2, "row"), (-1, "column"))
    return tuple(f"int64_t {name}" if dim in used else "int64_t" for dim, name in names)
