"""Reductions in two stages, where smaller operands differ along a row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule

Step = Callable[[torch.Tensor], torch.Tensor]


class Biased(nn.Module):
    """A function of what has its own bias for every channel."""

    def __init__(self, after: Step) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 16).reshape(16, 1, 1))
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(x + self.bias)


def _run(plan: Plan, module: nn.Module, x: torch.Tensor) -> Any:
    return run_plan(plan, module, (x,))


def _plan(module: nn.Module, x: torch.Tensor) -> Plan:
    return schedule(rewrite(capture_module(module, (x,))).graph, H200)


def _dims(plan: Plan) -> list[tuple[int, ...]]:
    return [it.anchor.dims for it in plan.kernels if it.family == "rows"]


def _norm() -> nn.Module:
    norm = nn.GroupNorm(4, 16)
    nn.init.normal_(norm.weight)
    return norm


@pytest.mark.parametrize(
    ("after", "dims"),
    [
        # The norm is read twice; its factor is computed for each row.
        (_norm(), [(3, 4), (2,)]),
        (lambda y: nn.functional.group_norm(y, 4).mean((1, 2, 3)), [(3, 4), (2,), (3, 4), (1, 2)]),
        (lambda y: y.sum((1, 2, 3)), [(2, 3), (1,)]),
        (lambda y: y.amax((1, 2, 3)), [(2, 3), (1,)]),
    ],
)
def test_a_row_has_one_value_of_each_smaller_operand(
    after: Step, dims: list[tuple[int, ...]]
) -> None:
    x = torch.rand(8, 16, 128, 257, generator=torch.Generator().manual_seed(0))
    module = Biased(after)
    with torch.no_grad():
        plan = _plan(module, x)
        got, want = _run(plan, module, x), module(x)
    assert _dims(plan)[: len(dims)] == dims
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "after", [_norm(), lambda y: nn.functional.instance_norm(y).amax(1)], ids=["group", "instance"]
)
def test_what_rows_share_is_computed_once(after: Step) -> None:
    plan = _plan(Biased(after), torch.empty(8, 16, 128, 257))
    texts = [str(kernel.expressions) for kernel in plan.kernels]
    assert sum("rsqrt" in text for text in texts) == 1
    assert "rsqrt" not in texts[-1]


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (_norm(), (8, 16, 128, 257)),  # the bias of the norm is no part of what is reduced
        (Biased(_norm()), (8, 16, 12, 12)),
        (Biased(lambda y: y.sum((1, 2, 3))), (4096, 16, 8, 8)),
    ],
)
def test_these_are_reduced_at_once(module: nn.Module, sizes: tuple[int, ...]) -> None:
    plan = _plan(module, torch.empty(sizes))
    assert len(_dims(plan)) == 1
