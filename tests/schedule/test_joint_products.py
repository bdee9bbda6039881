"""Products of few rows in one launch: what they compute, and what they leave alone."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.joint import JointProducts
from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph

WIDTH, DEPTH = 32, 8


def rotated(x: Tensor, cosine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * (1 - cosine)


class Layer(nn.Module):
    """What `how` makes of three products of a norm's rows."""

    def __init__(self, how: Callable[..., object], bias: bool = False) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(3))
        self.how = how
        self.to(torch.bfloat16)

    def forward(self, x: Tensor, *others: Tensor) -> object:
        normed = self.norm(x)
        return self.how(normed, self.a(normed), self.b(normed), self.c(normed), *others)


def heads(x: Tensor) -> Tensor:
    return x.view(x.shape[0], 1, -1, DEPTH).transpose(1, 2)


def three(normed: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return a, b.relu(), c + a.shape[-1]


def gated(normed: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (F.silu(a) * b,)


def turned(normed: Tensor, a: Tensor, b: Tensor, c: Tensor, cosine: Tensor) -> tuple[Tensor, ...]:
    return rotated(heads(a), cosine), rotated(heads(b), cosine), c


def cached(
    normed: Tensor, a: Tensor, b: Tensor, c: Tensor, cosine: Tensor, cache: Tensor
) -> tuple[Tensor, ...]:
    cache[:, :, -1:] = rotated(heads(a), cosine)
    return rotated(heads(b), cosine), c, cache * 2


def _others(name: str, rows: int) -> list[Tensor]:
    found = {"turned": [(DEPTH,)], "cached": [(DEPTH,), (rows, WIDTH // DEPTH, 5, DEPTH)]}
    return [torch.rand(shape).bfloat16() for shape in found.get(name, [])]


def _plan(module: nn.Module, args: list[Tensor]) -> Plan:
    return plan_graph(capture_module(module, tuple(args)), H200, Library.NEVER).plan


def _joint(plan: Plan) -> list[Kernel]:
    return [
        it.kernel
        for it in plan.steps
        if isinstance(it, Launch) and isinstance(it.kernel.anchor, JointProducts)
    ]


@pytest.mark.parametrize("how, launches", [(three, 1), (gated, 1), (turned, 1), (cached, 2)])
def test_one_launch_computes_what_many_did(how: Callable[..., object], launches: int) -> None:
    module = Layer(how)
    x = torch.rand(3, 1, WIDTH).bfloat16()
    args = [x, *_others(how.__name__, 3)]
    plan = _plan(module, args)
    assert len(plan.kernels) == launches and len(_joint(plan)) == 1
    for special in (1.0, float("nan"), float("inf")):
        args[0] = x.clone()
        args[0][1, 0, 5] = special
        wide = [it.double() for it in args]
        exact = copy.deepcopy(module).double()(*wide)
        for own, want in zip(run_plan(plan, module, args), exact, strict=True):
            torch.testing.assert_close(own.double(), want, rtol=2e-2, atol=2e-2, equal_nan=True)


def with_rows(normed: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return a, b, c * normed


def test_rows_that_others_read_have_a_launch() -> None:
    module, args = Layer(with_rows), [torch.rand(3, 1, WIDTH).bfloat16()]
    plan = _plan(module, args)
    (kernel,) = _joint(plan)
    assert kernel.anchored(JointProducts).rows is None and len(kernel.outputs) == 3
    for own, want in zip(run_plan(plan, module, args), module(*args), strict=True):
        torch.testing.assert_close(own, want, rtol=2e-2, atol=2e-2)


def read_before(
    normed: Tensor, a: Tensor, b: Tensor, c: Tensor, cosine: Tensor, cache: Tensor
) -> tuple[Tensor, ...]:
    old = cache[:, :, -1:] * 3
    cache[:, :, -1:] = rotated(heads(a), cosine)
    return rotated(heads(b), cosine) + old, c, cache * 2


def test_what_is_read_before_is_not_written_early() -> None:
    module, args = Layer(read_before), [torch.rand(3, 1, WIDTH).bfloat16(), *_others("cached", 3)]
    plan = _plan(module, args)
    exact = copy.deepcopy(module).double()(*(it.double() for it in args))
    for own, want in zip(run_plan(plan, module, args), exact, strict=True):
        torch.testing.assert_close(own.double(), want, rtol=2e-2, atol=2e-2)


def pairs_of_others(
    normed: Tensor, a: Tensor, b: Tensor, c: Tensor, cosine: Tensor
) -> tuple[Tensor, ...]:
    """Neighbours and not halves are paired."""
    even, odd = heads(a)[..., ::2], heads(a)[..., 1::2]
    return even * odd, b, c


def test_other_pairs_of_columns_have_launches() -> None:
    module = Layer(pairs_of_others)
    args = [torch.rand(3, 1, WIDTH).bfloat16(), *_others("turned", 3)]
    plan = _plan(module, args)
    (kernel,) = _joint(plan)
    assert all(it.halves is None for it in kernel.anchored(JointProducts).products)


@pytest.mark.parametrize("rows, dtype", [(17, torch.bfloat16), (3, torch.float32)])
def test_many_rows_and_floats_are_left_alone(rows: int, dtype: torch.dtype) -> None:
    plan = _plan(Layer(three).to(dtype), [torch.rand(rows, 1, WIDTH).to(dtype)])
    assert _joint(plan) == []


@pytest.mark.parametrize("rows, count", [(1, 1), (2, 1), (3, 0)])
def test_one_product_of_a_row_or_two_is_a_joint_one(rows: int, count: int) -> None:
    module = nn.Linear(WIDTH, WIDTH).bfloat16()
    args = [torch.rand(rows, WIDTH).bfloat16()]
    plan = _plan(module, args)
    assert len(plan.kernels) == 1 and len(_joint(plan)) == count
    torch.testing.assert_close(run_plan(plan, module, args), module(*args), rtol=2e-2, atol=2e-2)
