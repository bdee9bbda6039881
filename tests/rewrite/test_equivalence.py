"""Rewritten graphs compute what PyTorch computes, and become the kernels that they should."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Contract, Pointwise
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule

Forward = Callable[..., torch.Tensor]

SCALINGS: dict[str, tuple[Forward, tuple[str, str]]] = {
    "diag @": (lambda a, b: torch.diag(a) @ b, ("n", "nm")),
    "@ diag": (lambda a, b: b @ torch.diag(a), ("n", "mn")),
    "mm": (lambda a, b: torch.mm(torch.diag(a), b), ("n", "nm")),
    "diag_embed": (lambda a, b: torch.matmul(torch.diag_embed(a), b), ("n", "nm")),
    "batched diag_embed": (lambda a, b: torch.diag_embed(a) @ b, ("kn", "knm")),
    "einsum": (lambda a, b: torch.einsum("i,ij->ij", a, b), ("n", "nm")),
    "einsum columns": (lambda a, b: torch.einsum("j,ij->ij", a, b), ("n", "mn")),
    "unsqueeze": (lambda a, b: a.unsqueeze(1) * b, ("n", "nm")),
    "indexed": (lambda a, b: a[:, None] * b, ("n", "nm")),
}
PRODUCTS: dict[str, tuple[Forward, tuple[str, str]]] = {
    "both transposed": (lambda a, b: torch.matmul(a.T, b.T), ("kn", "mk")),
    "right transposed": (lambda a, b: a @ b.T, ("nk", "mk")),
    "left transposed": (lambda a, b: a.mT @ b, ("kn", "km")),
    "of the product": (lambda a, b: (a @ b).T, ("nk", "km")),
    "batch broadcasts": (lambda a, b: a @ b, ("bnk", "km")),
    "batch": (lambda a, b: torch.bmm(a, b), ("bnk", "bkm")),
    "linear on three dimensions": (lambda a, b: nn.functional.linear(a, b), ("bnk", "mk")),
    "vector @ matrix": (lambda a, b: a @ b, ("k", "kn")),
    "matrix @ vector": (lambda a, b: a @ b, ("nk", "k")),
}
SIZES = st.fixed_dictionaries({letter: st.integers(2, 5) for letter in "bkmn"})


class Function(nn.Module):
    """A module of one function."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.function(a, b)


def operands(letters: tuple[str, str], sizes: dict[str, int]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ([sizes[letter] for letter in word] for word in letters)
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def check(run: Any, function: Forward, args: list[torch.Tensor]) -> Any:
    module = Function(function)
    result = rewrite(capture_module(module, args))
    actual = run(result.graph, module, args, {})
    torch.testing.assert_close(actual, module(*args))
    return result


@pytest.mark.parametrize("name", SCALINGS)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(sizes=SIZES)
def test_scalings_are_one_pointwise_kernel(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = SCALINGS[name]
    args = operands(letters, sizes)
    result = check(run, function, args)
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["pointwise"]
    assert plan.left_to_pytorch == ()
    largest = max(arg.numel() for arg in args)
    assert max(node.tensor.numel_hint for node in result.graph.nodes) == largest


@pytest.mark.parametrize("name", PRODUCTS)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(sizes=SIZES)
def test_products_are_one_gemm(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = PRODUCTS[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["gemm"]
    assert plan.left_to_pytorch == ()
    (contract,) = (node for node in result.graph.nodes if isinstance(node.kind, Contract))
    assert set(contract.inputs) == {"a", "b"}, "an operand is not read as it lies"


UNARY = (
    torch.neg,
    torch.abs,
    torch.relu,
    torch.floor,
    lambda x: x * 1,
    lambda x: x - 0.0,
    lambda x: x / 1,
    torch.sin,
    lambda x: x.transpose(0, 1).transpose(0, 1),
)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=6))
def test_random_expressions(steps: list[tuple[int, int]], run: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        values = [a, b]
        for operation, other in steps:
            if operation < len(UNARY):
                values.append(UNARY[operation](values[-1]))
            else:
                second = values[other % len(values)]
                values.append(BINARY[operation - len(UNARY)](values[-1], second))
        return values[-1] + 1

    check(run, function, operands(("nm", "nm"), {"n": 3, "m": 4}))


def test_minus_zero_is_not_zero(run: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return 1 / (a * 0.0) - 1 / (a * -0.0) + b

    graph = check(run, function, [torch.ones(3), torch.ones(3)]).graph
    assert sum(isinstance(n.kind, Pointwise) and n.operators == ("mul",) for n in graph.nodes) == 2
