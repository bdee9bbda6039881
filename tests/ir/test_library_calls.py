"""Public functions in the place of operators."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelwright.ir.library_calls import PUBLIC, function_of


def _convolution(dims: int) -> tuple[Any, ...]:
    x, weight = torch.rand(2, 4, *[7] * dims), torch.rand(6, 2, *[3] * dims)
    return x, weight, torch.rand(6), [2] * dims, [1] * dims, [1] * dims, 2


def _transposed(dims: int) -> tuple[Any, ...]:
    x, weight = torch.rand(2, 4, *[5] * dims), torch.rand(4, 3, *[3] * dims)
    return x, weight, torch.rand(6), [3] * dims, [1] * dims, [2] * dims, 2, [2] * dims


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "aten.cat.default": ([torch.rand(2, 3), torch.rand(2, 1)], 1),
    "aten.linear.default": (torch.rand(2, 3), torch.rand(4, 3), torch.rand(4)),
    "aten.matmul.default": (torch.rand(2, 3), torch.rand(3, 4)),
    "aten.roll.default": (torch.rand(4, 5), [1, -2], [0, 1]),
    **{f"aten.conv{dims}d.default": _convolution(dims) for dims in (1, 2, 3)},
    "aten.conv_transpose1d.default": _transposed(1),
    "aten.conv_transpose2d.input": _transposed(2),
    "aten.conv_transpose3d.input": _transposed(3),
}
"""All that the operator takes, in its order."""


def _found(path: str) -> Callable[..., torch.Tensor]:
    found: Any = torch
    for name in path.removeprefix("torch.").split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("operator", PUBLIC)
def test_the_function_is_the_operator(operator: str) -> None:
    arguments = ARGUMENTS[operator]
    names = _found(f"ops.{operator}")._schema.arguments  # type: ignore[attr-defined]
    assert len(arguments) == len(names), "every argument has its place"
    expected = _found(f"ops.{operator}")(*arguments)
    assert torch.equal(_found(function_of(operator))(*arguments), expected)


def test_any_other_operator_is_called_itself() -> None:
    assert function_of("aten.lstm.input") == "torch.ops.aten.lstm.input"
