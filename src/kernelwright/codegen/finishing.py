"""What becomes of an anchor's result, in two steps: before its place matters, and after."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from kernelwright.ir.expr import (
    Accumulator,
    Call,
    Expr,
    Operand,
    has_coordinates,
    operations,
    walk,
)
from kernelwright.ir.types import DType

_FLOATS = (DType.F32, DType.F16, DType.BF16)
"""Types that a functor passes on as float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishing:
    """Two expressions in place of one: the second has the value of the first for its `acc`."""

    before: Expr
    after: Expr


def in_two_steps(expr: Expr, unplaced: Set[int]) -> Finishing | None:
    """The longest part that reads the result and these operands alone, and what is made of it.

    None where no operation can be done before: all that is made of the result itself needs another
    operand, or coordinates.
    """
    longest = list(dict.fromkeys(_unplaced_parts(expr, unplaced)))
    if len(longest) != 1:
        return None
    (before,) = longest
    if operations(before) == 0 or before.dtype not in _FLOATS:
        return None
    return Finishing(before=before, after=_with(expr, before, Accumulator(before.dtype)))


def _unplaced_parts(expr: Expr, unplaced: Set[int]) -> Iterator[Expr]:
    """The largest subexpressions with the result that read no operand but the unplaced ones."""
    parts = list(walk(expr))
    if not any(isinstance(part, Accumulator) for part in parts):
        return
    others = {part.index for part in parts if isinstance(part, Operand)} - unplaced
    if not others and not has_coordinates(expr):
        yield expr
        return
    assert isinstance(expr, Call)
    for arg in expr.args:
        yield from _unplaced_parts(arg, unplaced)


def _with(expr: Expr, part: Expr, instead: Expr) -> Expr:
    if expr == part:
        return instead
    if isinstance(expr, Call):
        return Call(expr.op, tuple(_with(arg, part, instead) for arg in expr.args), expr.dtype)
    return expr
