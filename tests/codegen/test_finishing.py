"""Where an epilogue is cut: what reads no operand by its place comes first."""

import pytest

from kernelwright.codegen.finishing import in_two_steps
from kernelwright.ir.expr import Accumulator, Call, Coordinate, Expr, Literal, Operand
from kernelwright.ir.types import DType

F32, BF16 = DType.F32, DType.BF16
ACC = Accumulator(F32)


def _call(op: str, *args: Expr, dtype: DType = F32) -> Expr:
    return Call(op, args, dtype)


def _operand(index: int) -> Expr:
    return Operand(index, F32)


SCALED = _call("mul", ACC, _operand(2))
GATED = _call("mul", SCALED, _call("sigmoid", SCALED))


@pytest.mark.parametrize(
    ("expr", "before", "after"),
    [
        (_call("add", SCALED, _operand(3)), SCALED, _call("add", ACC, _operand(3))),
        # All that is made of it, however often it is read.
        (_call("add", GATED, _operand(3)), GATED, _call("add", ACC, _operand(3))),
        (
            _call("mul", _call("add", SCALED, _operand(3)), _operand(2)),
            SCALED,
            _call("mul", _call("add", ACC, _operand(3)), _operand(2)),
        ),
        (
            _call("add", _call("cast", SCALED, dtype=BF16), _operand(3)),
            _call("cast", SCALED, dtype=BF16),
            _call("add", Accumulator(BF16), _operand(3)),
        ),
        (
            _call("mul", SCALED, Coordinate(-1)),
            SCALED,
            _call("mul", ACC, Coordinate(-1)),
        ),
    ],
)
def test_what_no_place_matters_for_is_first(expr: Expr, before: Expr, after: Expr) -> None:
    made = in_two_steps(expr, {2})
    assert made is not None
    assert (made.before, made.after) == (before, after)


@pytest.mark.parametrize(
    "expr",
    [
        ACC,
        _call("add", ACC, _operand(3)),
        # The two parts are not the same.
        _call("add", _call("mul", SCALED, _operand(3)), _call("neg", ACC)),
        # No functor gives such a value on as float.
        _call("where", _call("gt", ACC, Literal(0.0, F32), dtype=DType.BOOL), _operand(3), SCALED),
    ],
)
def test_one_step_where_nothing_comes_first(expr: Expr) -> None:
    assert in_two_steps(expr, {2}) is None
