"""Operators that make one element from one element of each operand: ATen names to nodes.

An expression computes in the dtype of the result, 16-bit floats in float32 as PyTorch's own kernels
do: operands are converted first and the result last, so a call rounds once.
"""

import torch

from kernelwright.capture.activations import ACTIVATIONS
from kernelwright.capture.arithmetic import ARITHMETIC, COMPARISONS, LOGIC, TESTS
from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.capture.errors import ScalarNeededError
from kernelwright.capture.scope import HALVES, NotPointwiseError, Rule, Scope, cast, op, test
from kernelwright.capture.types import dtype_of
from kernelwright.ir.calls import AtenCall, Code, Record, Ref
from kernelwright.ir.expr import Expr, Operand, transform
from kernelwright.ir.kinds import Pointwise
from kernelwright.ir.types import DType, TensorType


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
    value = FILLS[call.operator]
    value = call.arguments[value] if isinstance(value, str) else value
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
    operator = _ALIASES.get(call.operator, call.operator)
    if operator in COMPARISONS:
        both = (call.traced("self"), call.traced("other"))
        result = dtype_of(torch.result_type(*(_PLAIN.get(type(x), x) for x in both)))
    elif operator in TESTS:
        result = dtype_of(call.traced("self").dtype)
    elif result is DType.BOOL and operator in _NUMBERS_ONLY:
        raise NotPointwiseError
    return DType.F32 if result in HALVES else result


# torch.result_type looks at the kind of a number only, and knows no symbolic ones.
_PLAIN: dict[type, float | int] = {torch.SymInt: 1, torch.SymFloat: 1.0}


# --- Rules -------------------------------------------------------------------------------------


def _filled(a: Scope) -> Expr:
    value = FILLS[a.call.operator]
    if not isinstance(value, str):
        return a.number(value)
    if isinstance(a.builder.values.get(a.call.arguments[value]), str):
        raise NotPointwiseError  # a tensor of one element
    return a.x(value)


def _linspace(a: Scope) -> Expr:
    """From the nearer end, so that both ends are exact."""
    start, end, steps = a.x("start"), a.x("end"), a.x("steps")
    place, one = cast(a.coordinate(-1), a.compute), a.number(1.0)
    step = op("div", op("sub", end, start), op("sub", steps, one))
    near = op("add", start, op("mul", step, place))
    left = op("sub", op("sub", steps, place), one)
    far = op("sub", end, op("mul", step, left))
    is_near = test("lt", place, op("mul", steps, a.number(0.5)))
    return op("where", test("eq", steps, one), start, op("where", is_near, near, far))


def _arange(a: Scope) -> Expr:
    place = cast(a.coordinate(-1), a.compute)
    steps = op("mul", place, a.x("step")) if a.has("step") else place
    return op("add", a.x("start"), steps) if a.has("start") else steps


def _eye(a: Scope) -> Expr:
    on_diagonal = test("eq", a.coordinate(-2), a.coordinate(-1))
    return op("where", on_diagonal, a.number(1.0), a.number(0.0))


CASTS = ("_to_copy", "to", "type_as")
"""Operators that only convert."""

FILLS: dict[str, float | str] = {
    **{"full": "fill_value", "full_like": "fill_value", "new_full": "fill_value"},
    **{"fill": "value", "scalar_tensor": "s"},
    **{"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "zero": 0.0},
    **{"ones": 1.0, "ones_like": 1.0, "new_ones": 1.0},
}
"""Operators that fill a tensor, and with what: a number, or what the argument of a name says."""

_NUMBERS_ONLY = {**ARITHMETIC, **ACTIVATIONS}

_PLAINLY: dict[str, Rule] = {
    **_NUMBERS_ONLY,
    **COMPARISONS,
    **TESTS,
    **LOGIC,
    **{name: lambda a: a.x("self") for name in CASTS},
    **{name: _filled for name in FILLS},
    "arange": _arange,
    "linspace": _linspace,
    "eye": _eye,
}

_ALIASES = {
    **{"absolute": "abs", "negative": "neg", "fix": "trunc", "clip": "clamp"},
    **{"divide": "div", "true_divide": "div", "multiply": "mul", "subtract": "sub"},
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le"},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    **{f"special_{name}": name for name in ("erf", "erfc", "erfinv", "exp2", "expm1", "log1p")},
    **{f"special_{name}": name for name in ("round", "sinc", "logit", "xlogy", "digamma")},
    **{"special_expit": "sigmoid", "special_gammaln": "lgamma", "special_psi": "digamma"},
    **{"not_equal": "ne"},
}
"""Other names of the same operators."""

RULES: dict[str, Rule] = {
    **_PLAINLY,
    **{alias: _PLAINLY[name] for alias, name in _ALIASES.items()},
}
"""By the operator's short name; every overload reads its arguments by their schema names."""
