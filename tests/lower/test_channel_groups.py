"""Steps on groups of channels whose readers have the channels as one dimension."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.plan import Kernel, Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule

_SIZES = (8, 16, 128, 257)


class Residual(nn.Module):
    """A convolution, a norm of groups of its result, and both together."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, 3)
        self.norm = nn.GroupNorm(4, 16)
        nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(x)
        return torch.logsumexp(y + self.norm(y).tanh(), 1)


class Normed(nn.Module):
    """A norm of groups of what has its own bias for every channel, and a function of both."""

    def __init__(self, after: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 16).reshape(16, 1, 1))
        self.norm = nn.GroupNorm(4, 16)
        nn.init.normal_(self.norm.weight)
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.bias
        return self.after(y, self.norm(y))


def _plan(module: nn.Module) -> Plan:
    return schedule(rewrite(capture_module(module, (torch.empty(_SIZES),))).graph, H200)


def _run(plan: Plan, module: nn.Module, x: torch.Tensor) -> Any:
    return run_plan(plan, module, (x,))


def test_a_pooling_computes_the_step_on_the_way() -> None:
    module = Normed(lambda y, norm: nn.functional.max_pool2d(norm * 2, 4))
    x = torch.rand(_SIZES, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plan = _plan(module)
        torch.testing.assert_close(_run(plan, module, x), module(x), rtol=1e-4, atol=1e-4)
    assert isinstance(plan.kernels[-1], Kernel)
    assert "group_norm" in plan.kernels[-1].operators
    # Nothing of the whole's size is written.
    written = [output.numel_hint for kernel in plan.kernels for output in kernel.outputs]
    assert all(count < torch.Size(_SIZES).numel() / 8 for count in written)


@pytest.mark.parametrize(
    "after",
    [
        lambda y, norm: norm,
        lambda y, norm: torch.logsumexp(norm, 1),
        lambda y, norm: (norm, nn.functional.max_pool2d(norm, 4)),
    ],
    ids=["returned", "totals", "both"],
)
def test_others_stay_in_groups(
    after: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    plan = _plan(Normed(after))
    assert 5 in [
        kernel.output.rank for kernel in plan.kernels if kernel.family in ("pointwise", "gemm")
    ]
    assert ("contiguous",) not in [kernel.operators for kernel in plan.kernels]


def test_a_bias_is_added_where_the_groups_are() -> None:
    module, x = Residual(), torch.rand(8, 8, 128, 257)
    with torch.no_grad():
        plan = schedule(rewrite(capture_module(module, (x,))).graph, H200)
        torch.testing.assert_close(_run(plan, module, x), module(x), rtol=1e-4, atol=1e-4)
    assert ("bias",) not in [kernel.operators for kernel in plan.kernels]
    (step,) = (kernel for kernel in plan.kernels if kernel.family in ("pointwise", "gemm"))
    # It reads the convolution's result once.
    assert sum(getattr(kind, "shape", ()) == step.output.shape for kind in step.inputs) == 1


class Mixing(nn.Module):
    """A pooling of a norm less the norm itself, twice: the second reads what the first became."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(1, 16), nn.GroupNorm(1, 16)])
        self.pooling = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm in self.norms:
            y = norm(x)
            x = x + self.pooling(y) - y
        return x


def test_one_step_after_another_is_done_on_whole_channels() -> None:
    module, x = Mixing(), torch.rand(2, 16, 9, 7, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        plan = schedule(rewrite(capture_module(module, (x,))).graph, H200)
        torch.testing.assert_close(_run(plan, module, x), module(x), rtol=1e-4, atol=1e-4)
