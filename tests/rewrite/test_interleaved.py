"""Slices with steps that together are the whole are one permutation of it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Concat
from kernelwright.rewrite import rewrite

_Function = Callable[[Tensor], Tensor]


class Applied(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: _Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _corners(x: Tensor) -> Tensor:
    x = x.unsqueeze(-1)
    return torch.cat([x[:, r::2, c::2] for c in (0, 1) for r in (0, 1)], -1)


_WHOLE: list[_Function] = [
    _corners,
    lambda x: torch.cat([x[:, r::2, c::2] for r in (0, 1) for c in (0, 1)], 0),
    lambda x: torch.cat([x[..., at::3] for at in range(3)], 1),
]
_OTHER: list[_Function] = [
    lambda x: torch.cat([x[:, 1::2], x[:, ::2]], 0),  # in another order
    lambda x: torch.cat([x[:, ::2], x[:, ::2]], 0),
    lambda x: torch.cat([x[:, :-1:2], x[:, 1::2]], 0),  # it does not end with the tensor
    lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1),  # along the dimension of the steps
    lambda x: torch.cat([x[:, ::2], (x + 1)[:, 1::2]], 0),
]


@pytest.mark.parametrize("function", [*_WHOLE, *_OTHER])
def test_corners_of_squares(function: _Function) -> None:
    module = Applied(function)
    graph = rewrite(capture_module(module, (torch.rand(2, 4, 6),))).graph
    joins = any(isinstance(node.kind, Concat) for node in graph.nodes)
    assert joins == (function in _OTHER)
    for shape in ((2, 4, 6), (3, 8, 12)):
        x = torch.rand(shape)
        assert torch.equal(run_graph(graph, module, (x,), {}), module(x))
