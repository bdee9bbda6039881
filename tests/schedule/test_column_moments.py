"""Products that make the moments of their columns for the norm that reads them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Launch, Plan
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph
from kernelwright.schedule.column_moments import with_moments
from kernelwright.schedule.planning import OPEN


class Bottleneck(nn.Module):
    """Two norms in training, each after a product of one tap; the second one's gets a bias."""

    def __init__(self, channels: int, bias: bool, training: bool) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, 128, 1, bias=False)
        self.first = nn.BatchNorm2d(128)
        self.up = nn.Conv2d(128, channels, 1, bias=bias)
        self.second = nn.BatchNorm2d(channels)
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(self.down(x)))
        return torch.relu(self.second(self.up(y)) + x)


def _plan(
    *sizes: int,
    bias: bool = False,
    training: bool = True,
    moments: frozenset[str] | None = None,
) -> Plan:
    modules = [Bottleneck(sizes[1], bias, training) for _ in range(3)]
    graph = capture_module(nn.Sequential(*modules), (torch.rand(sizes),))
    return plan_graph(graph, H200, choices=replace(OPEN, by_place=True, moments=moments)).plan


@pytest.mark.parametrize(
    ("sizes", "options", "count"),
    [
        # The last one's norm is computed with channels first, as its result lies.
        ((10, 512, 14, 14), {}, 5),
        # Of 31,360 rows there are 1,960 parts.
        ((10, 512, 56, 56), {}, 0),
        # What is stored is more than a sum.
        ((10, 512, 14, 14), {"bias": True}, 3),
        ((10, 512, 14, 14), {"training": False}, 0),
        ((10, 512, 14, 14), {"moments": frozenset()}, 0),
    ],
)
def test_products_of_few_rows_make_moments_for_the_norm_after_them(
    sizes: tuple[int, ...], options: dict[str, object], count: int
) -> None:
    plan = _plan(*sizes, **options)  # type: ignore[arg-type]
    assert len(with_moments(plan)) == count
    launches = [step for step in plan.steps if isinstance(step, Launch) and step.kernel.moments]
    made = {step.results[-1] for step in launches if step.kernel.family == "gemm"}
    assert made == {step.inputs[-1] for step in launches if step.kernel.family == "rows"}
    parts = {step.kernel.outputs[-1].shape[0].hint for step in launches if len(step.results) > 1}
    assert len(made) == count and (count == 0 or 123 in parts)
