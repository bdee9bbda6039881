"""Which reductions a convolution's kernel makes before anything is written, and what they give."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import Convolution
from kernelwright.ir.conv_configs import ConvConfig, ConvSchedule
from kernelwright.ir.plan import Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import A100, H200, Machine
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, plan_graph

assert H200.convolutions is not None
_SLOW = replace(H200, convolutions=replace(H200.convolutions, turning_bandwidth=1e6))
"""A card that takes long to read results."""


class _Reduced(nn.Module):
    """A convolution of 16 channels to 24, and what is made of its results."""

    def __init__(self, after: Callable[..., Tensor], layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer = layer or nn.Conv2d(16, 24, 3)
        self.after = after

    def forward(self, x: Tensor, near: Tensor) -> Tensor:
        return self.after(self.layer(x), near)


def _plan(module: nn.Module, given: tuple[Tensor, ...], machine: Machine = _SLOW) -> Plan:
    graph = rewrite(capture_module(module, given)).graph
    return plan_graph(graph, machine, Library.NEVER).plan


def _reductions(plan: Plan) -> list[tuple[object, ...]]:
    convs = [it.anchor for it in plan.kernels if isinstance(it.anchor, Convolution)]
    reductions = [it.conv.reduction for it in convs]
    return [
        (it.window, it.over_windows, it.over_channels)
        for it in reductions
        if it is not None and it.moments is None
    ]


def _given(side: int = 13) -> tuple[Tensor, Tensor]:
    return torch.rand(2, 16, side, side) - 0.3, torch.rand(24, side - 2, side - 2)


_NOTHING: list[tuple[object, ...]] = []


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (lambda y, z: F.max_pool2d(F.relu(y), 2), [((2, 2), "maximum", None)]),
        (lambda y, z: F.avg_pool2d(y, (1, 3)), [((1, 3), "sum", None)]),
        (lambda y, z: F.max_pool2d(F.max_pool2d(y, 2), 2), [((4, 4), "maximum", None)]),
        (lambda y, z: F.avg_pool2d(F.max_pool2d(y, 2), 2), [((2, 2), "maximum", None)]),
        (lambda y, z: F.max_pool2d(y, 2).sum(1), [((2, 2), "maximum", "sum")]),
        (lambda y, z: torch.tanh(y).amin(1, keepdim=True), [((1, 1), None, "minimum")]),
        (lambda y, z: (y * z[:, :1, :1]).amax((2, 3)), [((8, 8), "maximum", None)]),
        # Programs over channels, with one result for all of them and one for each.
        (lambda y, z: torch.sigmoid(torch.logsumexp(y * 2, 1)), [((1, 1), None, "exp_sum")]),
        (lambda y, z: torch.tanh(F.softmax(y, 1) + z), [((1, 1), None, "exp_sum")]),
        (lambda y, z: F.log_softmax(F.relu(y), 1), [((1, 1), None, "exp_sum")]),
        # Totals that others read too, values that others read, other rows, more than a row.
        (lambda y, z: F.softmax(y, 1) + torch.logsumexp(y, 1, keepdim=True), _NOTHING),
        (lambda y, z: F.softmax(y, 1) * y, _NOTHING),
        (lambda y, z: F.softmax(y, 2), _NOTHING),
        (lambda y, z: torch.logsumexp(y, (1, 2)), _NOTHING),
        # Windows that overlap or are padded, operands by place, results that somebody reads.
        (lambda y, z: F.max_pool2d(y, 3, 2), _NOTHING),
        (lambda y, z: F.max_pool2d(y, 2, padding=1), _NOTHING),
        (lambda y, z: F.max_pool2d(y + z, 2), _NOTHING),
        (lambda y, z: F.max_pool2d(y, 2) + y.mean(), _NOTHING),
        (lambda y, z: y.prod(1), _NOTHING),
        (lambda y, z: F.max_pool2d(F.mish(F.mish(y)), 2), _NOTHING),
    ],
)
def test_what_a_convolution_reduces(
    after: Callable[..., Tensor], found: list[tuple[object, ...]]
) -> None:
    torch.manual_seed(0)
    module, given = _Reduced(after), _given()
    plan = _plan(module, given)
    assert _reductions(plan) == found
    with torch.no_grad():
        for args in (given, _given(16)):
            result = run_plan(plan, module, args)
            torch.testing.assert_close(result, module(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (nn.Conv2d(16, 130, 3), "no tile has all channels"),
        (nn.Conv2d(16, 24, 3, groups=2), "groups"),
        (nn.ConvTranspose2d(16, 24, 3, stride=3), "windows are no whole number of phases"),
    ],
)
def test_tiles_that_cannot_reduce(layer: nn.Module, why: str) -> None:
    module = _Reduced(lambda y, z: F.max_pool2d(y, 2).amin(1), layer)
    assert all(over is None for *_, over in _reductions(_plan(module, _given()))), why


@pytest.mark.parametrize(
    ("layer", "shape", "tile"),
    [
        # Rows, joined dimensions and their phases: all of 16 channels; of more, as many as fit.
        (nn.ConvTranspose3d(3, 16, 3, 2, 1), (128, 3, 16, 32, 32), (128, 3, 8)),
        (nn.ConvTranspose3d(32, 64, 3, 2, 1, 1), (16, 32, 16, 32, 32), (256, 2, 4)),
        (nn.ConvTranspose2d(64, 128, 4, 2, 1, 1), (128, 64, 64, 64), (256, 1, 2)),
        # Three phases do not share a warp's rows evenly, and apart they store too slowly.
        (nn.ConvTranspose2d(64, 24, 3, 3), (64, 64, 64, 64), None),
        (nn.Conv2d(16, 130, 3), (128, 16, 64, 64), None),
        (nn.Conv2d(16, 24, 3, groups=2), (128, 16, 64, 64), None),
    ],
)
def test_tiles_that_have_all_channels_of_a_row(
    layer: nn.Module, shape: tuple[int, ...], tile: tuple[int, ...] | None
) -> None:
    with torch.device("meta"):
        module = _Reduced(lambda y, z: F.softmax(y, 1), layer).to("meta")
        plan = _plan(module, (torch.empty(shape), torch.empty(1)), H200)
    assert bool(_reductions(plan)) == (tile is not None)
    if tile is not None:
        (config,) = [it.config for it in plan.kernels if isinstance(it.anchor, Convolution)]
        assert isinstance(config, ConvConfig)
        assert (config.channels, config.joined, config.fold_phases) == tile


def test_a_reduction_that_is_slower_stays_apart() -> None:
    # Windows of 64 results are phases of one position: a tile would be all but empty.
    module = _Reduced(lambda y, z: y.mean((2, 3)))
    assert _reductions(_plan(module, _given(10), H200)) == []
    large = _Reduced(lambda y, z: F.max_pool2d(torch.tanh(y), 2))
    given = (torch.empty(128, 16, 64, 64), torch.empty(24, 62, 62))
    assert _reductions(_plan(large, given, H200)) == [((2, 2), "maximum", None)]
    assert _reductions(_plan(large, given, A100)) == []


class _Windows(nn.Module):
    """A layer, a step and maxima over windows of as many results in each dimension."""

    def __init__(self, layer: nn.Module, step: Callable[[Tensor], Tensor], window: int) -> None:
        super().__init__()
        self.layer, self.step, self.window = layer, step, window

    def forward(self, x: Tensor) -> Tensor:
        pool = F.max_pool2d if x.ndim == 4 else F.max_pool3d
        return pool(self.step(self.layer(x)), self.window)


@pytest.mark.parametrize(
    ("module", "shape", "schedule"),
    [
        # Timed: 2.11 ms by shared tiles, 2.56 in turn; 1.15 with maxima apart, 1.48 in the tile.
        (_Windows(nn.Conv2d(8, 64, 3), torch.tanh, 4), (128, 8, 256, 256), ConvSchedule.SHARED),
        (
            _Windows(nn.ConvTranspose3d(3, 16, 3, 2, 1, 1), nn.Identity(), 2),
            (128, 3, 16, 32, 32),
            None,
        ),
    ],
)
def test_windows_are_reduced_as_is_fastest(
    module: nn.Module, shape: tuple[int, ...], schedule: ConvSchedule | None
) -> None:
    with torch.device("meta"):
        plan = _plan(module.to("meta"), (torch.empty(shape),), H200)
    (config,) = [it.config for it in plan.kernels if isinstance(it.anchor, Convolution)]
    assert isinstance(config, ConvConfig)
    assert bool(_reductions(plan)) == (schedule is not None)
    assert schedule is None or config.schedule is schedule
