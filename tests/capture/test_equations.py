"""In which order several operands are multiplied, and what a call of several stands for."""

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Pointwise, View


class Einsum(nn.Module):
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, *tensors)


SIZES = {"b": 6, "l": 24, "s": 24, "n": 8, "p": 24}


def nodes_of(equation: str) -> list[Node]:
    words = equation.partition("->")[0].split(",")
    inputs = [torch.rand([SIZES[letter] for letter in word]) for word in words]
    graph = capture_module(Einsum(equation), inputs)
    return [node for node in graph.nodes if node.inputs and not isinstance(node.kind, View)]


@pytest.mark.parametrize(
    ("equation", "kinds"),
    [
        # After the sum, the factor of each row is computed with what comes next.
        ("bln,bpn,bl->blp", [Contract, Pointwise]),
        # Of the two that it can be multiplied with before the sum, the smaller one.
        ("bln,bl,blp->bpn", [Pointwise, Contract]),
        ("bln,bsn,bls,bsp->blp", [Contract, Pointwise, Contract]),
    ],
)
def test_what_is_only_multiplied_comes_after_the_sum(
    equation: str, kinds: list[type[Contract] | type[Pointwise]]
) -> None:
    nodes = nodes_of(equation)
    assert [type(node.kind) for node in nodes] == kinds
    if kinds[0] is Pointwise:
        assert nodes[0].tensor.numel_hint == SIZES["b"] * SIZES["l"] * SIZES["n"]


def test_a_call_of_two_operands_is_its_product() -> None:
    (product,) = nodes_of("bln,bpn->blp")
    assert product.part_of is not None


def test_of_a_call_of_three_operands_the_product_can_be_left_alone() -> None:
    (product,) = (x for x in nodes_of("bln,bpn,bl->blp") if isinstance(x.kind, Contract))
    assert product.part_of is None
