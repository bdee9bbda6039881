"""Operators that make one element from one element of each operand: ATen names to expressions.

An expression computes in the dtype of the result, 16-bit floats in float32 as PyTorch's own kernels
do: operands are converted first and the result last, so a call rounds once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.capture.errors import ScalarNeededError
from kernelwright.capture.numbers import number_expression
from kernelwright.capture.types import dtype_of
from kernelwright.ir.expr import Call as Op
from kernelwright.ir.expr import Coordinate, Expr, Literal, Operand, transform
from kernelwright.ir.graph import AtenCall, Code, Pointwise, Record, Ref
from kernelwright.ir.types import DType, TensorType

HALVES = (DType.F16, DType.BF16)
"""Element types that are computed with in float32."""


class Scope:
    """The operands of one call, gathered while its expression is built."""

    def __init__(self, builder: Builder, call: Call, compute: DType) -> None:
        self.builder = builder
        self.call = call
        self.compute = compute
        self.inputs: list[str] = []

    def x(self, name: str, dtype: DType | None = None) -> Expr:
        """The argument called `name`, converted to `dtype` or else to what the call computes in."""
        if not self.has(name):
            raise NotPointwiseError
        return cast(self._expression(self.call.arguments[name]), dtype or self.compute)

    def has(self, name: str) -> bool:
        """True if the argument was given and is not None."""
        return self.call.arguments.get(name) is not None

    def number(self, value: float) -> Expr:
        """A constant."""
        return cast(Literal(value, DType.F64), self.compute)

    def coordinate(self, dim: int) -> Expr:
        """Where an element of the result stands along dimension `dim`, counted from the end."""
        size = self.call.result.shape[dim]
        return Literal(0, DType.I64) if isinstance(size, int) and size == 1 else Coordinate(dim)

    def _expression(self, value: Any) -> Expr:
        match value:
            case fx.Node() if value in self.builder.values:
                return self._value_expression(self.builder.values[value])
            case fx.Node():
                return self._expression(value.meta["val"])
            case bool():
                return Literal(value, DType.BOOL)
            case int():
                return Literal(value, DType.I64)
            case float():
                return Literal(value, DType.F64)
            case torch.SymInt() | torch.SymFloat():
                builder = self.builder
                number = number_expression(value.node.expr, builder.sizes, builder.items)
                return self._value_expression(Number(number))
        raise NotPointwiseError

    def _value_expression(self, value: str | Number) -> Expr:
        if isinstance(value, Number):
            scalars = self.builder.scalars
            return transform(
                value.expr,
                lambda leaf: (
                    self._operand(scalars[leaf.index]) if isinstance(leaf, Operand) else leaf
                ),
            )
        return self._operand(value)

    def _operand(self, name: str) -> Expr:
        if name not in self.inputs:
            self.inputs.append(name)
        kind = self.builder.node(name).type
        dtype = getattr(kind, "dtype", None)
        if not isinstance(dtype, DType) or dtype.is_complex:
            raise NotPointwiseError
        return Operand(self.inputs.index(name), dtype)


class NotPointwiseError(Exception):
    """Internal: this call of a pointwise operator is outside what expressions can say."""


Rule = Callable[[Scope], Expr]


def cast(expr: Expr, dtype: DType) -> Expr:
    """`expr` converted as PyTorch converts; constants are converted at once."""
    if expr.dtype is dtype:
        return expr
    if not isinstance(expr, Literal):
        return Op("cast", (expr,), dtype)
    if dtype is DType.BOOL:
        return Literal(bool(expr.value), dtype)
    if dtype.is_float:
        return Literal(float(expr.value), dtype)
    if expr.value != expr.value or abs(expr.value) == float("inf"):
        raise NotPointwiseError
    return Literal(int(expr.value), dtype)


def op(name: str, *args: Expr) -> Expr:
    """A call whose result has the dtype of its (last) operand."""
    return Op(name, args, args[-1].dtype)


def test(name: str, *args: Expr) -> Expr:
    """A call whose result is a truth value."""
    return Op(name, args, DType.BOOL)


def pointwise(builder: Builder, call: Call) -> str | Number | None:
    """Add the node of a pointwise call; None if the call is none."""
    rule = RULES.get(call.operator)
    result = call.result
    if rule is None or not isinstance(result, torch.Tensor) or result.dtype.is_complex:
        return None
    try:
        if _only_numbers(builder, call):
            scope = Scope(builder, call, DType.F64)
            return _number(builder, scope, rule(scope))
        scope = Scope(builder, call, _compute_dtype(call))
        expr = cast(rule(scope), dtype_of(result.dtype))
    except NotPointwiseError:
        return None
    origin = None
    if call.operator in FILLS:
        origin = _fill(builder, call)
    elif call.operator in CASTS:
        dtype = Code(str(result.dtype))
        origin = AtenCall("aten.to.dtype", (Ref(scope.inputs[0]), dtype))
    return builder.add_call(call, Pointwise(expr), scope.inputs, origin)


def _fill(builder: Builder, call: Call) -> AtenCall | None:
    """A tensor full of one number, as a call that reads no other tensor."""
    value = call.arguments.get("fill_value", FILLS[call.operator])
    try:
        number = builder.argument(value)
    except ScalarNeededError:
        return None
    kind = builder.type_of(call.result)
    assert isinstance(kind, TensorType)
    options = (("dtype", Code(str(call.result.dtype))), ("device", Code("device")))
    return AtenCall("aten.full.default", (Record("list", kind.shape), number), options)


def _only_numbers(builder: Builder, call: Call) -> bool:
    """True if every tensor that the call reads is a call-time number, and there is one."""
    read = [builder.values[node] for node in call.node.all_input_nodes if node in builder.values]
    return bool(read) and all(isinstance(value, Number) for value in read)


def _number(builder: Builder, scope: Scope, expr: Expr) -> Number:
    """The result of a call of numbers, its operands counted as the builder counts them."""
    places = [builder.scalars.index(name) for name in scope.inputs]

    def place(leaf: Expr) -> Expr:
        return Operand(places[leaf.index], leaf.dtype) if isinstance(leaf, Operand) else leaf

    return Number(transform(expr, place))


def _compute_dtype(call: Call) -> DType:
    """The dtype that the operands are converted to."""
    result = dtype_of(call.result.dtype)
    if call.operator in _COMPARISONS:
        both = (call.traced("self"), call.traced("other"))
        result = dtype_of(torch.result_type(*(_PLAIN.get(type(x), x) for x in both)))
    elif call.operator in _TESTS:
        result = dtype_of(call.traced("self").dtype)
    elif result is DType.BOOL and call.operator in _ARITHMETIC:
        raise NotPointwiseError
    return DType.F32 if result in HALVES else result


# torch.result_type looks at the kind of a number only, and knows no symbolic ones.
_PLAIN: dict[type, float | int] = {torch.SymInt: 1, torch.SymFloat: 1.0}


# --- Rules -------------------------------------------------------------------------------------


def _unary(name: str) -> Rule:
    return lambda a: op(name, a.x("self"))


def _binary(name: str) -> Rule:
    return lambda a: op(name, a.x("self"), a.x("other"))


def _rounding(name: str) -> Rule:
    def rule(a: Scope) -> Expr:
        if a.has("decimals") and a.call.arguments["decimals"] != 0:
            raise NotPointwiseError
        return op(name, a.x("self")) if a.compute.is_float else a.x("self")

    return rule


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


def _hardtanh(a: Scope) -> Expr:
    return op("clamp", a.x("self"), a.x("min_val"), a.x("max_val"))


def _gelu(a: Scope) -> Expr:
    return op("gelu" if a.call.arguments["approximate"] == "none" else "gelu_tanh", a.x("self"))


def _celu(a: Scope) -> Expr:
    alpha = a.x("alpha")
    return op("elu", a.x("self"), alpha, a.number(1.0), op("reciprocal", alpha))


def _selu(a: Scope) -> Expr:
    # alpha and scale of Klambauer et al. 2017, as torch.nn.SELU documents them
    alpha, scale = a.number(1.6732632423543772), a.number(1.0507009873554805)
    return op("elu", a.x("self"), alpha, scale, a.number(1.0))


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


def _threshold(a: Scope) -> Expr:
    x = a.x("self")
    return op("where", test("le", x, a.x("threshold")), a.x("value"), x)


def _hardshrink(a: Scope) -> Expr:
    x, bound = a.x("self"), a.x("lambd")
    inside = test("logical_and", test("ge", x, op("neg", bound)), test("le", x, bound))
    return op("where", inside, a.number(0.0), x)


def _filled(a: Scope) -> Expr:
    return a.x("fill_value") if a.has("fill_value") else a.number(FILLS[a.call.operator] or 0.0)


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


CASTS = ("_to_copy", "to", "type_as")
"""Operators that only convert."""

FILLS: dict[str, float | None] = {
    **{"full": None, "full_like": None, "new_full": None},
    **{"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0},
    **{"ones": 1.0, "ones_like": 1.0, "new_ones": 1.0},
}
"""Operators that fill a new tensor, and with what; None where their argument says."""

_COMPARISONS = {name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_LOGICAL = {f"logical_{name}": _logical(f"logical_{name}") for name in ("and", "or", "xor")}
_TESTS: dict[str, Rule] = {
    "isnan": lambda a: test("isnan", a.x("self")),
    "isinf": lambda a: test("isinf", a.x("self")),
    "logical_not": lambda a: test("logical_not", a.x("self", DType.BOOL)),
}
_UNARY = {
    name: _unary(name)
    for name in (
        *("neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "erf", "relu", "sigmoid", "silu", "mish", "hardswish"),
        *("hardsigmoid", "softsign", "log_sigmoid"),
    )
}
_BINARY = {
    **{name: _binary(name) for name in ("mul", "maximum", "minimum", "atan2", "remainder", "fmod")},
    "multiply": _binary("mul"),
    "floor_divide": _binary("floor_div"),
}
_ARITHMETIC: dict[str, Rule] = {
    **_UNARY,
    **_BINARY,
    **{name: _rounding(name) for name in ("floor", "ceil", "round", "trunc")},
    "add": lambda a: op("add", a.x("self"), _scaled(a, "other")),
    "sub": lambda a: op("sub", a.x("self"), _scaled(a, "other")),
    "rsub": lambda a: op("sub", a.x("other"), _scaled(a, "self")),
    "div": _div,
    "true_divide": _div,
    "pow": _pow,
    "square": lambda a: op("mul", a.x("self"), a.x("self")),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": lambda a: op("maximum", a.x("self"), a.x("min")),
    "clamp_max": lambda a: op("minimum", a.x("self"), a.x("max")),
    "hardtanh": _hardtanh,
    "relu6": lambda a: op("clamp", a.x("self"), a.number(0.0), a.number(6.0)),
    "gelu": _gelu,
    "leaky_relu": lambda a: op("leaky_relu", a.x("self"), a.x("negative_slope")),
    "elu": lambda a: op("elu", a.x("self"), a.x("alpha"), a.x("scale"), a.x("input_scale")),
    "celu": _celu,
    "selu": _selu,
    "softplus": lambda a: op("softplus", a.x("self"), a.x("beta"), a.x("threshold")),
    "tanhshrink": lambda a: op("sub", a.x("self"), op("tanh", a.x("self"))),
    "hardshrink": _hardshrink,
    "threshold": _threshold,
    "lerp": _lerp,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
}

RULES: dict[str, Rule] = {
    **_ARITHMETIC,
    **_COMPARISONS,
    **_LOGICAL,
    **_TESTS,
    **{name: _binary(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "__and__": _binary("bitwise_and"),
    "__or__": _binary("bitwise_or"),
    "__xor__": _binary("bitwise_xor"),
    "bitwise_not": _unary("bitwise_not"),
    "where": lambda a: op("where", a.x("condition", DType.BOOL), a.x("self"), a.x("other")),
    "masked_fill": _masked_fill,
    "triu": _triangle("ge"),
    "tril": _triangle("le"),
    **{name: lambda a: a.x("self") for name in CASTS},
    **{name: _filled for name in FILLS},
}
"""By the operator's short name; every overload reads its arguments by their schema names."""
