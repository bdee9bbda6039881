"""Rolls and the views around them are gathers of a computed index."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Gather, Reshape, Roll, View
from kernelwright.ir.layouts import has_to_copy
from kernelwright.ir.plan import Plan, Reinterpret
from kernelwright.lower import lower
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import plan_graph

_Function = Callable[[Tensor], Tensor | tuple[Tensor, ...]]


class Applied(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: _Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        return self.function(x)


_SEVERAL: list[tuple[_Function, int]] = [
    (lambda x: x.roll(1, 0), 1),
    (lambda x: (x.roll(-9, -1), x.roll(4)), 2),
    (lambda x: x.roll((1, 2, 3), (0, 1, 0)), 1),
    (lambda x: x.roll(2, 1).transpose(1, 2).roll(3, 1).flatten(0, 1), 1),
    (lambda x: x.flatten(1).roll(1, 1).unflatten(1, (4, -1)).roll(1, 1), 2),
    (lambda x: x.roll(x.shape[1] // 2, 1), 1),
    (lambda x: (y := x.transpose(0, 2).roll(1, 1), y.relu(), y.flatten()), 2),
    (lambda x: x.unsqueeze(1).roll((1, 2), (1, 3)).squeeze(1), 1),
    (lambda x: x.roll(1, 1)[:, 1:].roll(1, 1) + x[:, 1:], 2),
]


@pytest.mark.parametrize("case", _SEVERAL)
def test_one_gather_for_each_chain(case: tuple[_Function, int]) -> None:
    function, gathers = case
    x = torch.rand(3, 4, 6)
    module = Applied(function)
    captured = capture_module(module, (x,))
    graph = lower(rewrite(captured).graph, H200).graph
    maps = [node.kind.map for node in graph.nodes if isinstance(node.kind, View)]
    assert not any(isinstance(it, Roll) for it in maps)
    assert sum(isinstance(node.kind, Gather) for node in graph.nodes) == gathers
    for other in (x, torch.rand(2, 5, 3), torch.rand(2, 8, 6), torch.rand(0, 4, 6)):
        try:
            expected = module(other)
        except RuntimeError:  # A size that the case does not divide.
            continue
        torch.testing.assert_close(run_graph(captured, module, (other,), {}), expected)
        torch.testing.assert_close(run_graph(graph, module, (other,), {}), expected)


def test_a_shift_by_nothing_is_no_roll() -> None:
    graph = capture_module(Applied(lambda x: x.roll((4, 0), (0, 1)) * 2), (torch.rand(3, 5),))
    assert any(isinstance(node.kind, View) for node in graph.nodes)
    static = capture_module(Applied(lambda x: (x + torch.ones(4, 5)).roll(8, 0)), (torch.rand(5),))
    assert not any(isinstance(node.kind, View) for node in static.nodes)


class Counted(nn.Module):
    """A buffer that is rolled before it changes, and read afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("counts", torch.arange(6.0).view(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        before = self.counts.roll(1, 1)
        self.counts.add_(x)
        return before.transpose(0, 1) + self.counts.transpose(0, 1)


def test_what_a_roll_copied_before_it_changed() -> None:
    module, x = Counted(), torch.ones(2, 3)
    graph = lower(rewrite(capture_module(module, (x,))).graph, H200).graph
    assert torch.equal(run_graph(graph, module, (x,), {}), Counted()(x))


SIDE, WINDOW, CHANNELS, HEADS = 28, 7, 64, 2


class ShiftedWindows(nn.Module):
    """Attention in windows that were moved on, and the four corners of squares together."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(CHANNELS), nn.LayerNorm(4 * CHANNELS)
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.bias = nn.Parameter(torch.rand(HEADS, WINDOW**2, WINDOW**2))
        self.mask = nn.Parameter(torch.rand((SIDE // WINDOW) ** 2, 1, WINDOW**2, WINDOW**2))

    def forward(self, x: Tensor) -> Tensor:
        count = SIDE // WINDOW
        moved = self.norm(x).roll((-3, -3), (1, 2))
        parts = moved.view(-1, count, WINDOW, count, WINDOW, CHANNELS).permute(0, 1, 3, 2, 4, 5)
        rows = self.qkv(parts.reshape(-1, WINDOW**2, CHANNELS))
        heads = rows.view(-1, WINDOW**2, 3, HEADS, CHANNELS // HEADS).permute(2, 0, 3, 1, 4)
        scores = (heads[0] * (CHANNELS // HEADS) ** -0.5) @ heads[1].mT + self.bias
        masked = scores.view(-1, count**2, HEADS, WINDOW**2, WINDOW**2) + self.mask
        shares = masked.view(-1, HEADS, WINDOW**2, WINDOW**2).softmax(-1)
        rows = self.out((shares @ heads[2]).transpose(1, 2).reshape(-1, WINDOW**2, CHANNELS))
        parts = rows.view(-1, count, count, WINDOW, WINDOW, CHANNELS).permute(0, 1, 3, 2, 4, 5)
        x = x + parts.reshape(-1, SIDE, SIDE, CHANNELS).roll((3, 3), (1, 2))
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.last(torch.cat(corners, -1))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shifted_windows_leave_no_copy_to_pytorch(dtype: torch.dtype) -> None:
    module, x = ShiftedWindows().to(dtype).eval(), torch.rand(32, SIDE, SIDE, CHANNELS).to(dtype)
    plan = plan_graph(capture_module(module, (x,)), H200).plan
    assert {step.name for step in plan.left_to_pytorch} <= {"aten.linear.default"}
    assert not _copies(plan)
    families = [kernel.family for kernel in plan.kernels]
    assert families.count("attention") == 1 and families.count("gather") == 2


def _copies(plan: Plan) -> list[str]:
    """Reshapes that are no views."""
    return [
        step.result
        for step in plan.steps
        if isinstance(step, Reinterpret)
        and step.map == Reshape()
        and has_to_copy(plan.graph[step.input].tensor, step.type.shape)
    ]
