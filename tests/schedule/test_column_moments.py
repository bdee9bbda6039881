"""Products that make the moments of their columns for the norm that reads them."""

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.codegen import emit_module
from kernelwright.ir.plan import Launch, Plan, Room
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.program import Program
from kernelwright.ir.window_configs import WindowConfig
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph
from kernelwright.schedule.apart import kept_apart
from kernelwright.schedule.column_moments import having_moments
from kernelwright.schedule.planning import OPEN
from kernelwright.tune.plans import with_configs


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


def _modules(channels: int, *, bias: bool = False, training: bool = True) -> nn.Module:
    return nn.Sequential(*(Bottleneck(channels, bias, training) for _ in range(3)))


def _plan(module: nn.Module, *sizes: int, moments: frozenset[str] | None = None) -> Plan:
    graph = capture_module(module, (torch.rand(sizes),))
    return plan_graph(graph, H200, choices=replace(OPEN, by_place=True, moments=moments)).plan


@pytest.mark.parametrize(
    ("sizes", "options", "count"),
    [
        ((10, 512, 14, 14), {}, 6),
        # Of 7,840 rows there are 123 parts: too many for each block that writes results. The last
        # norm has a kernel of totals, as its results are written with channels first.
        ((10, 512, 28, 28), {}, 1),
        # Norms of more elements than the L2 cache holds have one, too.
        ((10, 512, 56, 56), {}, 3),
        ((10, 512, 112, 112), {}, 0),
        # What is stored is more than a sum.
        ((10, 512, 14, 14), {"bias": True}, 3),
        ((10, 512, 14, 14), {"training": False}, 0),
    ],
)
def test_products_of_few_rows_make_moments_for_the_norm_after_them(
    sizes: tuple[int, ...], options: dict[str, bool], count: int
) -> None:
    plan = _plan(_modules(sizes[1], **options), *sizes)
    assert len(having_moments(plan)) == count
    launches = [step for step in plan.steps if isinstance(step, Launch) and step.kernel.moments]
    made = {step.results[-1] for step in launches if step.kernel.family == "gemm"}
    assert made == {step.inputs[-1] for step in launches if step.kernel.family == "rows"}
    makers = [step.kernel for step in launches if step.kernel.makes_moments]
    parts = {kernel.outputs[-1].shape[0].hint for kernel in makers}
    assert len(made) == count and parts <= {31, 123, 490}


def test_moments_are_a_choice_and_change_no_value() -> None:
    sizes, module = (10, 512, 14, 14), _modules(512)
    plan = _plan(module, *sizes)
    some = frozenset(sorted(having_moments(plan))[:2])
    assert having_moments(_plan(module, *sizes, moments=some)) == some
    given = torch.rand(sizes)
    with torch.no_grad():
        torch.testing.assert_close(run_plan(plan, module, (given,)), module(given))
    # No node of the graph is what one kernel makes for another: people read of values alone, and
    # the file has the moments where its launches are no one call, too.
    assert not any("moments" in it.result for it in kept_apart(plan))
    apart = Program(plan=plan, parts=plan.steps, in_place={})
    with patch("kernelwright.codegen.candidate.program_of", lambda plan: apart):
        source = emit_module("layers", "self, x", plan).source
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    (made,) = (step.inputs[-1] for step in launches if step.result == min(some))
    assert source.count(made) >= 3


class TwoNorms(nn.Module):
    """Two norms of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(512, 128, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(128) for _ in range(2))
        self.up = nn.Conv2d(128, 512, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(x)
        one, other = (norm(y) for norm in self.norms)
        return self.up(torch.relu(one) * torch.sigmoid(other).roll(1, 0))


def test_several_norms_begin_with_the_same_moments() -> None:
    plan = _plan(TwoNorms(), 10, 512, 14, 14)
    launches = [step for step in plan.steps if isinstance(step, Launch) and step.kernel.moments]
    made = [step.results[-1] for step in launches if step.kernel.family == "gemm"]
    read = [step.inputs[-1] for step in launches if step.kernel.family == "rows"]
    assert len(made) == 1 and set(read) == set(made), (made, read)


class Separable(nn.Module):
    """A depthwise convolution between two norms in training, and one of one tap."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 64, 1, bias=False)
        self.channels = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
        self.pixels = nn.Conv2d(64, 64, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip((self.first, self.channels, self.pixels), self.norms, strict=True):
            x = torch.relu(norm(layer(x)))
        return x


@pytest.mark.parametrize("side", [14, 12])
def test_depthwise_convolutions_make_moments_in_parts_of_their_blocks(side: int) -> None:
    module = nn.Sequential(*(Separable() for _ in range(2)))
    plan = _plan(module, 10, 64, side, side)
    made = [it for it in plan.kernels if it.makes_moments and it.family == "pooling"]
    (kernel,) = made
    config = kernel.config
    assert isinstance(config, WindowConfig) and kernel.outputs[-1].shape[1].hint == 64
    assert {it.family for it in plan.kernels if it.makes_moments} == {"gemm", "pooling"}
    # In another configuration both have others.
    changed = with_configs(plan, {kernel.name: replace(config, steps=2, outputs=1)})
    made_by = {
        it.results[-1]: it.kernel
        for it in changed.steps
        if isinstance(it, Launch) and it.kernel.makes_moments
    }
    read = [it for it in changed.steps if isinstance(it, Launch) and it.inputs[-1] in made_by]
    assert read and all(it.kernel.inputs[-1] == made_by[it.inputs[-1]].outputs[-1] for it in read)
    own = {it.outputs[-1].shape[0].hint for it in made_by.values() if it.family == "pooling"}
    groups = min(32, 64 // config.vector)
    assert own == {-(-10 * side * (side // 2) // (config.threads // groups))}


class Dense(nn.Module):
    """Layers of a dense block: each reads what is before it side by side."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 256, 1, bias=False)
        widths = [256 + 32 * layer for layer in range(layers)]
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)
        self.layers = nn.ModuleList(nn.Conv2d(it, 32, 3, padding=1, bias=False) for it in widths)
        self.last = nn.BatchNorm2d(256 + 32 * layers)
        self.pixels = nn.Conv2d(256 + 32 * layers, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = torch.cat([x, layer(torch.relu(norm(x)))], dim=1)
        return self.pixels(torch.relu(self.last(x)))


def test_norms_of_what_several_write_side_by_side_read_it_themselves() -> None:
    torch.manual_seed(0)
    sizes, module = (10, 64, 14, 14), Dense(3)
    graph = capture_module(module, (torch.rand(sizes),))
    plan = plan_graph(graph, H200, choices=replace(OPEN, by_place=True)).plan
    assert any(isinstance(step, Room) for step in plan.steps)
    # The first norm reads what one product writes, wherever that lies.
    assert [it.family for it in plan.kernels if it.moments] == ["gemm", "rows"]
    given = torch.rand(sizes)
    with torch.no_grad():
        torch.testing.assert_close(run_plan(plan, module, (given,)), module(given))
