"""A kernel's scalar expression as a C++ struct with a call operator."""

from collections import Counter
from dataclasses import dataclass

from kernelwright.codegen.spelling import COMPUTED, Written, write_call, write_cast, write_literal
from kernelwright.ir.expr import Accumulator, Call, Coordinate, Expr, Literal, Operand, Size, walk
from kernelwright.ir.plan import Kernel
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A run-time scalar of the functor."""

    name: str
    type: str
    """C++ type in the struct."""
    reader: str
    """The method of `Arguments` that reads it: "real" or "integer"."""
    source: int | Dim
    """Index of the kernel's input, or the size it is."""


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
    writer = _Writer(kernel, first_element_input)
    value = writer.write(kernel.epilogue)
    camel = "".join(word.capitalize() for word in kernel.name.split("_"))
    factor = kernel.inputs[0] if kernel.anchor else None
    place = _place(kernel.epilogue)
    accumulator = (f"{COMPUTED[factor.dtype]} acc",) if isinstance(factor, TensorType) else ()
    return Functor(
        name=camel,
        members=tuple(writer.members.values()),
        is_located=bool(place),
        parameters=(*place, *accumulator, *writer.parameters()),
        result=COMPUTED[kernel.output.dtype],
        statements=tuple(writer.statements),
        value=value.text,
    )


def _place(epilogue: Expr) -> tuple[str, ...]:
    """The parameters that say where the element stands, without names where it does not matter."""
    used = {part.dim for part in walk(epilogue) if isinstance(part, Coordinate)}
    if not used:
        return ()
    names = ((-2, "row"), (-1, "column"))
    return tuple(f"int64_t {name}" if dim in used else "int64_t" for dim, name in names)


class _Writer:
    """Writes expressions; equal subexpressions that occur twice become a named constant."""

    def __init__(self, kernel: Kernel, first: int) -> None:
        self._kernel = kernel
        self._first = first
        self._counts = Counter(part for part in walk(kernel.epilogue) if isinstance(part, Call))
        self._written: dict[Expr, Written] = {}
        self.members: dict[object, Member] = {}
        self.statements: list[str] = []

    def parameters(self) -> tuple[str, ...]:
        """One for each tensor that is read element by element."""
        return tuple(
            f"{COMPUTED[kind.dtype]} {operand_name(index, self._first)}"
            for index, kind in enumerate(self._kernel.inputs)
            if index >= self._first and isinstance(kind, TensorType)
        )

    def write(self, expr: Expr) -> Written:
        """The text of `expr`; may add statements and members."""
        if expr in self._written:
            return self._written[expr]
        text = self._write(expr)
        if isinstance(expr, Call) and self._counts[expr] > 1 and expr.op != "cast":
            name = f"{expr.op}_{len(self.statements)}"
            self.statements.append(f"const {COMPUTED[expr.dtype]} {name} = {text.text};")
            text = Written(name)
        self._written[expr] = text
        return text

    def _write(self, expr: Expr) -> Written:
        match expr:
            case Accumulator():
                return Written("acc")
            case Coordinate():
                return Written(str(expr))
            case Literal(value, dtype):
                return write_literal(value, dtype)
            case Size(dim, dtype):
                return self._size(dim, dtype)
            case Operand(index, dtype):
                kind = self._kernel.inputs[index]
                if isinstance(kind, ScalarType):
                    return self._scalar(index, dtype)
                return Written(operand_name(index, self._first))
            case Call("cast", (Operand(index, _),), dtype) if isinstance(
                self._kernel.inputs[index], ScalarType
            ):
                return self._scalar(index, dtype)
            case Call("cast", (arg,), dtype):
                return write_cast(self.write(arg), arg.dtype, dtype)
            case Call(op, args, _):
                return write_call(op, [self.write(arg) for arg in args], args[-1].dtype, expr.dtype)

    def _scalar(self, index: int, dtype: DType) -> Written:
        """A call-time scalar, converted on the host to the type it is used in."""
        kind = self._kernel.inputs[index]
        assert isinstance(kind, ScalarType)
        name = f"scalar{index}"
        if any(member.source == index for member in self.members.values()):
            name += f"_{dtype.value}"
        member = Member(
            name=name,
            type=COMPUTED[dtype],
            reader="real" if kind.dtype is DType.F64 else "integer",
            source=index,
        )
        return Written(self.members.setdefault((index, dtype), member).name)

    def _size(self, dim: Dim, dtype: DType) -> Written:
        if dim.is_static:
            return write_literal(dim.hint, dtype)
        member = Member(
            name=f"size{len(self.members)}", type=COMPUTED[dtype], reader="integer", source=dim
        )
        return Written(self.members.setdefault((dim, dtype), member).name)


def operand_name(index: int, first: int) -> str:
    """`a`, `b`, ... for the tensors that a functor reads."""
    number = index - first
    return chr(ord("a") + number) if number < 26 else f"operand{number}"
