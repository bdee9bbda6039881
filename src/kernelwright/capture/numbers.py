"""Numbers computed from sizes and call-time scalars: PyTorch's symbolic floats as expressions."""

from collections.abc import Mapping
from functools import reduce

import sympy

from kernelwright.capture.errors import UnsupportedValueError
from kernelwright.capture.sizes import Sizes
from kernelwright.ir.expr import Call, Expr, Literal, Size
from kernelwright.ir.types import Dim, DType

# By name of the sympy function: those of torch.utils._sympy.functions have no public home.
_FUNCTIONS = {
    "FloatPow": "pow",
    "Pow": "pow",
    "IntTrueDiv": "div",
    "FloatTrueDiv": "div",
    "OpaqueUnaryFn_sqrt": "sqrt",
    "OpaqueUnaryFn_exp": "exp",
    "OpaqueUnaryFn_log": "log",
    "OpaqueUnaryFn_log2": "log2",
    "OpaqueUnaryFn_sin": "sin",
    "OpaqueUnaryFn_cos": "cos",
    "OpaqueUnaryFn_tanh": "tanh",
}


def number_expression(expr: sympy.Expr, sizes: Sizes, items: Mapping[sympy.Symbol, Expr]) -> Expr:
    """A symbolic number in double precision, or in int64 where it is a size.

    `items` gives the call-time scalars among its symbols. Raises UnsupportedValueError for a
    function that no table here knows.
    """
    if expr in items:
        return items[expr]
    if expr.is_Integer:
        return Literal(int(expr), DType.I64)
    if expr.is_number:
        return Literal(float(expr), DType.F64)
    if expr.is_integer and not expr.free_symbols & items.keys():
        resolved = sizes.resolve(expr)
        return Size(Dim(sizes.text(resolved), sizes.hint(resolved)))
    args = [to_double(number_expression(arg, sizes, items)) for arg in expr.args]
    match type(expr).__name__:
        case "ToFloat":
            return args[0]
        case "Add":
            return reduce(lambda a, b: Call("add", (a, b), DType.F64), args)
        case "Mul":
            return reduce(lambda a, b: Call("mul", (a, b), DType.F64), args)
        case name if name in _FUNCTIONS:
            return Call(_FUNCTIONS[name], tuple(args), DType.F64)
    raise UnsupportedValueError(f"the number {expr} cannot be computed at call time")


def to_double(expr: Expr) -> Expr:
    """The expression converted to double precision."""
    return expr if expr.dtype is DType.F64 else Call("cast", (expr,), DType.F64)
