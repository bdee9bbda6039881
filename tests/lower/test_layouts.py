"""Layouts of lowered graphs: what the types say is so in memory, and what follows from them."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.interpreter import GraphRun
from kernelwright.ir.kinds import Conv, Pointwise, Relayout, Scan
from kernelwright.ir.spec import check
from kernelwright.ir.types import Layout, TensorType
from kernelwright.lower import lower, on_channels_last
from kernelwright.lower.layouts import with_layouts
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite

NHWC = Layout.channels_last(4)
AFTER = (
    torch.relu,
    lambda y: functional.instance_norm(y) * 2,
    lambda y: functional.group_norm(y, 2) + 1,
    lambda y: functional.max_pool2d(y, 2),
    lambda y: torch.softmax(y, 1) + 1,
    lambda y: torch.cumsum(y, 3),
)


class Branches(nn.Module):
    """Convolutions of one input, and a function of each result."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(4, 8, 3) for _ in AFTER])
        self.permuted = nn.Conv2d(9, 3, 2)

    def forward(self, x: Tensor) -> list[Tensor]:
        branches = zip(AFTER, self.convolutions, strict=True)
        found = [after(convolution(x)) for after, convolution in branches]
        return [*found, self.permuted(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) * 2]


class LaidOut(GraphRun):
    """A call that compares the strides of every value with the layout of its type."""

    def check(self, node: Node) -> None:
        super().check(node)
        layout = node.type.layout if isinstance(node.type, TensorType) else None
        if layout is not None:
            value = self.values[node.name]
            assert value.permute(layout.order).is_contiguous(), f"{node.name}: {value.stride()}"


X = torch.rand(2, 4, 11, 9)


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return Branches().eval()


@pytest.fixture(scope="module")
def graph(module: nn.Module) -> Graph:
    """The lowered graph, with convolutions of `x` itself on channels-last operands."""
    with torch.no_grad():
        rewritten = rewrite(capture_module(module, (X,))).graph
    convolutions = (node for node in rewritten.nodes if isinstance(node.kind, Conv))
    names = [node.name for node in convolutions if node.inputs[0] == "x"]
    assert len(names) == len(AFTER)
    return lower(on_channels_last(rewritten, names), H200).graph


@torch.no_grad()
def test_values_lie_as_their_types_say(module: nn.Module, graph: Graph) -> None:
    found = LaidOut(check(graph), module, {"x": X}).result()
    torch.testing.assert_close(found, module(X), rtol=1e-4, atol=1e-5)


def test_convolutions_have_the_layout_of_their_operands(graph: Graph) -> None:
    convolutions = [node for node in graph.nodes if isinstance(node.kind, Conv)]
    assert len(convolutions) == len(AFTER) + 1
    for node in convolutions:
        assert node.tensor.layout == graph[node.inputs[0]].tensor.layout == NHWC
    # What the caller permutes is as it was called; permuted back it is row-major.
    (called,) = (node for node in convolutions if node.kind.channels_last is None)
    (back,) = graph.users()[called.name]
    assert graph[back].tensor.layout is None


def test_one_operand_is_laid_out_anew_for_all_that_read_it(graph: Graph) -> None:
    copies = {node.name: node for node in graph.nodes if isinstance(node.kind, Relayout)}
    assert [name for name in copies if name.startswith("x_")] == ["x_channels_last"]
    for name in ("x_channels_last", "max_pool2d"):
        assert graph[copies[name].inputs[0]].tensor.is_transposed
        assert not copies[name].tensor.is_transposed


def test_a_step_on_another_layout_is_no_part_of_a_kernel_with_an_anchor(graph: Graph) -> None:
    (scan,) = (node for node in graph.nodes if isinstance(node.kind, Scan))
    step = graph[scan.inputs[0]]
    assert isinstance(step.kind, Pointwise) and step.unanchored
    assert step.tensor.layout is None and graph[step.inputs[0]].tensor.layout == NHWC


def test_layouts_are_there_once_lowered(graph: Graph) -> None:
    assert str(with_layouts(graph)) == str(graph)  # a printed graph has them
