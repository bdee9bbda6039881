"""Which convolutions get channels-last operands, and what reads their results."""

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Plan, RowKernel, TorchCall
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule


class Totals(nn.Module):
    """Totals over the channels of a convolution."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 64, 3, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.min(self.convolution(x), dim=1, keepdim=True)[0].tanh()


class Steps(nn.Module):
    """Steps on each element of a convolution's result."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x).relu()


def _plan(module: nn.Module, side: int, batch: int = 16) -> Plan:
    with torch.no_grad():
        graph = capture_module(module.eval(), (torch.empty(batch, 16, side, side),))
    return schedule(rewrite(graph).graph, H200)


def _reads_turned(plan: Plan) -> bool:
    (call,) = (step for step in plan.steps if isinstance(step, TorchCall))
    return call.call.refs[0] != "x"


def test_rows_of_channels_are_read_as_they_lie() -> None:
    plan = _plan(Totals(), 128)
    assert _reads_turned(plan)
    (rows,) = (kernel for kernel in plan.kernels if isinstance(kernel, RowKernel))
    assert rows.turned
    # Rows of neighbours, though the channels are not the last dimension.
    assert "rows on chip" in str(rows.config)


@pytest.mark.parametrize(("side", "turned"), [(127, True), (128, False)])
def test_steps_turn_results_that_are_no_whole_vectors(side: int, turned: bool) -> None:
    plan = _plan(Steps(), side)
    assert _reads_turned(plan) == turned
    assert plan.kernels[-1].operators[-1] == "relu"
    assert len(plan.kernels) == 1 + turned


def test_groups_and_small_convolutions_stay_as_they_are() -> None:
    assert not _reads_turned(_plan(Totals(groups=16), 128))
    assert not _reads_turned(_plan(Totals(), 16, batch=1))
