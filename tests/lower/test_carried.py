"""Loops that carry a value element by element become one node that computes the same."""

from collections.abc import Callable
from time import perf_counter

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.calls import Ref
from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import (
    Concat,
    Input,
    Kind,
    Loop,
    Parameter,
    Pointwise,
    Select,
    Unsqueeze,
    View,
)
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower import with_loops
from kernelwright.machine import H200
from kernelwright.schedule.planning import plan_graph

STEPS = 6


class Steps(nn.Module):
    """`first` of a sequence, then `step` of the value before and of the sequence's next part."""

    def __init__(self, step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.step = step
        self.decay = nn.Parameter(torch.linspace(0.1, 0.9, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, found = x[:, 0], []
        for t in range(1, STEPS):
            value = self.step(value, x[:, t], self.decay)
            found.append(value)
        return torch.stack(found, 1), value


def loops(module: nn.Module, x: Tensor) -> int:
    """How many loops are found; both interpreters must agree with the module."""
    graph = capture_module(module, (x,))
    looped = with_loops(graph)
    torch.testing.assert_close(run_graph(looped, module, (x,), {}), module(x))
    torch.testing.assert_close(run_plan(plan_graph(graph, H200).plan, module, (x,)), module(x))
    return sum(isinstance(node.kind, Loop) for node in looped.nodes)


@pytest.mark.parametrize(
    "step",
    [
        lambda h, x, a: 0.9 * h + 0.1 * x,
        lambda h, x, a: a * h + x,
        lambda h, x, a: torch.tanh(torch.exp(-a * x) * h + x * x),
        lambda h, x, a: torch.where(x > 0.5, x, h) * torch.sigmoid(h),
    ],
)
def test_a_carried_value_is_one_loop(step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    assert loops(Steps(step).eval(), torch.rand(3, STEPS, 4)) == 1


@pytest.mark.parametrize(
    "step",
    [
        lambda h, x, a: h.sum(1, keepdim=True) * a + x,  # of other elements
        lambda h, x, a: h.flip(1) * a + x,
        lambda h, x, a: a + x,  # nothing is carried
    ],
)
def test_what_is_no_loop_of_elements(step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    assert loops(Steps(step).eval(), torch.rand(3, STEPS, 4)) == 0


class Weights(nn.Module):
    """Weights that are one row of a parameter in all steps, or a row for each step."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which = which
        self.rows = nn.Parameter(torch.rand(2, 4))
        self.each = nn.Parameter(torch.rand(STEPS, 4))

    def forward(self, x: Tensor) -> Tensor:
        value, found = torch.zeros_like(x[:, 0]), []
        for t in range(STEPS):
            gate = self.rows[1] if self.which == "rows" else torch.sigmoid(self.each[t])
            value = gate * value + x[:, t]
            found.append(value)
        return torch.stack(found, 1)


@pytest.mark.parametrize("which", ["rows", "each"])
def test_weights_of_a_step_and_of_all(which: str) -> None:
    module, x = Weights(which).eval(), torch.rand(3, STEPS, 4)
    assert loops(module, x) == 1
    looped = with_loops(capture_module(module, (x,)))
    assert not any(isinstance(node.kind, Concat) for node in looped.nodes)


class Averages(nn.Module):
    """A moving average of a moving average, of numbers, from a first value of all elements."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x[0, 0], torch.zeros((), dtype=x.dtype)
        found = []
        for t in range(STEPS):
            first = 0.9 * first + 0.1 * x[0, t]
            second = 0.5 * second + 0.5 * first
            found.append(second)
        return torch.stack(found), first


def test_loops_of_what_loops_give_and_of_numbers() -> None:
    assert loops(Averages().eval(), torch.rand(3, STEPS)) == 2
    assert loops(Averages().eval(), torch.rand(3, STEPS, dtype=torch.float64)) == 2


class Numbers(nn.Module):
    """Each step has a number of its own."""

    def forward(self, x: Tensor, a: float, b: float, c: float, d: float) -> Tensor:
        value = x[:, 0]
        for t, number in enumerate((a, b, c, d)):
            value = number * value + x[:, t]
        return value


def test_numbers_of_each_step_are_no_operand() -> None:
    module, inputs = Numbers().eval(), (torch.rand(3, STEPS, 4), 0.1, 0.2, 0.3, 0.4)
    looped = with_loops(capture_module(module, inputs))
    torch.testing.assert_close(run_graph(looped, module, inputs, {}), module(*inputs))


def test_a_thousand_steps_are_planned_in_seconds() -> None:
    start = perf_counter()
    plan = plan_graph(_unrolled(1000), H200).plan
    assert [kernel.family for kernel in plan.kernels] == ["loop"]
    assert perf_counter() - start < 15


def _unrolled(steps: int) -> Graph:
    """a * h + x[t], step by step; tracing as many takes minutes."""
    nodes = [
        _node("x", Input("x"), (steps, 8, 64)),
        _node("h", Input("h"), (8, 64)),
        _node("a", Parameter("a"), (64,)),
    ]
    for t in range(steps):
        nodes += [
            _node(f"x{t}", View(Select(0, Dim.static(t))), (8, 64), "x"),
            _node(f"m{t}", _MUL, (8, 64), "a", f"h{t - 1}" if t else "h"),
            _node(f"h{t}", _ADD, (8, 64), f"m{t}", f"x{t}"),
            _node(f"u{t}", View(Unsqueeze(0)), (1, 8, 64), f"h{t}"),
        ]
    every = (f"u{t}" for t in range(steps))
    nodes.append(_node("all", Concat(0), (steps, 8, 64), *every))
    return Graph(name="unrolled", nodes=tuple(nodes), returns=Ref("all"))


_OPERANDS = Operand(0, DType.F32), Operand(1, DType.F32)
_ADD, _MUL = (Pointwise(Call(name, _OPERANDS, DType.F32)) for name in ("add", "mul"))


def _node(name: str, kind: Kind, shape: tuple[int, ...], *inputs: str) -> Node:
    kind_of_value = TensorType(DType.F32, tuple(map(Dim.static, shape)))
    return Node(name=name, kind=kind, type=kind_of_value, inputs=inputs)
