"""Masks that follow from where an element stands: two values, on the two sides of a diagonal."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Operand
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise, Unsqueeze, View
from kernelwright.ir.types import DType, TensorType
from kernelwright.rewrite.surroundings import Surroundings

_Value = float | int | bool


@dataclass(frozen=True, slots=True)
class Sides:
    """An element's value by its column minus its row."""

    most: int
    """Column minus row of what is on the lower side, at most."""
    lower: _Value
    upper: _Value


@dataclass(frozen=True, slots=True)
class _Linear:
    """A multiple of the column, one of the row, and a number."""

    column: int
    row: int
    number: int


_Known = Sides | _Linear
_MOST_DEPTH = 16


def sides_of(around: Surroundings, node: Node, value: Expr) -> Sides | None:
    """What a value of a node's operands is; None where it depends on anything else."""
    found = _known(around, node, value, 0, 0)
    return found if isinstance(found, Sides) else _constant(found)


def _constant(found: _Known | None) -> Sides | None:
    if isinstance(found, _Linear) and found.column == found.row == 0:
        return Sides(0, found.number, found.number)
    return found if isinstance(found, Sides) else None


def _known(around: Surroundings, node: Node, value: Expr, shift: int, depth: int) -> _Known | None:
    """A value of a node's operands, whose dimensions have `shift` more behind them."""
    match value:
        case Literal(bool() | float() as number):
            return Sides(0, number, number)
        case Literal(int() as number):
            return _Linear(0, 0, number)
        case Coordinate(dim):
            place = dim - shift
            return {-1: _Linear(1, 0, 0), -2: _Linear(0, 1, 0)}.get(place)
        case Operand(index):
            return _operand(around, around.node(node.inputs[index]), shift, depth + 1)
        case Call(op, arguments):
            known = [_known(around, node, it, shift, depth) for it in arguments]
            return _called(op, value, known)
    return None


def _operand(around: Surroundings, node: Node, shift: int, depth: int) -> _Known | None:
    if depth > _MOST_DEPTH or not isinstance(node.type, TensorType) or not around.may_move(node):
        return None
    match node.kind:
        case Pointwise(expr):
            return _known(around, node, expr, shift, depth)
        case View(Unsqueeze(dim)) if dim in (0, node.tensor.rank - 1):
            behind = shift + (dim > 0)
            return _operand(around, around.node(node.inputs[0]), behind, depth + 1)
    return None


def _called(op: str, value: Call, known: list[_Known | None]) -> _Known | None:
    match op, known:
        case "cast", [_Linear() as linear] if not value.dtype.is_float:
            return linear
        case "add" | "sub", [_Linear() as a, _Linear() as b]:
            sign = 1 if op == "add" else -1
            return _Linear(a.column + sign * b.column, a.row + sign * b.row,
                           a.number + sign * b.number)  # fmt: skip
        case "le" | "lt" | "ge" | "gt", [_Linear() as a, _Linear() as b]:
            return _compared(op, a, b)
        case "bitwise_not", _ if value.dtype is not DType.BOOL:
            return None
        case "cast", _ if not (value.dtype.is_float or value.dtype is DType.BOOL):
            return None
    sides = [_constant(it) for it in known]
    function = _FUNCTIONS.get(op)
    if function is None or any(it is None for it in sides):
        return None
    told = [it for it in sides if it is not None]
    places = {it.most for it in told if it.lower != it.upper}
    if len(places) > 1:
        return None
    return Sides(
        next(iter(places), 0),
        function(*(it.lower for it in told)),
        function(*(it.upper for it in told)),
    )


def _compared(op: str, a: _Linear, b: _Linear) -> Sides | None:
    column, row, number = a.column - b.column, a.row - b.row, a.number - b.number
    if column == row == 0:
        held = _FUNCTIONS[op](number, 0)
        return Sides(0, held, held)
    if (column, row) == (-1, 1):
        # x op 0 is 0 op' -x.
        op = {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt"}[op]
        column, row, number = 1, -1, -number
    if (column, row) != (1, -1):
        return None
    most = -number if op in ("le", "gt") else -number - 1
    return Sides(most, op in ("le", "lt"), op in ("ge", "gt"))


_FUNCTIONS: Mapping[str, Callable[..., _Value]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "eq": operator.eq,
    "ne": operator.ne,
    "le": operator.le,
    "lt": operator.lt,
    "ge": operator.ge,
    "gt": operator.gt,
    # True and 1.0 are equal and hold alike.
    "cast": lambda value: value,
    "logical_not": operator.not_,
    "bitwise_not": operator.not_,
    "logical_and": lambda a, b: bool(a) and bool(b),
    "bitwise_and": operator.and_,
    "logical_or": lambda a, b: bool(a) or bool(b),
    "bitwise_or": operator.or_,
    "where": lambda condition, yes, no: yes if condition else no,
}
"""Operations on numbers as Python has them; `bitwise_not` is that of bools."""
