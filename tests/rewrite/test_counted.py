"""Indices that count up along the dimensions of a tensor pick the tensor itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.kinds import Opaque
from kernelwright.rewrite import rewrite

Pick = Callable[[Tensor, Tensor, Tensor], Tensor]


class Picks(nn.Module):
    """Elements of sums by indices that count up, as masks of packed texts have them."""

    def __init__(self, pick: Pick) -> None:
        super().__init__()
        self.pick = pick

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (torch.arange(size) + 0 for size in x.shape)
        return self.pick(x.cumsum(1), rows, columns)


@pytest.mark.parametrize(
    ("pick", "left"),
    [
        (lambda x, i, j: x[i[:, None, None], j[None, :, None]] * 2, 0),
        (lambda x, i, j: x[i[:, None, None, None], j] * 2, 0),
        (lambda x, i, j: x[i, j[:, None]] * 2, 1),  # transposed
        (lambda x, i, j: x[i[:, None], j[:2]] * 2, 1),
        (lambda x, i, j: x[i[:, None], j - 1] * 2, 1),
        (lambda x, i, j: x[i[:, None], j], 1),  # the caller sees a copy
    ],
)
def test_indices_that_count_up_pick_nothing(run: Callable[..., Any], pick: Pick, left: int) -> None:
    module, x = Picks(pick), torch.rand(4, 3)
    graph = rewrite(capture_module(module, (x,))).graph
    assert sum(isinstance(node.kind, Opaque) for node in graph.nodes) == left
    again = torch.rand(3, 4) if left == 0 else x
    torch.testing.assert_close(run(graph, module, (again,), {}), module(again))
