"""Float32 networks whose convolutions are products of patches in TF32, with channels last."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.kinds import Contract, Conv, Pooling
from kernelwright.ir.plan import Plan, TorchCall
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.machine import H200
from kernelwright.schedule import plan_graph
from kernelwright.schedule.planning import OPEN, Planned


class Features(nn.Module):
    """Features of which each layer reads all before: a norm, one tap, and nine for 32 more."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(64 + 32 * at) for at in range(layers))
        self.pixels = nn.ModuleList(
            nn.Conv2d(64 + 32 * at, 128, 1, bias=False) for at in range(layers)
        )
        self.places = nn.ModuleList(nn.Conv2d(128, 32, 3, padding=1) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for norm, pixels, places in zip(self.norms, self.pixels, self.places, strict=True):
            y = torch.relu(norm(torch.cat(found, 1) if len(found) > 1 else x))
            found.append(places(torch.relu(pixels(y))))
        return torch.cat(found, 1).mean((2, 3))


def _planned(module: nn.Module, *sizes: int, by_place: bool | None = None) -> Planned:
    graph = capture_module(module.eval(), (torch.rand(sizes),))
    return plan_graph(graph, H200, choices=replace(OPEN, by_place=by_place))


def _products(plan: Plan) -> list[tuple[Contract, object]]:
    return [(it.anchor, it.config) for it in plan.kernels if isinstance(it.anchor, Contract)]


def test_products_round_where_the_call_takes_tf32() -> None:
    plan = _planned(Features(3), 16, 64, 56, 56, by_place=True).plan
    products = _products(plan)
    assert len(products) == 2  # one text for all of one tap, and one for all of nine
    for anchor, config in products:
        assert anchor.patches and anchor.patches.rounds_from is not None
        assert isinstance(config, TensorCoreConfig)
        assert config.feed.is_direct and config.block_k == 32
    # Each layer writes its channels where they belong; only what comes in is copied.
    assert not any(isinstance(step, TorchCall) for step in plan.steps)


def test_maps_that_are_float32_to_the_library_are_no_tf32_products() -> None:
    planned = _planned(Features(3), 1, 64, 7, 7, by_place=True)
    assert all(
        it.patches is None or it.patches.rounds_from is None for it, _ in _products(planned.plan)
    )
    kinds = [node.kind for node in planned.plan.graph.nodes]
    assert sum(isinstance(kind, Conv) for kind in kinds) == 3  # those of nine taps


def test_the_order_of_memory_is_chosen_by_what_whole_plans_take() -> None:
    steps = [(nn.Conv2d(64, 256, 1), nn.ReLU(), nn.Conv2d(256, 64, 1), nn.ReLU()) for _ in range(4)]
    pixels = nn.Sequential(*(it for step in steps for it in step))
    assert _planned(pixels, 32, 64, 56, 56).choices.by_place
    # What all taps read of fp16 planes comes once, and twice as many are multiplied in a cycle.
    places = nn.Sequential(*(nn.Conv2d(128, 128, 3, padding=1) for _ in range(8)))
    assert not _planned(places, 32, 128, 28, 28).choices.by_place


class Stem(nn.Module):
    """What MobileNet begins with: few channels, and a residual around a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.pixels = nn.Conv2d(16, 16, 1, bias=False)
        self.wide = nn.Conv2d(16, 64, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.hardswish(self.norm(self.first(x)))
        return torch.relu(self.wide(self.pixels(torch.relu(self.depthwise(y))) + y))


def test_what_joins_a_product_lies_as_its_result_does() -> None:
    module = Stem().eval()
    planned = _planned(module, 32, 3, 224, 224, by_place=True)
    (turned,) = (it for it in planned.plan.kernels if "hardswish" in it.operators)
    assert turned.anchor is None  # it writes by place, and the depthwise convolution follows
    (depthwise,) = (it for it in planned.plan.kernels if it.family == "pooling")
    assert depthwise.anchor.window.op is Pooling.DOT_LAST
    (joined,) = (it for it in planned.plan.kernels if "add" in it.operators)
    # A tile has no columns that the result has not, and others multiply while it waits.
    assert joined.config.block_n == 16 and joined.config.resident > 1
    x = torch.rand(2, 3, 13, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = run_plan(planned.plan, module, (x,))
        torch.testing.assert_close(found, module(x), rtol=0, atol=1e-5)


def test_taps_share_their_pixels_where_columns_are_few() -> None:
    """And the model says why: DenseNet's took 105 us as copies of each tap."""
    products = _products(_planned(Features(2), 32, 64, 56, 56, by_place=True).plan)
    (config,) = (config for anchor, config in products if anchor.patches.taps == (3, 3))
    assert config.feed is Feed.BAND and config.pixels == 256 and config.block_n == 32
