"""Calls that would keep the host longer than the card are kernels of ours."""

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule


class Chain(nn.Module):
    """Linear layers one after another, behind a row that is put before the others."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1, width))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat((self.first, x))
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


@pytest.mark.parametrize(
    ("layers", "rows", "width", "left"),
    [
        (6, 19, 128, []),
        (6, 299, 512, []),
        (1, 19, 128, ["aten.cat.default", "aten.linear.default"]),
    ],
)
def test_a_chain_of_short_calls_is_ours(
    layers: int, rows: int, width: int, left: list[str]
) -> None:
    graph = rewrite(capture_module(Chain(layers, width), (torch.zeros(rows, width),))).graph
    assert [it.name for it in schedule(graph, H200).left_to_pytorch] == left
