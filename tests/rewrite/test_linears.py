"""Linear layers of PyTorch get their rows in the order of memory."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Opaque, Permute, Relayout, Reshape, View
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph


class Turned(nn.Module):
    """Rows of a batch that come second, as nn.MultiheadAttention has them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(768, 2304, bias=bias), nn.Linear(768, 768, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.layer(x.transpose(0, 1))
        heads = rows.unflatten(-1, (3, 12, 64)).permute(2, 1, 3, 0, 4)
        found = F.scaled_dot_product_attention(*heads)
        joined = found.permute(2, 0, 1, 3).reshape(x.shape[0] * x.shape[1], 768)
        return self.out(joined).view(x.shape[1], x.shape[0], 768).transpose(0, 1) + x


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_rows_are_not_turned_for_a_layer(bias: bool) -> None:
    module, x = Turned(bias).bfloat16(), torch.rand(32, 197, 768).bfloat16()
    graph = plan_graph(capture_module(module, (x,)), H200).plan.graph
    layers = [it for it in graph.nodes if isinstance(it.kind, Opaque)]
    assert len(layers) == 2
    first, second = (graph[it.inputs[0]] for it in layers)
    assert first.name == "x"
    # The library has the heads of an attention side by side: nothing is copied.
    assert second.kind == View(Reshape()) and _turns(graph, second.inputs[0]) == (0, 2, 1, 3)
    small = torch.rand(2, 5, 768).bfloat16()
    found = run_graph(graph, module, (small,), {})
    torch.testing.assert_close(found, module(small), rtol=2e-2, atol=2e-2)


def _turns(graph: Graph, name: str) -> tuple[int, ...] | None:
    kind = graph[name].kind
    return kind.map.dims if isinstance(kind, View) and isinstance(kind.map, Permute) else None


class InWindows(nn.Module):
    """Rows that are joined in another order than that of memory, which copies them anyway."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(96, 288)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.view(-1, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5)
        return self.layer(parts.reshape(-1, 49, 96))


@torch.no_grad()
def test_rows_that_are_copied_are_so_before_the_layer_makes_more_of_them() -> None:
    module, x = InWindows().bfloat16(), torch.rand(32, 56, 56, 96).bfloat16()
    graph = plan_graph(capture_module(module, (x,)), H200).plan.graph
    assert any(isinstance(it.kind, Opaque) for it in graph.nodes)
    copied = [it.tensor.shape[-1].hint for it in graph.nodes if isinstance(it.kind, Relayout)]
    assert copied == [96]
