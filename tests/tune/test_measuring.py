"""What a kernel is timed on."""

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.tune.measuring import _operands


class Picking(torch.nn.Module):
    def forward(self, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return table[:, index]


@pytest.mark.parametrize("count", [1, 5000])
def test_integers_that_pick_are_in_range(count: int) -> None:
    arguments = (torch.zeros(3, count, 2), torch.zeros(400, dtype=torch.int64))
    plan = plan_graph(capture_module(Picking(), arguments), H200, Library.NEVER).plan
    _, table, index = _operands(plan.kernels[0], torch.device("cpu"))[:3]
    assert isinstance(table, torch.Tensor) and isinstance(index, torch.Tensor)
    assert table.shape[1] == count
    assert int(index.min()) >= 0 and count // 2 < int(index.max()) + 1 <= count
