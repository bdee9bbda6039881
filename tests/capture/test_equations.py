"""In which order several operands are multiplied, and what a call of several stands for."""

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.checking import check_plan
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Pointwise, View
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph


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


@pytest.mark.parametrize(
    ("equation", "operator"),
    [
        ("bln,np->blp", "aten.matmul.default"),
        ("bln,bnp->blp", "aten.matmul.default"),
        ("sbln,bnp->sblp", "aten.matmul.default"),
        # A row for each of several matrices: torch.matmul would take the rows for one matrix.
        ("bln,blnp->blp", "aten.einsum.default"),
        ("bn,bnp->bp", "aten.einsum.default"),
    ],
)
def test_what_stays_a_call_of_the_library_computes_the_product(
    equation: str, operator: str
) -> None:
    left, _ = equation.split("->")
    inputs = [torch.rand([SIZES[letter] for letter in word]) for word in left.split(",")]
    module = Einsum(equation)
    graph = capture_module(module, inputs)
    (product,) = (node for node in graph.nodes if isinstance(node.kind, Contract))
    assert product.origin is not None and product.origin.target == operator
    checks = check_plan(module, inputs, {}, graph, plan_graph(graph, H200).plan)
    assert all(check.agrees for check in checks)
