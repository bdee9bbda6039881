"""Graph and plan against a call of the module, by the interpreters."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import kernelwright as kw
from kernelwright.capture import capture_module
from kernelwright.checking import check_plan
from kernelwright.cli import app
from kernelwright.ir.calls import Record
from kernelwright.ir.expr import Expr, Literal, transform
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Pointwise
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph

EXAMPLE = Path(__file__).parents[1] / "examples" / "linear_relu_div.py"


class Counting(nn.Module):
    """A norm whose buffers change, and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> dict[str, torch.Tensor]:
        return {"y": torch.softmax(self.norm(x) * scale, 1)}


def test_a_module_agrees_with_itself() -> None:
    graph, plan = kw.check(Counting(), (torch.rand(6, 4),), {"scale": 3.0})
    assert (graph.stage, plan.stage) == ("graph", "plan")
    assert graph.agrees and plan.agrees
    assert graph.tensors == plan.tensors == 4  # the result and three buffers
    assert "structure and classes as in a call" in str(plan)


def test_what_is_wrong_is_named() -> None:
    module, x = Counting(), torch.rand(6, 4)
    graph = capture_module(module, (x,))
    plan = plan_graph(graph, H200).plan

    def wrong(leaf: Expr) -> Expr:
        return replace(leaf, value=leaf.value + 1) if isinstance(leaf, Literal) else leaf

    def spoiled(node: Node) -> Node:
        if not isinstance(node.kind, Pointwise):
            return node
        return replace(node, kind=Pointwise(transform(node.kind.expr, wrong)), origin=None)

    values = replace(graph, nodes=tuple(map(spoiled, graph.nodes)))
    boxed = replace(graph, returns=Record("tuple", (graph.returns,)))
    for other, sentence in [(values, "of its RMS away"), (boxed, "is a tuple, in a call a dict")]:
        found, fine = check_plan(module, (x,), {}, other, plan)
        assert sentence in found.difference
        assert fine.agrees


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_explain_checks_a_file(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["explain", str(EXAMPLE), "--no-graphs", "--check", *words])
    assert done.exit_code == 0
    assert "plan" in done.output
    assert ("checked     graph: 1 tensors" in done.output) is (not words)
