"""Moments that convolutions of ours make of their results: which plans have them, and values."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import Convolution
from kernelwright.ir.kinds import TileMoments
from kernelwright.ir.plan import Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph

_BESIDE, _ALONE = TileMoments.BESIDE, TileMoments.ALONE


class Convolved(nn.Module):
    """A convolution, and a function of its results."""

    def __init__(self, after: Callable[[Tensor], Tensor], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 64, 3)
        self.norm = nn.Identity() if norm is None else norm
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.norm(self.convolution(x)))


def _planned(module: nn.Module, memory: float = 1.0) -> Plan:
    """The plan at sizes of a batch that no block holds; `memory`: how fast it is, by an H200's."""
    assert H200.convolutions is not None
    rates = H200.convolutions
    slow = replace(rates, turning_bandwidth=rates.turning_bandwidth * memory)
    machine = replace(H200, convolutions=slow)
    return plan_graph(
        capture_module(module, (torch.rand(128, 16, 130, 130),)), machine, Library.NEVER
    ).plan


def _moments(plan: Plan) -> list[TileMoments | None]:
    reductions = [
        it.anchor.conv.reduction for it in plan.kernels if isinstance(it.anchor, Convolution)
    ]
    return [None if it is None else it.moments for it in reductions]


def _mean(y: Tensor) -> Tensor:
    return y.mean((2, 3))


@pytest.mark.parametrize(
    ("module", "expected", "launches"),
    [
        # A batch norm's kernel reads the results once, and its buffers change as PyTorch's do.
        (Convolved(F.relu, nn.BatchNorm2d(64)), _BESIDE, 4),
        (Convolved(torch.tanh, nn.BatchNorm2d(64, track_running_stats=False)), _BESIDE, 3),
        # A group is held where it is normalised.
        (Convolved(torch.tanh, nn.GroupNorm(16, 64)), None, 2),
        # Averages of what is linear in the results follow from these alone.
        (Convolved(lambda y: F.gelu(y).mean((2, 3))), _ALONE, 2),
        (Convolved(_mean, nn.GroupNorm(2, 64)), _ALONE, 2),
        (Convolved(lambda y: (3 - y / 7).sum((0, 2, 3)), nn.GroupNorm(16, 64)), _ALONE, 3),
        (Convolved(lambda y: y.square().mean((2, 3)), nn.BatchNorm2d(64)), _BESIDE, 4),
        # The caller sees the results.
        (Convolved(lambda y: torch.cat([y, y.mean((2, 3), True).expand_as(y)])), _BESIDE, 3),
    ],
    ids=["batch", "untracked", "held", "average", "group's", "all", "squares", "seen"],
)
def test_moments_are_made_where_that_saves_reading_the_results(
    module: nn.Module, expected: TileMoments | None, launches: int
) -> None:
    plan = _planned(module)
    assert _moments(plan) == [expected]
    assert len(plan.kernels) == launches
    x, own = torch.rand(3, 16, 12, 13), copy.deepcopy(module)
    with torch.no_grad():
        found, wanted = run_plan(plan, own, (x,)), module(x)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(own.buffers(), module.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_results_are_read_where_memory_is_fast_enough() -> None:
    module = Convolved(torch.tanh, nn.BatchNorm2d(64))
    assert _moments(_planned(module, memory=100)) == [None]
