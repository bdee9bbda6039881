"""Rows that are written as the pairs that a product reads."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Launch, Plan
from kernelwright.ir.product_configs import Feed, TensorCoreConfig
from kernelwright.kernels import source
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph
from kernelwright.schedule.families import family_of
from kernelwright.schedule.families.rows import writes_pairs
from kernelwright.schedule.paired import _LINE


class Weighed(nn.Module):
    """Values weighed by shares of a row."""

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores, -1) @ values


class WithShares(nn.Module):
    """The shares are a result, too."""

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shares = torch.softmax(scores, -1)
        return shares, shares @ values


class OfLogarithms(nn.Module):
    """What is no share: its scale is known when it is there."""

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(scores, -1) @ values


class OfColumns(nn.Module):
    """Shares of columns, which the product multiplies by rows."""

    def forward(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores, -2) @ values


def arguments(keys: int = 512, batch: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch, 512, keys), torch.zeros(batch, keys, 1024)


def pairs(plan: Plan) -> list[bool]:
    return [step.kernel.pairs for step in plan.steps if isinstance(step, Launch)]


@pytest.mark.parametrize(
    ("module", "keys", "expected"),
    [
        (Weighed(), 512, [True, True]),
        (Weighed(), 500, [False, False]),  # rows are no whole lines
        (WithShares(), 512, [False, False]),
        (OfLogarithms(), 512, [False, False]),
        (OfColumns(), 512, [False, False]),
    ],
)
def test_shares_that_a_product_alone_reads(
    module: nn.Module, keys: int, expected: list[bool]
) -> None:
    plan = plan_graph(capture_module(module, arguments(keys)), H200).plan
    assert pairs(plan) == expected


def test_the_product_takes_less_than_one_that_splits_both_factors() -> None:
    rows, product = plan_graph(capture_module(Weighed(), arguments()), H200).plan.kernels
    apart = replace(product, pairs=False)
    paired, usual = (family_of(it).seconds(it, H200) for it in (product, apart))
    assert paired is not None and usual is not None
    # What is not read and written again: 64 x 512 x 512 elements, 8 bytes each.
    assert 20e-6 < usual - paired < 60e-6
    assert all(writes_pairs(it) for it in family_of(rows).configs(rows, H200))
    feeds = {it.feed for it in family_of(product).configs(product, H200)}
    assert feeds == {Feed.PAIRED}
    assert product.configured(TensorCoreConfig).feed is Feed.PAIRED


def test_another_plan_has_the_same_pairs() -> None:
    full, small = (capture_module(Weighed(), arguments(*it)) for it in ((512, 64), (24, 2)))
    choices = plan_graph(full, H200).choices
    assert len(choices.pairs or ()) == 1
    assert pairs(plan_graph(small, H200, Library.NEVER, choices).plan) == [True, True]
    apart = replace(choices, pairs=frozenset())
    assert pairs(plan_graph(full, H200, choices=apart).plan) == [False, False]


def test_a_line_is_what_kernels_say() -> None:
    assert f"PAIRED_LINE = {_LINE};" in source("gemm_paired.cuh")
