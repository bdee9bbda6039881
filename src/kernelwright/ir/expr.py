"""Scalar expressions: what a pointwise node computes for one element."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelwright.ir.types import Dim, DType


@dataclass(frozen=True, slots=True)
class Operand:
    """The current element of the node's `index`-th input (the value itself for a scalar input)."""

    index: int
    dtype: DType

    def __str__(self) -> str:
        return f"%{self.index}"


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant known at capture; `value` may be inf or nan.

    Equal when written alike: 0.0 and -0.0 differ, nan equals nan.
    """

    value: float | int | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, DType]:
        return repr(self.value), self.dtype

    def __str__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Size:
    """A size used as a number, for example the divisor of a mean."""

    dim: Dim
    dtype: DType = DType.I64

    def __str__(self) -> str:
        return f"size({self.dim})"


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Where the current element stands along dimension `dim` of the result, counted from the end.

    Of a dimension that may have more than one index: broadcasting keeps it as it is.
    """

    dim: int
    """-1 for the column, -2 for the row."""
    dtype: DType = DType.I64

    def __str__(self) -> str:
        return {-1: "column", -2: "row"}.get(self.dim, f"coordinate({self.dim})")


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The anchor's result at the current element; only in the epilogue of a kernel."""

    dtype: DType
    number: int = 0
    """Which result, of an anchor that has several."""

    def __str__(self) -> str:
        return f"acc{self.number}" if self.number else "acc"


@dataclass(frozen=True, slots=True)
class Total:
    """What the current row was reduced to; only in the row programs of a plan."""

    index: int
    """Counts the totals of all folds of the program, in order."""
    dtype: DType

    def __str__(self) -> str:
        return f"total{self.index}"


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of OPERATIONS on operands of one dtype; `dtype` is that of the result."""

    op: str
    args: "tuple[Expr, ...]"
    dtype: DType

    def __str__(self) -> str:
        suffix = f"<{self.dtype.value}>" if self.op == "cast" else ""
        return f"{self.op}{suffix}({', '.join(str(arg) for arg in self.args)})"


Expr = Operand | Literal | Size | Coordinate | Accumulator | Total | Call

OPERATIONS: dict[str, int] = {
    # name -> number of arguments. Semantics are those of the PyTorch operator of that name on
    # operands already promoted to one dtype; 16-bit floats compute in float32.
    "cast": 1,
    "add": 2,
    "sub": 2,
    "mul": 2,
    "div": 2,  # true division of floats
    "floor_div": 2,  # rounds toward minus infinity
    "trunc_div": 2,  # rounds toward zero
    "remainder": 2,  # sign of the divisor
    "fmod": 2,  # sign of the dividend
    "pow": 2,
    "maximum": 2,  # NaN propagates
    "minimum": 2,
    "atan2": 2,
    "hypot": 2,
    "copysign": 2,
    "xlogy": 2,  # 0 where the first is 0, unless the second is NaN
    "logaddexp": 2,
    "logaddexp2": 2,
    "neg": 1,
    "abs": 1,
    "sign": 1,
    "exp": 1,
    "exp2": 1,
    "expm1": 1,
    "log": 1,
    "log2": 1,
    "log10": 1,
    "log1p": 1,
    "sqrt": 1,
    "rsqrt": 1,
    "reciprocal": 1,
    "sin": 1,
    "cos": 1,
    "tan": 1,
    "asin": 1,
    "acos": 1,
    "atan": 1,
    "sinh": 1,
    "cosh": 1,
    "tanh": 1,
    "asinh": 1,
    "acosh": 1,
    "atanh": 1,
    "erf": 1,
    "erfc": 1,
    "erfinv": 1,
    "lgamma": 1,
    "digamma": 1,
    "floor": 1,
    "ceil": 1,
    "round": 1,  # half to even
    "trunc": 1,
    "relu": 1,
    "sigmoid": 1,
    "silu": 1,
    "mish": 1,
    "gelu": 1,  # erf form
    "gelu_tanh": 1,
    "hardswish": 1,
    "hardsigmoid": 1,
    "softsign": 1,
    "log_sigmoid": 1,
    "softplus": 3,  # x, beta, threshold
    "leaky_relu": 2,  # x, negative slope
    "elu": 4,  # x, alpha, scale, input scale
    "clamp": 3,  # x, low, high
    "eq": 2,
    "ne": 2,
    "lt": 2,
    "le": 2,
    "gt": 2,
    "ge": 2,
    "logical_and": 2,
    "logical_or": 2,
    "logical_xor": 2,
    "logical_not": 1,
    "bitwise_and": 2,
    "bitwise_or": 2,
    "bitwise_xor": 2,
    "bitwise_not": 1,
    "bitwise_left_shift": 2,
    "bitwise_right_shift": 2,
    "signbit": 1,
    "isnan": 1,
    "isinf": 1,
    "where": 3,  # condition, then, else
}


def walk(expr: Expr) -> Iterator[Expr]:
    """Every subexpression, children before parents."""
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from walk(arg)
    yield expr


def transform(expr: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `expr` with `leaf` applied to every leaf."""
    if isinstance(expr, Call):
        return Call(expr.op, tuple(transform(arg, leaf) for arg in expr.args), expr.dtype)
    return leaf(expr)


def is_cast(expr: Expr) -> bool:
    """True if the value is an operand's in another type, and nothing else."""
    return isinstance(expr, Call) and expr.op == "cast" and isinstance(expr.args[0], Operand)


def has_coordinates(expr: Expr) -> bool:
    """True if the value depends on where its element stands, not on the operands alone."""
    return any(isinstance(part, Coordinate) for part in walk(expr))


def operations(expr: Expr) -> int:
    """How many arithmetic operations one element costs (casts are free)."""
    return sum(isinstance(part, Call) and part.op != "cast" for part in walk(expr))
