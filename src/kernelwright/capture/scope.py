"""What the rules of pointwise operators are written with: operands as expressions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from kernelwright.capture.builder import Builder, Call, Number
from kernelwright.capture.numbers import number_expression
from kernelwright.capture.types import dtype_of
from kernelwright.ir.expr import Call as Op
from kernelwright.ir.expr import Coordinate, Expr, Literal, Operand, transform
from kernelwright.ir.types import DType

HALVES = (DType.F16, DType.BF16)
"""Element types that are computed with in float32."""


class Scope:
    """The operands of one call, gathered while its expression is built."""

    def __init__(self, builder: Builder, call: Call, compute: DType) -> None:
        self.builder = builder
        self.call = call
        self.compute = compute
        self.dtype = dtype_of(call.result.dtype)
        """The element type of the result."""
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
