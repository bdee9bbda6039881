"""Averages of products become products of averages, where that is less work and nobody else reads
the products: the numbers stay PyTorch's."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Contract, Opaque, Window
from kernelwright.rewrite import Rewritten, rewrite

RULE = "average of a product becomes a product of an average"


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().double()


def drawn(shape: tuple[int, ...], is_normal: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    draw = torch.randn if is_normal else torch.rand
    return draw(*shape, dtype=torch.float64, generator=generator)


def rewritten(module: nn.Module, x: torch.Tensor, run: Any) -> Rewritten:
    """The graph, which gives what the module gives."""
    found = rewrite(capture_module(module, (x,)))
    torch.testing.assert_close(
        run(found.graph, module, (x,), {}), module(x), rtol=1e-10, atol=1e-10, equal_nan=True
    )
    return found


def is_applied(found: Rewritten) -> bool:
    return any(item.rule == RULE and item.algebraic for item in found.applied)


def products_pooled(graph: Graph) -> list[str]:
    """The windows over what is made of products."""
    made: set[str] = set()
    found = []
    for node in graph.nodes:
        if isinstance(node.kind, Contract | Opaque) or not made.isdisjoint(node.inputs):
            made.add(node.name)
            found += [node.name] if isinstance(node.kind, Window) else []
    return found


class Features(nn.Module):
    """Averages over neighbouring results of a linear layer."""

    def __init__(self, is_single: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 15)
        self.pool = nn.AvgPool1d(4, 3)
        self.is_single = is_single

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return self.pool(y.unsqueeze(1)).squeeze(1) if self.is_single else self.pool(y)


class Transition(nn.Module):
    """Between two blocks of a DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(6)
        self.conv = nn.Conv2d(6, 4, 1, bias=False)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.conv(self.norm(x).relu()))


def pooled(conv: nn.Module, pool: nn.Module) -> nn.Module:
    return nn.Sequential(conv, pool)


MOVED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "2 x 2": (lambda: pooled(nn.Conv2d(5, 7, 1, bias=False), nn.AvgPool2d(2)), (2, 5, 9, 12)),
    "bias": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2)), (2, 5, 13, 11)),
    "overlapping": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(3, 2)), (2, 5, 13, 11)),
    "with gaps": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2, 3)), (2, 5, 13, 11)),
    "oblong": (
        lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d((3, 1), (2, 1))),
        (2, 5, 13, 11),
    ),
    "groups": (
        lambda: pooled(nn.Conv2d(6, 8, 1, groups=2, bias=False), nn.AvgPool2d(2)),
        (2, 6, 9, 10),
    ),
    "groups, bias": (
        lambda: pooled(nn.Conv2d(6, 8, 1, groups=2), nn.AvgPool2d(3, 2)),
        (2, 6, 9, 10),
    ),
    "groups in 1d": (
        lambda: pooled(nn.Conv1d(6, 8, 1, groups=2), nn.AvgPool1d(3)),
        (2, 6, 17),
    ),
    "groups in 3d": (
        lambda: pooled(nn.Conv3d(4, 4, 1, groups=4), nn.AvgPool3d(2)),
        (2, 4, 5, 6, 7),
    ),
    "1d": (lambda: pooled(nn.Conv1d(5, 7, 1), nn.AvgPool1d(3)), (2, 5, 17)),
    "3d": (lambda: pooled(nn.Conv3d(3, 4, 1), nn.AvgPool3d(2)), (2, 3, 5, 6, 7)),
    "without a batch": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2)), (5, 9, 12)),
    "ceil mode without bias": (
        lambda: pooled(
            nn.Conv2d(5, 7, 1, bias=False), nn.AvgPool2d(2, ceil_mode=True, divisor_override=4)
        ),
        (2, 5, 9, 11),
    ),
    "a convolution with strides": (
        lambda: pooled(nn.Conv2d(5, 7, 1, stride=2, bias=False), nn.AvgPool2d(2)),
        (2, 5, 17, 19),
    ),
    "features": (lambda: Features(False), (3, 4, 6)),
    "features of rows": (lambda: Features(True), (8, 6)),
    "after batch norm": (Transition, (2, 6, 9, 12)),
}


@pytest.mark.parametrize("is_normal", [False, True])
@pytest.mark.parametrize("name", MOVED)
def test_averages_come_first(name: str, is_normal: bool, run: Any) -> None:
    make, shape = MOVED[name]
    found = rewritten(seeded(make), drawn(shape, is_normal), run)
    assert is_applied(found)
    assert not products_pooled(found.graph)


@pytest.mark.parametrize("name", ["bias", "overlapping", "groups", "groups, bias", "3d"])
def test_nan_and_inf_land_where_pytorch_has_them(name: str, run: Any) -> None:
    make, shape = MOVED[name]
    x = drawn(shape, is_normal=True)
    flat = x.flatten()
    for at, value in enumerate((nan, inf, -inf, inf)):
        flat[(at * 2 + 1) * len(flat) // 9] = value
    # Two infinite neighbours, of one sign and of both.
    x[0, 0, ..., 0, 1], x[0, 0, ..., 0, 2] = inf, inf
    x[1, 1, ..., 0, 1], x[1, 1, ..., 0, 2] = inf, -inf
    found = rewritten(seeded(make), x, run)
    assert is_applied(found)


@pytest.mark.parametrize("name", ["bias", "groups, bias", "features"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_as_accurate(name: str, dtype: torch.dtype, run: Any) -> None:
    make, shape = MOVED[name]
    module, x = seeded(make).to(dtype), drawn(shape).to(dtype)
    found = rewrite(capture_module(module, (x,)))
    assert is_applied(found)
    got, theirs = run(found.graph, module, (x,), {}), module(x)
    want = module.double()(x.double())
    assert got.dtype == dtype
    assert (got - want).abs().max() <= 2 * (theirs - want).abs().max()


class Shared(nn.Module):
    """Pools what something else reads as well."""

    def __init__(self, other: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 7, 1)
        self.pool = nn.AvgPool2d(2)
        self.other = other

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.conv(x)
        return self.pool(y), self.other(y)


STAYING: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "padding": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(3, 2, 1)), (2, 5, 9, 12)),
    "padding without bias": (
        lambda: pooled(nn.Conv2d(5, 7, 1, bias=False), nn.AvgPool2d(3, 2, 1)),
        (2, 5, 9, 12),
    ),
    "ceil mode": (
        lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2, ceil_mode=True)),
        (2, 5, 9, 11),
    ),
    "bias in ceil mode": (
        lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2, ceil_mode=True, divisor_override=4)),
        (2, 5, 9, 11),
    ),
    "bias of groups in ceil mode": (
        lambda: pooled(
            nn.Conv2d(6, 8, 1, groups=2), nn.AvgPool2d(2, ceil_mode=True, divisor_override=4)
        ),
        (2, 6, 9, 11),
    ),
    "another divisor": (
        lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(2, divisor_override=3)),
        (2, 5, 9, 12),
    ),
    "maximum": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.MaxPool2d(2)), (2, 5, 9, 12)),
    "3 x 3 convolution": (
        lambda: pooled(nn.Conv2d(5, 7, 3, padding=1), nn.AvgPool2d(2)),
        (2, 5, 9, 12),
    ),
    "padded convolution": (
        lambda: pooled(nn.Conv2d(5, 7, 1, padding=1), nn.AvgPool2d(2)),
        (2, 5, 9, 12),
    ),
    "padded convolution in groups": (
        lambda: pooled(nn.Conv2d(6, 8, 1, padding=1, groups=2), nn.AvgPool2d(2)),
        (2, 6, 9, 12),
    ),
    "most of the places": (lambda: pooled(nn.Conv2d(5, 7, 1), nn.AvgPool2d(3, 1)), (2, 5, 9, 12)),
    "many channels to few": (
        lambda: pooled(nn.Conv2d(12, 2, 1), nn.AvgPool2d(2)),
        (2, 12, 9, 12),
    ),
    "not linear": (
        lambda: nn.Sequential(nn.Conv2d(5, 7, 1), nn.ReLU(), nn.AvgPool2d(2)),
        (2, 5, 9, 12),
    ),
    "dimensions of both factors": (lambda: nn.Sequential(Outer(), nn.AvgPool2d(2)), (2, 5, 8)),
}


class Outer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(1, 2) @ x


@pytest.mark.parametrize("name", STAYING)
def test_averages_that_stay(name: str, run: Any) -> None:
    make, shape = STAYING[name]
    assert not is_applied(rewritten(seeded(make), drawn(shape), run))


@pytest.mark.parametrize("other", [lambda y: y, torch.exp], ids=["the product", "a step on it"])
def test_products_that_others_read_stay(
    other: Callable[[torch.Tensor], torch.Tensor], run: Any
) -> None:
    module, x = seeded(lambda: Shared(other)), drawn((2, 5, 9, 12))
    found = rewrite(capture_module(module, (x,)))
    assert not is_applied(found)
    for got, want in zip(run(found.graph, module, (x,), {}), module(x), strict=True):
        torch.testing.assert_close(got, want)


def test_averages_that_are_read_twice_come_first(run: Any) -> None:
    class Squared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(5, 7, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.avg_pool2d(self.conv(x), 2)
            return y * y

    assert is_applied(rewritten(seeded(Squared), drawn((2, 5, 9, 12)), run))


def test_averages_of_averages_come_first(run: Any) -> None:
    module = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 1, bias=False),
            nn.AvgPool2d(2),
            nn.Conv2d(4, 5, 1, bias=False),
            nn.AvgPool2d(3),
        )
    )
    found = rewritten(module, drawn((2, 3, 25, 31)), run)
    assert is_applied(found)
    assert not products_pooled(found.graph)
