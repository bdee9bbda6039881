"""Small gathers are made in the order in which they are read."""

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Gather, Permute, Relayout, View
from kernelwright.lower import lower
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite


class Biased(nn.Module):
    """Attention with a bias by relative position, or the bias read along other dimensions."""

    def __init__(self, order: tuple[int, ...]) -> None:
        super().__init__()
        self.order = order
        self.register_buffer("index", torch.arange(81).flip(0) % 17)

    def forward(self, q: Tensor, table: Tensor) -> Tensor:
        bias = table[self.index].view(9, 9, 3).permute(self.order).contiguous()
        return ((q @ q.mT) + bias.view(3, 9, 9)).softmax(-1) @ q


@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0), (0, 2, 1)])
def test_a_bias_by_position_is_gathered_by_heads(order: tuple[int, ...]) -> None:
    module, given = Biased(order), (torch.rand(4, 3, 9, 16), torch.rand(17, 3))
    graph = lower(rewrite(capture_module(module, given)).graph, H200).graph
    torch.testing.assert_close(run_graph(graph, module, given, {}), module(*given))
    (gather,) = (node for node in graph.nodes if isinstance(node.kind, Gather))
    is_turned = order == (2, 0, 1)
    assert gather.kind == Gather(1 if is_turned else 0)
    if is_turned:
        assert graph[gather.inputs[0]].kind == View(Permute((1, 0)))
        assert not any(isinstance(node.kind, Relayout) for node in graph.nodes)
