"""Arithmetic, comparisons and logic: ATen names to expressions."""

import math

from kernelwright.capture.scope import NotPointwiseError, Rule, Scope, op, test
from kernelwright.ir.expr import Expr, Literal
from kernelwright.ir.types import DType


def unary(name: str) -> Rule:
    """An operation on `self`."""
    return lambda a: op(name, a.x("self"))


def binary(name: str) -> Rule:
    """An operation on `self` and `other`."""
    return lambda a: op(name, a.x("self"), a.x("other"))


def _rounding(name: str) -> Rule:
    return lambda a: op(name, a.x("self")) if a.compute.is_float else a.x("self")


def _round(a: Scope) -> Expr:
    """To a number of decimals: a multiple of a power of ten."""
    decimals = a.call.arguments.get("decimals", 0)
    if not decimals or not a.compute.is_float:
        return _rounding("round")(a)
    power = a.number(10.0 ** abs(decimals))
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return op(back, op("round", op(there, a.x("self"), power)), power)


def _compare(name: str) -> Rule:
    return lambda a: test(name, a.x("self"), a.x("other"))


def _logical(name: str) -> Rule:
    return lambda a: test(name, a.x("self", DType.BOOL), a.x("other", DType.BOOL))


def _scaled(a: Scope, name: str, factor: str = "alpha") -> Expr:
    """Argument `name` times argument `factor`, left out where it is 1."""
    factor_is_one = a.call.arguments.get(factor, 1) in (1, 1.0)
    return a.x(name) if factor_is_one else op("mul", a.x(factor), a.x(name))


def _div(a: Scope) -> Expr:
    mode = a.call.arguments.get("rounding_mode")
    name = {None: "div", "floor": "floor_div", "trunc": "trunc_div"}[mode]
    return op(name, a.x("self"), a.x("other"))


def _pow(a: Scope) -> Expr:
    """PyTorch computes these exponents without calling pow, and so more exactly."""
    exponent = a.call.arguments["exponent"]
    base = a.x("self")
    match exponent:
        case 1:
            return base
        case 2:
            return op("mul", base, base)
        case 3:
            return op("mul", op("mul", base, base), base)
    if base.dtype.is_float:
        match exponent:
            case 0.5:
                return op("sqrt", base)
            case -0.5:
                return op("rsqrt", base)
            case -1:
                return op("reciprocal", base)
            case -2:
                return op("reciprocal", op("mul", base, base))
    return op("pow", base, a.x("exponent"))


def _clamp(a: Scope) -> Expr:
    match a.has("min"), a.has("max"):
        case True, True:
            return op("clamp", a.x("self"), a.x("min"), a.x("max"))
        case True, False:
            return op("maximum", a.x("self"), a.x("min"))
        case _:
            return op("minimum", a.x("self"), a.x("max"))


def _lerp(a: Scope) -> Expr:
    """Computed from the nearer end, as at::lerp does."""
    start, end, weight = a.x("self"), a.x("end"), a.x("weight")
    length = op("sub", end, start)
    near = op("add", start, op("mul", weight, length))
    far = op("sub", end, op("mul", length, op("sub", a.number(1.0), weight)))
    if isinstance(weight, Literal):
        return near if abs(weight.value) < 0.5 else far
    return op("where", test("lt", op("abs", weight), a.number(0.5)), near, far)


def _addcmul(a: Scope) -> Expr:
    return op("add", a.x("self"), op("mul", _scaled(a, "tensor1", "value"), a.x("tensor2")))


def _addcdiv(a: Scope) -> Expr:
    quotient = op("div", a.x("tensor1"), a.x("tensor2"))
    return op("add", a.x("self"), op("mul", a.x("value"), quotient))


def _masked_fill(a: Scope) -> Expr:
    return op("where", a.x("mask", DType.BOOL), a.x("value"), a.x("self"))


def _triangle(compare: str) -> Rule:
    """The elements on one side of a diagonal, zero beyond it."""

    def rule(a: Scope) -> Expr:
        diagonal = a.call.arguments["diagonal"]
        if not isinstance(diagonal, int):
            raise NotPointwiseError
        above = op("sub", a.coordinate(-1), a.coordinate(-2))
        kept = test(compare, above, Literal(diagonal, DType.I64))
        return op("where", kept, a.x("self"), a.number(0.0))

    return rule


def _ignoring_nan(name: str) -> Rule:
    """fmax and fmin: a number wins over NaN."""

    def rule(a: Scope) -> Expr:
        x, y = a.x("self"), a.x("other")
        if not a.compute.is_float:
            return op(name, x, y)
        either = op("where", test("isnan", y), x, op(name, x, y))
        return op("where", test("isnan", x), y, either)

    return rule


def _heaviside(a: Scope) -> Expr:
    x = a.x("self")
    step = op("where", test("gt", x, a.number(0)), a.number(1), a.number(0))
    return op("where", test("eq", x, a.number(0)), a.x("values"), step)


def _float_power(a: Scope) -> Expr:
    return op("pow", a.x("self"), a.x("exponent"))


def _isclose(a: Scope) -> Expr:
    """Equal, or apart by no more than the tolerances allow."""
    x, y = a.x("self"), a.x("other")
    equal = test("eq", x, y)
    if a.compute.is_float and a.call.arguments["equal_nan"]:
        both = test("logical_and", test("isnan", x), test("isnan", y))
        equal = test("logical_or", equal, both)
    relative, absolute = a.call.arguments["rtol"], a.call.arguments["atol"]
    if not relative and not absolute:
        return equal
    if not a.compute.is_float:
        raise NotPointwiseError
    room = op("add", a.number(absolute), op("abs", op("mul", a.number(relative), y)))
    away = op("abs", op("sub", x, y))
    near = test("logical_and", finite(away), test("le", away, room))
    return test("logical_or", equal, near)


def finite(x: Expr) -> Expr:
    """True for a number that is neither infinite nor NaN."""
    return test("logical_not", test("logical_or", test("isinf", x), test("isnan", x)))


def _isfinite(a: Scope) -> Expr:
    return finite(a.x("self")) if a.compute.is_float else Literal(value=True, dtype=DType.BOOL)


def _is_infinite(compare: str) -> Rule:
    """isposinf and isneginf."""

    def rule(a: Scope) -> Expr:
        if not a.compute.is_float:
            return Literal(value=False, dtype=DType.BOOL)
        x = a.x("self")
        return test("logical_and", test("isinf", x), test(compare, x, a.number(0.0)))

    return rule


COMPARISONS: dict[str, Rule] = {
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "isclose": _isclose,
}
"""Computed in the type that the operands promote to."""

TESTS: dict[str, Rule] = {
    "isnan": lambda a: test("isnan", a.x("self")),
    "isinf": lambda a: test("isinf", a.x("self")),
    "isfinite": _isfinite,
    "isposinf": _is_infinite("gt"),
    "isneginf": _is_infinite("lt"),
    "signbit": lambda a: test("signbit", a.x("self")),
    "logical_not": lambda a: test("logical_not", a.x("self", DType.BOOL)),
}
"""Computed in the type of the operand."""

LOGIC: dict[str, Rule] = {
    **{f"logical_{name}": _logical(f"logical_{name}") for name in ("and", "or", "xor")},
    **{f"bitwise_{name}": binary(f"bitwise_{name}") for name in ("and", "or", "xor")},
    **{f"__{name}__": binary(f"bitwise_{name}") for name in ("and", "or", "xor")},
    "bitwise_not": unary("bitwise_not"),
    "where": lambda a: op("where", a.x("condition", DType.BOOL), a.x("self"), a.x("other")),
    "masked_fill": _masked_fill,
    "triu": _triangle("ge"),
    "tril": _triangle("le"),
}
"""Rules for truths as well as for numbers."""

ARITHMETIC: dict[str, Rule] = {
    **{
        name: unary(name)
        for name in (
            *("neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
            *("sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    },
    **{
        name: binary(name)
        for name in (
            *("mul", "maximum", "minimum", "atan2", "remainder", "fmod", "hypot", "copysign"),
            *("logaddexp", "logaddexp2", "xlogy"),
        )
    },
    **{name: _rounding(name) for name in ("floor", "ceil", "trunc")},
    **{f"bitwise_{side}_shift": binary(f"bitwise_{side}_shift") for side in ("left", "right")},
    "__lshift__": binary("bitwise_left_shift"),
    "__rshift__": binary("bitwise_right_shift"),
    "round": _round,
    "sgn": unary("sign"),
    "floor_divide": binary("floor_div"),
    "fmax": _ignoring_nan("maximum"),
    "fmin": _ignoring_nan("minimum"),
    "frac": lambda a: op("sub", a.x("self"), op("trunc", a.x("self"))),
    "add": lambda a: op("add", a.x("self"), _scaled(a, "other")),
    "sub": lambda a: op("sub", a.x("self"), _scaled(a, "other")),
    "rsub": lambda a: op("sub", a.x("other"), _scaled(a, "self")),
    "div": _div,
    "pow": _pow,
    "float_power": _float_power,
    "square": lambda a: op("mul", a.x("self"), a.x("self")),
    "deg2rad": lambda a: op("mul", a.x("self"), a.number(math.pi / 180)),
    "rad2deg": lambda a: op("mul", a.x("self"), a.number(180 / math.pi)),
    "ldexp": lambda a: op("mul", a.x("self"), op("exp2", a.x("other"))),
    "heaviside": _heaviside,
    "clamp": _clamp,
    "clamp_min": lambda a: op("maximum", a.x("self"), a.x("min")),
    "clamp_max": lambda a: op("minimum", a.x("self"), a.x("max")),
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
}
"""Rules for numbers only."""
