"""Rules on scalar expressions. Each is exact in IEEE arithmetic, for NaN, Inf and -0.0 too."""

import operator
import struct
from collections.abc import Callable
from math import copysign, inf, isfinite

from kernelwright.ir.expr import Call, Expr, Literal, Size
from kernelwright.ir.types import DType

Row = tuple[str, Callable[[Call], Expr | None]]


def _is(value: float, expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == value and not isinstance(expr.value, bool)


def _known_size(expr: Expr) -> Expr | None:
    # A size that is the same in every call is a number; float32 holds integers up to 2^24.
    if isinstance(expr, Size) and expr.dim.is_static:
        value = expr.dim.hint
        if not expr.dtype.is_float:
            return Literal(value, expr.dtype)
        if expr.dtype in (DType.F32, DType.F64) and abs(value) <= 2**24:
            return Literal(float(value), expr.dtype)
    return None


def _of_literals(call: Call) -> Expr | None:
    # Double precision rounded to float32 is what float32 arithmetic gives: 53 >= 2 * 24 + 2 bits.
    if call.op not in _FOLDED or call.dtype not in (DType.F32, DType.F64):
        return None
    if not all(isinstance(arg, Literal) and arg.dtype == call.dtype for arg in call.args):
        return None
    numbers = [_rounded(float(arg.value), call.dtype) for arg in call.args]  # type: ignore[union-attr]
    if call.op == "div" and numbers[1] == 0:
        return None
    value = _rounded(_FOLDED[call.op](*numbers), call.dtype)
    return Literal(value, call.dtype) if isfinite(value) else None


def _rounded(value: float, dtype: DType) -> float:
    if dtype is DType.F64 or not isfinite(value):
        return value
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return copysign(inf, value)


_FOLDED: dict[str, Callable[..., float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
}


def _cast_to_same(call: Call) -> Expr | None:
    # A conversion to the type a value already has changes nothing.
    same = call.op == "cast" and call.args[0].dtype == call.dtype
    return call.args[0] if same else None


def _times_one(call: Call) -> Expr | None:
    # x * 1 = x for every x: the exact product is x itself, which is representable.
    if call.op == "mul" and _is(1, call.args[1]):
        return call.args[0]
    if call.op == "mul" and _is(1, call.args[0]):
        return call.args[1]
    return None


def _over_one(call: Call) -> Expr | None:
    # x / 1 = x for the same reason.
    return call.args[0] if call.op == "div" and _is(1, call.args[1]) else None


def _minus_zero(call: Call) -> Expr | None:
    # x - (+0.0) = x, also for x = -0.0: (-0.0) - (+0.0) = -0.0. (x + 0.0 is not neutral there.)
    positive = _is(0, call.args[-1]) and str(call.args[-1].value) in ("0", "0.0")  # type: ignore[union-attr]
    return call.args[0] if call.op == "sub" and positive else None


def _plus_zero_of_integers(call: Call) -> Expr | None:
    # n + 0 = n. (-0.0 + 0.0 is 0.0.)
    is_integer = not (call.dtype.is_float or call.dtype.is_complex or call.dtype is DType.BOOL)
    return call.args[0] if call.op == "add" and is_integer and _is(0, call.args[1]) else None


def _to_the_one(call: Call) -> Expr | None:
    # pow(x, 1) = x by IEEE 754 (9.2.1).
    return call.args[0] if call.op == "pow" and _is(1, call.args[1]) else None


def _twice_negated(call: Call) -> Expr | None:
    # Negation only flips the sign bit.
    inner = call.args[0]
    if call.op == "neg" and isinstance(inner, Call) and inner.op == "neg":
        return inner.args[0]
    return None


def _idempotent(call: Call) -> Expr | None:
    # f(f(x)) = f(x) for projections.
    inner = call.args[0]
    once = call.op in ("relu", "abs", "floor", "ceil", "round", "trunc", "sign")
    return inner if once and isinstance(inner, Call) and inner.op == call.op else None


EXPRESSION_RULES: tuple[Row, ...] = (
    ("arithmetic on constants", _of_literals),
    ("conversion to the same type", _cast_to_same),
    ("times one", _times_one),
    ("divided by one", _over_one),
    ("minus zero", _minus_zero),
    ("integer plus zero", _plus_zero_of_integers),
    ("to the power one", _to_the_one),
    ("negated twice", _twice_negated),
    ("applied twice", _idempotent),
)


def simplify(expr: Expr) -> Expr:
    """Apply the rules bottom-up, once to each call; the result has the same value and dtype."""
    if not isinstance(expr, Call):
        return _known_size(expr) or expr
    call = Call(expr.op, tuple(simplify(arg) for arg in expr.args), expr.dtype)
    for _, rule in EXPRESSION_RULES:
        result = rule(call)
        if result is not None and result.dtype == call.dtype:
            return result
    return call
