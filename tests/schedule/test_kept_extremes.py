"""Products that keep one result of each row: which do, and that the plan means the same."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.plan import Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph

_BF16 = torch.bfloat16


class _Points(nn.Module):
    def __init__(self, after: Callable[..., object]) -> None:
        super().__init__()
        self.layer = nn.Conv1d(64, 256, 1)
        self.norm = nn.BatchNorm1d(256)
        self.after = after

    def forward(self, x: Tensor, y: Tensor) -> object:
        return self.after(self.norm(self.layer(x)), y)


def _given(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.rand(32, 64, 1024).to(dtype), torch.rand(1024).to(dtype)


def _kept(plan: Plan) -> list[Reduction]:
    return [it.kept for it in plan.kernels if it.kept is not None]


def _plan(module: nn.Module, given: tuple[Tensor, ...]) -> Plan:
    return plan_graph(capture_module(module, given), H200, Library.NEVER).plan


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (lambda x, y: F.relu(x).amax(-1), [Reduction.MAXIMUM]),
        (lambda x, y: torch.tanh(x).amin(-1, keepdim=True), [Reduction.MINIMUM]),
        # Other reductions and rows, results that somebody reads, operands that differ in a row.
        (lambda x, y: x.sum(-1), []),
        (lambda x, y: x.amax(1), []),
        (lambda x, y: (x, x.amax(-1)), []),
        (lambda x, y: x.amax(-1, keepdim=True) - x, []),
        (lambda x, y: (x + y).amax(-1), []),
    ],
)
def test_what_is_kept_of_a_row(after: Callable[..., object], kept: list[Reduction]) -> None:
    assert _kept(_plan(_Points(after).eval().to(_BF16), _given(_BF16))) == kept


def test_only_products_of_16_bits_keep_it() -> None:
    module = _Points(lambda x, y: F.relu(x).amax(-1)).eval()
    assert _kept(_plan(module, _given(torch.float32))) == []


def test_a_plan_that_keeps_extremes_means_the_same() -> None:
    torch.manual_seed(0)
    module = _Points(lambda x, y: F.relu(x).amax(-1)).eval().to(_BF16)
    x, y = _given(_BF16)
    plan = _plan(module, (x, y))
    small = x[:2, :, :65].clone()
    small[1, 3, 7] = torch.nan
    with torch.no_grad():
        result = run_plan(plan, module, (small, y))
        torch.testing.assert_close(result, module(small, y), rtol=2e-2, atol=2e-2, equal_nan=True)
