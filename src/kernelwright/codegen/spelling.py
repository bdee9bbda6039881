"""The CUDA spelling of every operation: one table, and the C++ names of the element types."""

import math
import struct
from dataclasses import dataclass

from kernelwright.ir.types import DType

STORED: dict[DType, str] = {
    DType.F64: "double",
    DType.F32: "float",
    DType.F16: "__half",
    DType.BF16: "__nv_bfloat16",
    DType.I64: "int64_t",
    DType.I32: "int32_t",
    DType.I16: "int16_t",
    DType.I8: "int8_t",
    DType.U8: "uint8_t",
    DType.BOOL: "bool",
}
"""Element type in memory -> C++ type."""

COMPUTED: dict[DType, str] = STORED | {DType.F16: "float", DType.BF16: "float"}
"""Element type in arithmetic -> C++ type: 16-bit floats compute in float, as in PyTorch."""

HEADERS: dict[DType, str] = {DType.F16: "half.cuh", DType.BF16: "bfloat16.cuh"}
"""Element type -> the file of kernels/ that lets a kernel load and store it."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How an operation is written: `{0}`, `{1}` stand for the operands, `{T}` for their type."""

    text: str
    binds: int
    """Precedence of the outermost operator: operands that bind less tightly get parentheses."""
    integer: str | None = None
    """Another text for integers and booleans, where there is one."""
    double: str | None = None
    """Another text for double, where the function's name differs."""
    boolean: str | None = None
    """Another text for booleans, where that for integers is wrong."""


_CALL, _UNARY, _PRODUCT, _SUM, _COMPARE, _EQUAL, _BIT_AND, _BIT_XOR = (
    100,
    90,
    80,
    70,
    60,
    55,
    50,
    48,
)
_BIT_OR, _AND, _OR, _SELECT = 46, 40, 38, 20


def _function(name: str) -> Spelling:
    """A function of math.h: `expf` for float, `exp` for double."""
    return Spelling(f"{name}f({{0}})", _CALL, double=f"{name}({{0}})")


def _device(name: str, operands: int = 1) -> Spelling:
    """A device function of kernels/common/math.cuh, overloaded by type."""
    return Spelling(f"{name}({', '.join(f'{{{i}}}' for i in range(operands))})", _CALL)


SPELLING: dict[str, Spelling] = {
    "add": Spelling("{0} + {1}", _SUM),
    "sub": Spelling("{0} - {1}", _SUM),
    "mul": Spelling("{0} * {1}", _PRODUCT),
    "div": Spelling("{0} / {1}", _PRODUCT),
    "floor_div": _device("floor_divide", 2),
    "trunc_div": Spelling(
        "truncf({0} / {1})", _CALL, integer="{0} / {1}", double="trunc({0} / {1})"
    ),
    "remainder": _device("floor_remainder", 2),
    "fmod": Spelling("fmodf({0}, {1})", _CALL, integer="{0} % {1}", double="fmod({0}, {1})"),
    "pow": _device("power", 2),
    "maximum": _device("maximum", 2),
    "minimum": _device("minimum", 2),
    "atan2": Spelling("atan2f({0}, {1})", _CALL, double="atan2({0}, {1})"),
    "hypot": Spelling("hypotf({0}, {1})", _CALL, double="hypot({0}, {1})"),
    "copysign": Spelling("copysignf({0}, {1})", _CALL, double="copysign({0}, {1})"),
    "xlogy": _device("xlogy", 2),
    "logaddexp": _device("logaddexp", 2),
    "logaddexp2": _device("logaddexp2", 2),
    "neg": Spelling("-{0}", _UNARY),
    "abs": Spelling("fabsf({0})", _CALL, integer="absolute({0})", double="fabs({0})"),
    "sign": _device("sign"),
    "exp": _function("exp"),
    "exp2": _function("exp2"),
    "expm1": _function("expm1"),
    "log": _function("log"),
    "log2": _function("log2"),
    "log10": _function("log10"),
    "log1p": _function("log1p"),
    "sqrt": _function("sqrt"),
    "rsqrt": _function("rsqrt"),
    "reciprocal": Spelling("{T}(1) / {0}", _PRODUCT),
    "sin": _function("sin"),
    "cos": _function("cos"),
    "tan": _function("tan"),
    "asin": _function("asin"),
    "acos": _function("acos"),
    "atan": _function("atan"),
    "sinh": _function("sinh"),
    "cosh": _function("cosh"),
    "tanh": _function("tanh"),
    "asinh": _function("asinh"),
    "acosh": _function("acosh"),
    "atanh": _function("atanh"),
    "erf": _function("erf"),
    "erfc": _function("erfc"),
    "erfinv": _function("erfinv"),
    "lgamma": _function("lgamma"),
    "digamma": _device("digamma"),
    "floor": Spelling("floorf({0})", _CALL, integer="{0}", double="floor({0})"),
    "ceil": Spelling("ceilf({0})", _CALL, integer="{0}", double="ceil({0})"),
    "round": Spelling("rintf({0})", _CALL, integer="{0}", double="rint({0})"),
    "trunc": Spelling("truncf({0})", _CALL, integer="{0}", double="trunc({0})"),
    "relu": _device("relu"),
    "sigmoid": _device("sigmoid"),
    "silu": _device("silu"),
    "mish": _device("mish"),
    "gelu": _device("gelu"),
    "gelu_tanh": _device("gelu_tanh"),
    "hardswish": _device("hardswish"),
    "hardsigmoid": _device("hardsigmoid"),
    "softsign": _device("softsign"),
    "log_sigmoid": _device("log_sigmoid"),
    "softplus": _device("softplus", 3),
    "leaky_relu": _device("leaky_relu", 2),
    "elu": _device("elu", 4),
    "clamp": _device("clamp", 3),
    "eq": Spelling("{0} == {1}", _EQUAL),
    "ne": Spelling("{0} != {1}", _EQUAL),
    "lt": Spelling("{0} < {1}", _COMPARE),
    "le": Spelling("{0} <= {1}", _COMPARE),
    "gt": Spelling("{0} > {1}", _COMPARE),
    "ge": Spelling("{0} >= {1}", _COMPARE),
    "logical_and": Spelling("{0} && {1}", _AND),
    "logical_or": Spelling("{0} || {1}", _OR),
    "logical_xor": Spelling("bool({0}) != bool({1})", _EQUAL),
    "logical_not": Spelling("!{0}", _UNARY),
    "bitwise_and": Spelling("{0} & {1}", _BIT_AND),
    "bitwise_or": Spelling("{0} | {1}", _BIT_OR),
    "bitwise_xor": Spelling("{0} ^ {1}", _BIT_XOR),
    "bitwise_not": Spelling("~{0}", _UNARY, boolean="!{0}"),
    "bitwise_left_shift": Spelling("shift_left<{T}>({0}, {1})", _CALL),
    "bitwise_right_shift": Spelling("shift_right<{T}>({0}, {1})", _CALL),
    "signbit": Spelling("signbit({0})", _CALL, integer="{0} < 0", boolean="false"),
    "isnan": Spelling("isnan({0})", _CALL, integer="false"),
    "isinf": Spelling("isinf({0})", _CALL, integer="false"),
    "where": Spelling("{0} ? {1} : {2}", _SELECT),
}
"""Operation of ir.expr.OPERATIONS (all but "cast") -> its spelling."""

SHORT: dict[str, Spelling] = {
    "exp": _device("short_exp"),
    "silu": _device("short_silu"),
    "gelu": _device("short_gelu"),
    "gelu_tanh": _device("short_gelu_tanh"),
}
"""Operations in float whose result is rounded to 16 bits at once: their own functions, of
kernels/common/short_results.cuh."""


@dataclass(frozen=True, slots=True)
class Written:
    """C++ text of an expression and how tightly its outermost operator binds."""

    text: str
    binds: int = _CALL

    def inside(self, binds: int) -> str:
        """The text as an operand of an operator of precedence `binds`."""
        return self.text if self.binds > binds else f"({self.text})"


ROW_QUOTIENT = Spelling("divide_by_row({0}, {1})", _CALL)
"""A quotient of floats whose divisor is the same for many."""
SHARE = Spelling("share_of_sum({0}, {1})", _CALL)
"""A quotient whose dividend, from 0 to 1, is part of the divisor, a sum from 1 on."""
IS_AT = Spelling("place.is_at({1})", _CALL)
"""Whether the place of an element in its row is what all of them share."""


def write_call(
    op: str, args: list[Written], dtype: DType, result: DType, spelling: Spelling | None = None
) -> Written:
    """The call of `op` on operands of element type `dtype`, with a result of type `result`.

    `spelling`: another one than its row of SPELLING.
    """
    row = spelling or SPELLING[op]
    text, binds = row.text, row.binds
    if dtype is DType.BOOL and row.boolean is not None:
        text = row.boolean
    elif not dtype.is_float and row.integer is not None:
        text = row.integer
    elif dtype is DType.F64 and row.double is not None:
        text = row.double
    # Inside the parentheses of a function call an argument needs none of its own.
    operands = [arg.text if binds == _CALL else arg.inside(binds) for arg in args]
    written = Written(text.format(*operands, T=COMPUTED[dtype]), binds)
    if result in _PROMOTED and op not in _CLOSED:
        # C++ computes in int; PyTorch wraps around after every operation.
        return Written(f"static_cast<{STORED[result]}>({written.text})")
    return written


_PROMOTED = frozenset({DType.I16, DType.I8, DType.U8})
_CLOSED = frozenset(
    {"where", "maximum", "minimum", "clamp", "bitwise_and", "bitwise_or", "bitwise_xor", "relu"}
)
"""Operations whose results are operands, or fit where these fit."""


def write_cast(arg: Written, source: DType, target: DType) -> Written:
    """A conversion with PyTorch's rounding; to a 16-bit float it rounds and stays in float."""
    if target in (DType.F16, DType.BF16):
        return Written(f"{_rounding(target)}({arg.text})")
    if COMPUTED[source] == COMPUTED[target]:
        return arg
    if target is DType.BOOL:
        return Written(f"{arg.inside(_EQUAL)} != 0", _EQUAL)
    return Written(f"static_cast<{COMPUTED[target]}>({arg.text})")


def before_storing(value: Written, dtype: DType) -> Written:
    """The value of a result of this type: what is rounded as it is stored need not be before."""
    if dtype not in HEADERS or not value.text.startswith(f"{_rounding(dtype)}("):
        return value
    inner = value.text.removeprefix(f"{_rounding(dtype)}(").removesuffix(")")
    return Written(inner, _SELECT) if _is_balanced(inner) else value


def _rounding(dtype: DType) -> str:
    """The function that rounds to a 16-bit float and stays in float."""
    return f"rounded<{STORED[dtype]}>"


def _is_balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def write_literal(value: float, dtype: DType) -> Written:
    """A constant (float, int or bool) as C++ writes it, rounded to `dtype`."""
    if dtype is DType.BOOL:
        return Written("true" if value else "false")
    if not dtype.is_float:
        return _integer(int(value), dtype)
    suffix = "" if dtype is DType.F64 else "f"
    number = float(value) if dtype is DType.F64 else _rounded(float(value))
    if math.isnan(number):
        return Written(f'nan{suffix}("")')
    if math.isinf(number):
        return _signed("-INFINITY" if number < 0 else "INFINITY")
    return _signed(_shortest(float(value), number) + suffix)


def _integer(value: int, dtype: DType) -> Written:
    suffix = "LL" if dtype is DType.I64 and abs(value) >= 2**31 else ""
    if value == -(2**63):
        # C++ reads a minus sign as an operator, and 2^63 alone does not fit.
        return Written(f"{value + 1}LL - 1", _SUM)
    return _signed(f"{value}{suffix}")


def _rounded(number: float) -> float:
    """The nearest float32, infinite above the largest one."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _shortest(number: float, rounded: float) -> str:
    """Few digits that read back as `rounded`, which is `number` in the type of the arithmetic."""
    candidates = [repr(number)] if rounded == number else [repr(number), f"{rounded:.9g}"]
    text = min(candidates, key=len)
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def _signed(text: str) -> Written:
    return Written(text, _UNARY if text.startswith("-") else _CALL)
