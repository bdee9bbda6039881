"""Activations and special functions: ATen names to expressions."""

import math

from kernelwright.capture.arithmetic import unary
from kernelwright.capture.scope import NotPointwiseError, Rule, Scope, op, test
from kernelwright.ir.expr import Expr
from kernelwright.ir.types import DType


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


def _threshold(a: Scope) -> Expr:
    x = a.x("self")
    return op("where", test("le", x, a.x("threshold")), a.x("value"), x)


def _hardshrink(a: Scope) -> Expr:
    x, bound = a.x("self"), a.x("lambd")
    inside = test("logical_and", test("ge", x, op("neg", bound)), test("le", x, bound))
    return op("where", inside, a.number(0.0), x)


def _softshrink(a: Scope) -> Expr:
    """Toward zero by `lambd`; NaN stays."""
    x, bound = a.x("self"), a.x("lambd")
    below = op("where", test("lt", x, op("neg", bound)), op("add", x, bound), _kept_nan(a, x))
    return op("where", test("gt", x, bound), op("sub", x, bound), below)


def _kept_nan(a: Scope, x: Expr) -> Expr:
    return op("mul", x, a.number(0.0))


def _rrelu(a: Scope) -> Expr:
    """Outside of training the slope is the mean of its bounds."""
    if a.call.arguments["training"]:
        raise NotPointwiseError
    slope = op("mul", op("add", a.x("lower"), a.x("upper")), a.number(0.5))
    return op("leaky_relu", a.x("self"), slope)


def _logit(a: Scope) -> Expr:
    x, one = a.x("self"), a.number(1.0)
    if a.has("eps"):
        x = op("clamp", x, a.x("eps"), op("sub", one, a.x("eps")))
    return op("log", op("div", x, op("sub", one, x)))


def _sinc(a: Scope) -> Expr:
    x = a.x("self")
    turned = op("mul", x, a.number(math.pi))
    found = op("div", op("sin", turned), turned)
    return op("where", test("eq", x, a.number(0.0)), a.number(1.0), found)


def _entr(a: Scope) -> Expr:
    x = a.x("self")
    inside = op("mul", op("neg", x), op("log", x))
    edge = op("where", test("eq", x, a.number(0.0)), a.number(0.0), a.number(-math.inf))
    outside = op("where", test("isnan", x), x, edge)
    return op("where", test("gt", x, a.number(0.0)), inside, outside)


def _ndtr(a: Scope) -> Expr:
    """How likely a standard normal variable is at most x."""
    return op("mul", a.number(0.5), op("erfc", op("mul", a.x("self"), a.number(-math.sqrt(0.5)))))


_LARGEST = {
    DType.F64: 1.7976931348623157e308,
    DType.F32: 3.4028234663852886e38,
    DType.F16: 65504.0,
    DType.BF16: 3.3895313892515355e38,
}


def _nan_to_num(a: Scope) -> Expr:
    """Infinities become the largest numbers of the element type, unless others are given."""
    x = a.x("self")
    if not a.compute.is_float:
        return x
    largest = _LARGEST[a.dtype]
    high = a.x("posinf") if a.has("posinf") else a.number(largest)
    low = a.x("neginf") if a.has("neginf") else a.number(-largest)
    nan = a.x("nan") if a.has("nan") else a.number(0.0)
    infinite = op("where", test("gt", x, a.number(0.0)), high, low)
    return op("where", test("isnan", x), nan, op("where", test("isinf", x), infinite, x))


ACTIVATIONS: dict[str, Rule] = {
    **{
        name: unary(name)
        for name in (
            *("relu", "sigmoid", "silu", "mish", "hardswish", "hardsigmoid", "softsign"),
            *("log_sigmoid", "erf", "erfc", "erfinv", "lgamma", "digamma"),
        )
    },
    "hardtanh": _hardtanh,
    "relu6": lambda a: op("clamp", a.x("self"), a.number(0.0), a.number(6.0)),
    "gelu": _gelu,
    "leaky_relu": lambda a: op("leaky_relu", a.x("self"), a.x("negative_slope")),
    "rrelu": _rrelu,
    "elu": lambda a: op("elu", a.x("self"), a.x("alpha"), a.x("scale"), a.x("input_scale")),
    "celu": _celu,
    "selu": _selu,
    "softplus": lambda a: op("softplus", a.x("self"), a.x("beta"), a.x("threshold")),
    "tanhshrink": lambda a: op("sub", a.x("self"), op("tanh", a.x("self"))),
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "threshold": _threshold,
    "logit": _logit,
    "sinc": _sinc,
    "special_entr": _entr,
    "special_ndtr": _ndtr,
    "nan_to_num": _nan_to_num,
}
"""Rules for numbers only."""
