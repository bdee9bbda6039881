"""Every operation and every number has a spelling that C++ reads as PyTorch means it."""

import math

import pytest

from kernelwright.codegen.spelling import (
    SPELLING,
    Written,
    write_call,
    write_cast,
    write_literal,
)
from kernelwright.ir.expr import OPERATIONS
from kernelwright.ir.types import DType


def test_every_operation_is_spelled() -> None:
    assert set(SPELLING) == set(OPERATIONS) - {"cast"}


@pytest.mark.parametrize("op", sorted(SPELLING))
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.I64, DType.BOOL])
def test_every_operand_is_written(op: str, dtype: DType) -> None:
    names = [f"operand{i}" for i in range(OPERATIONS[op])]
    text = write_call(op, [Written(name) for name in names], dtype, dtype).text
    constant = op in ("isnan", "isinf") and not dtype.is_float
    constant = constant or (op == "signbit" and dtype is DType.BOOL)
    assert constant or all(name in text for name in names)
    assert text.count("(") == text.count(")")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (math.inf, DType.F32, "INFINITY"),
        (-math.inf, DType.F64, "-INFINITY"),
        (math.nan, DType.F32, 'nanf("")'),
        (math.nan, DType.F64, 'nan("")'),
        (0.1, DType.F32, "0.1f"),
        (0.1, DType.F64, "0.1"),
        (0.1, DType.BF16, "0.1f"),
        (2.0, DType.F16, "2.0f"),
        (1e-45, DType.F32, "1e-45f"),
        (1e39, DType.F32, "INFINITY"),
        (-1e39, DType.F32, "-INFINITY"),
        (1e39, DType.F64, "1e+39"),
        (-0.0, DType.F32, "-0.0f"),
        (3, DType.F32, "3.0f"),
        (7, DType.I32, "7"),
        (2**40, DType.I64, "1099511627776LL"),
        (-(2**63), DType.I64, "-9223372036854775807LL - 1"),
        (True, DType.BOOL, "true"),
        (0, DType.BOOL, "false"),
    ],
)
def test_literals(value: float, dtype: DType, text: str) -> None:
    assert write_literal(value, dtype).text == text


def test_parentheses_where_the_meaning_needs_them() -> None:
    total = write_call("add", [Written("a"), Written("b")], DType.F32, DType.F32)
    assert write_call("mul", [total, Written("c")], DType.F32, DType.F32).text == "(a + b) * c"
    nested = write_call("sub", [Written("c"), total], DType.F32, DType.F32)
    assert nested.text == "c - (a + b)"
    minus = write_call("neg", [write_literal(-2.0, DType.F32)], DType.F32, DType.F32)
    assert minus.text == "-(-2.0f)"


def test_narrow_integers_wrap_after_every_operation() -> None:
    text = write_call("add", [Written("a"), Written("b")], DType.U8, DType.U8).text
    assert text == "static_cast<uint8_t>(a + b)"


def test_not_of_a_boolean_is_logical() -> None:
    assert write_call("bitwise_not", [Written("a")], DType.BOOL, DType.BOOL).text == "!a"
    assert write_call("bitwise_not", [Written("a")], DType.I32, DType.I32).text == "~a"


def test_casts() -> None:
    assert write_cast(Written("a"), DType.F16, DType.F32).text == "a"
    assert write_cast(Written("a"), DType.F32, DType.BOOL).text == "a != 0"
    assert write_cast(Written("a"), DType.F32, DType.F16).text == "rounded<__half>(a)"
    assert write_cast(Written("a"), DType.BOOL, DType.F64).text == "static_cast<double>(a)"
