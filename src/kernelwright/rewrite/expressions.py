"""Rules on scalar expressions. Each is exact in IEEE arithmetic, for NaN, Inf and -0.0 too."""

from collections.abc import Callable

from kernelwright.ir.expr import Call, Expr, Literal

Row = tuple[str, Callable[[Call], Expr | None]]


def _is(value: float, expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value == value and not isinstance(expr.value, bool)


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
    ("conversion to the same type", _cast_to_same),
    ("times one", _times_one),
    ("divided by one", _over_one),
    ("minus zero", _minus_zero),
    ("to the power one", _to_the_one),
    ("negated twice", _twice_negated),
    ("applied twice", _idempotent),
)


def simplify(expr: Expr) -> Expr:
    """Apply the rules bottom-up, once to each call; the result has the same value and dtype."""
    if not isinstance(expr, Call):
        return expr
    call = Call(expr.op, tuple(simplify(arg) for arg in expr.args), expr.dtype)
    for _, rule in EXPRESSION_RULES:
        result = rule(call)
        if result is not None and result.dtype == call.dtype:
            return result
    return call
