"""The reasons for which neighbouring kernels are not one, and what nobody gets around."""

import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Plan
from kernelwright.machine import H200
from kernelwright.schedule import (
    Library,
    cost_of_plan,
    kept_apart,
    least_cost,
    plan_graph,
)


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.sort(0).values.softmax(1)
        return rows.sum((2, 3)) @ rows.amax((2, 3)).mT


def planned() -> Plan:
    return plan_graph(capture_module(Block(), (torch.ones(2, 4, 6, 6),)), H200, Library.NEVER).plan


def test_every_pair_has_its_reason() -> None:
    whys = {(pair.producer, pair.consumer): pair.why for pair in kept_apart(planned())}
    assert any("left to PyTorch" in why for why in whys.values())
    assert any("reduces other rows" in why for why in whys.values())
    assert any("product reads its operands many times" in why for why in whys.values())


def test_a_view_is_not_in_the_way_of_the_reason() -> None:
    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.max_pool1d(x.softmax(-1).mT, 3, 1)

    plan = plan_graph(capture_module(Viewed(), (torch.ones(2, 8, 6),)), H200).plan
    (pair,) = kept_apart(plan)
    assert pair.bytes == 4 * 2 * 8 * 6


def test_the_fewest_bytes_are_arguments_and_results() -> None:
    class Sliced(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :2].softmax(1).sum(0)

    plan = plan_graph(capture_module(Sliced(), (torch.ones(16, 8),)), H200).plan
    assert least_cost(plan).bytes == 4 * (16 * 2 + 2)
    assert cost_of_plan(plan).bytes > least_cost(plan).bytes
