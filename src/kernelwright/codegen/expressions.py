"""Scalar expressions as C++ text, and the run-time scalars that they read."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelwright.codegen.spelling import (
    COMPUTED,
    HEADERS,
    ROW_QUOTIENT,
    SHORT,
    Spelling,
    Written,
    write_call,
    write_cast,
    write_literal,
)
from kernelwright.ir.expr import (
    Accumulator,
    Call,
    Coordinate,
    Expr,
    Literal,
    Operand,
    Size,
    Total,
    walk,
)
from kernelwright.ir.types import Dim, DType, ScalarType, TensorType, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A run-time scalar of a functor."""

    name: str
    type: str
    """C++ type in the struct."""
    reader: str
    """The method of `Arguments` that reads it: "real" or "integer"."""
    source: int | Dim
    """Index of the kernel's input, or the size it is."""


class ExpressionWriter:
    """Writes expressions; equal subexpressions that occur twice become a named constant.

    The text calls the operands as `name` does, the anchor's result `acc`, totals `total0`, ... and
    coordinates `row`, `column` or `coordinate3` (counted from the end). `spell` says how a call is
    spelled, None for as usual.
    """

    def __init__(
        self,
        inputs: Sequence[ValueType],
        roots: Iterable[Expr],
        name: Callable[[int], str],
        spell: Callable[[Call], Spelling | None] = lambda call: None,
    ) -> None:
        self._inputs = inputs
        self._name = name
        self._spell = spell
        self._counts = Counter(
            part for root in roots for part in walk(root) if isinstance(part, Call)
        )
        self._written: dict[Expr, Written] = {}
        self.members: dict[object, Member] = {}
        self.statements: list[str] = []
        """Definitions of shared subexpressions, in order."""

    def start_scope(self) -> None:
        """Forget the statements so far: what comes next is written in another function."""
        self._written.clear()
        self.statements = []

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
                return Written(str(expr))
            case Coordinate(dim):
                return Written(coordinate_name(dim))
            case Total():
                return Written(str(expr))
            case Literal(value, dtype):
                return write_literal(value, dtype)
            case Size(dim, dtype):
                return self._size(dim, dtype)
            case Operand(index, dtype):
                if isinstance(self._inputs[index], ScalarType):
                    return self._scalar(index, dtype)
                return Written(self._name(index))
            case Call("cast", (Operand(index, _),), dtype) if isinstance(
                self._inputs[index], ScalarType
            ):
                return self._scalar(index, dtype)
            case Call("cast", (Call(op, (arg,), DType.F32) as call,), dtype) if (
                dtype in HEADERS and op in SHORT and self._counts[call] == 1
            ):
                short = write_call(op, [self.write(arg)], DType.F32, DType.F32, SHORT[op])
                return write_cast(short, DType.F32, dtype)
            case Call("cast", (arg,), dtype) if dtype in HEADERS and _has_as_many_bits(arg, dtype):
                return self.write(arg)
            case Call("cast", (arg,), dtype):
                return write_cast(self.write(arg), arg.dtype, dtype)
            case Call(op, args, _):
                written = [self.write(arg) for arg in args]
                spelling = self._spell(expr) or _without_branch(expr)
                return write_call(op, written, args[-1].dtype, expr.dtype, spelling)

    def _scalar(self, index: int, dtype: DType) -> Written:
        """A call-time scalar, converted on the host to the type it is used in."""
        kind = self._inputs[index]
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


def _has_as_many_bits(expr: Expr, dtype: DType) -> bool:
    """Whether rounding to a 16-bit float leaves every value of `expr` as it is."""
    match expr:
        case Operand(_, kind):
            return kind is dtype
        case Call("cast", (arg,), DType.F32):
            return _has_as_many_bits(arg, dtype)
        case Call("cast", _, kind):
            return kind is dtype
        case Call("neg" | "abs", (arg,), _):
            return _has_as_many_bits(arg, dtype)
    return False


def _without_branch(call: Call) -> Spelling | None:
    """Spelling of a quotient by a constant, whose division would branch and take longer."""
    match call:
        case Call("div", (_, Literal(value, dtype))) if dtype.is_float and dtype is not DType.F64:
            # What a power of two divides is multiplied by the compiler.
            is_usual = value and math.isfinite(value) and abs(math.frexp(value)[0]) != 0.5
            return ROW_QUOTIENT if is_usual else None
    return None


def coordinate_name(dim: int) -> str:
    """What an expression calls the place along dimension `dim`, counted from the end."""
    return {-1: "column", -2: "row"}.get(dim, f"coordinate{-dim}")


def operand_name(index: int, first: int = 0) -> str:
    """`a`, `b`, ... for the tensors that a functor reads, of which `first` is the first."""
    number = index - first
    return chr(ord("a") + number) if number < 26 else f"operand{number}"


def element_parameters(
    inputs: Sequence[ValueType], read: Iterable[int], first: int = 0
) -> tuple[str, ...]:
    """`"float a"` for each tensor among these inputs; input `first` is called a."""
    kinds = ((index, inputs[index]) for index in sorted(read))
    return tuple(
        f"{COMPUTED[kind.dtype]} {operand_name(index, first)}"
        for index, kind in kinds
        if isinstance(kind, TensorType)
    )
