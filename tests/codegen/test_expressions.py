"""Expressions as C++ text: what is rounded to 16 bits, and what need not be."""

from kernelwright.codegen.expressions import ExpressionWriter, operand_name
from kernelwright.ir.expr import Call, Expr, Operand
from kernelwright.ir.types import DType, TensorType

_SHORT = TensorType(dtype=DType.BF16, shape=())


def _written(expr: Expr) -> str:
    return ExpressionWriter((_SHORT,), (expr,), operand_name).write(expr).text


def _rounded(expr: Expr) -> Call:
    return Call("cast", (expr,), DType.BF16)


def test_what_has_16_bits_is_not_rounded_again() -> None:
    wide = Call("cast", (Operand(0, DType.BF16),), DType.F32)
    assert _written(_rounded(Call("neg", (wide,), DType.F32))) == "-a"
    assert _written(_rounded(Call("exp", (wide,), DType.F32))).startswith("rounded<__nv_bfloat16>(")
    halves = Call("cast", (Operand(0, DType.F16),), DType.F32)
    assert _written(_rounded(halves)) == "rounded<__nv_bfloat16>(a)"


def test_short_results_have_functions_of_their_own() -> None:
    wide = Call("cast", (Operand(0, DType.BF16),), DType.F32)
    for name, exact in (("gelu", "gelu"), ("silu", "silu"), ("exp", "expf")):
        call = Call(name, (wide,), DType.F32)
        assert _written(_rounded(call)) == f"rounded<__nv_bfloat16>(short_{name}(a))"
        assert _written(call) == f"{exact}(a)"
