"""Loops of cells become layers that compute the same, or stay as they are."""

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
    Contract,
    Input,
    Kind,
    Opaque,
    Parameter,
    Pointwise,
    Select,
    Unsqueeze,
    View,
)
from kernelwright.ir.plan import Kernel
from kernelwright.ir.recurrence import Cell, Recurrent
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower import LOOPS, with_layers
from kernelwright.machine import H200
from kernelwright.schedule import Library
from kernelwright.schedule.planning import Planned, plan_graph

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 6, 4


class Cells(nn.Module):
    """Two layers of one of PyTorch's cells, called step by step, and a product of each state."""

    def __init__(self, kind: type[nn.RNNCellBase], bias: bool = True) -> None:
        super().__init__()
        self.first, self.second = kind(INPUTS, HIDDEN, bias), kind(HIDDEN, HIDDEN, bias)
        self.out = nn.Linear(HIDDEN, 2)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        has_cell = isinstance(self.first, nn.LSTMCell)
        below = above = (h, h * 2) if has_cell else h
        found = []
        for t in range(STEPS):
            below = self.first(x[:, t], below)
            above = self.second(below[0] if has_cell else below, above)
            found.append(torch.relu(self.out(above[0] if has_cell else above)))
        return torch.stack(found, 1), above[1] if has_cell else above


class Spelled(nn.Module):
    """A cell of one linear layer of a concatenation, or of two layers; `what` breaks it."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.both = nn.Linear(INPUTS + HIDDEN, HIDDEN)
        self.into, self.through = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        found = []
        for t in range(STEPS):
            step = x[t] * h.sum() if self.what == "its input depends on a state" else x[t]
            if self.what == "two layers":
                h = torch.tanh(self.into(step) + self.through(h))
            elif self.what == "the state first":
                h = torch.tanh(nn.functional.linear(torch.cat((h, step), 1), self.both.weight))
            else:
                h = torch.tanh(self.both(torch.cat((step, h), 1)))
            if self.what == "the state changes in between":
                h = h + 1
            found.append(h)
        return torch.stack(found)


def always(node: Node, graph: Graph) -> bool:
    return True


def layers(graph: Graph) -> list[Recurrent]:
    return [node.kind for node in graph.nodes if isinstance(node.kind, Recurrent)]


def assert_same(graph: Graph, module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    """The interpreter, which compares each layer with PyTorch's call as well."""
    torch.testing.assert_close(run_graph(graph, module, arguments, {}), module(*arguments))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_calls_of_cells_become_layers(kind: type[nn.RNNCellBase], bias: bool) -> None:
    module = Cells(kind, bias).eval()
    arguments = torch.rand(BATCH, STEPS, INPUTS), torch.rand(BATCH, HIDDEN)
    looped = with_layers(capture_module(module, arguments), always)
    cell = {nn.LSTMCell: Cell.LSTM, nn.GRUCell: Cell.GRU, nn.RNNCell: Cell.RNN_TANH}[kind]
    assert [(it.cell, it.has_bias, it.is_loop) for it in layers(looped)] == [(cell, bias, True)] * 2
    # What is done with the states of each step is done once.
    assert sum(isinstance(node.kind, Contract) for node in looped.nodes) == 1
    assert len(looped.nodes) < 40
    assert_same(looped, module, arguments)


@pytest.mark.parametrize("takes_inputs", [True, False])
@pytest.mark.parametrize("what", ["", "two layers", "the state first"])
def test_a_cell_that_is_spelled_out_becomes_a_layer(what: str, takes_inputs: bool) -> None:
    module = Spelled(what).eval()
    arguments = torch.rand(STEPS, BATCH, INPUTS), torch.rand(BATCH, HIDDEN)

    def takes(node: Node, graph: Graph) -> bool:
        return takes_inputs or graph[node.inputs[0]].tensor.shape[2].hint == HIDDEN

    looped = with_layers(capture_module(module, arguments), takes)
    assert len(layers(looped)) == 1
    # Products of inputs that do not fit are made before, and a layer of the identity reads them.
    assert sum(isinstance(node.kind, Contract) for node in looped.nodes) == (not takes_inputs)
    assert_same(looped, module, arguments)
    # The tangent of infinity is 1, and zeros of the identity would make NaN of it.
    arguments[0][1, 0, 2], arguments[0][2, 1, 0] = torch.inf, -torch.inf
    assert_same(looped, module, arguments)


@pytest.mark.parametrize("what", ["its input depends on a state", "the state changes in between"])
def test_what_is_no_layer_stays_as_it_is(what: str) -> None:
    module = Spelled(what).eval()
    graph = capture_module(module, (torch.rand(STEPS, BATCH, INPUTS), torch.rand(BATCH, HIDDEN)))
    assert with_layers(graph, always) is graph


def planned(inputs: int, hidden: int, steps: int, library: Library) -> Planned:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.RNNCell(inputs, hidden), nn.Linear(hidden, 8)

        def forward(self, x: Tensor, h: Tensor) -> Tensor:
            found = []
            for t in range(steps):
                h = self.cell(x[t], h)
                found.append(self.out(h))
            return torch.stack(found)

    graph = capture_module(Loop(), (torch.rand(steps, 8, inputs), torch.rand(8, hidden)))
    start = perf_counter()
    found = plan_graph(graph, H200, library)
    assert perf_counter() - start < 15
    return found


def recurrent(found: Planned) -> list[Kernel]:
    return [kernel for kernel in found.plan.kernels if kernel.family == "recurrent"]


@pytest.mark.parametrize(("inputs", "hidden"), [(64, 256), (1024, 64)])
def test_a_loop_is_one_launch_where_its_weights_fit(inputs: int, hidden: int) -> None:
    found = planned(inputs, hidden, 40, Library.WHERE_FASTER)
    assert len(recurrent(found)) == 1 and found.lowered[0] == LOOPS
    # cuDNN would take TF32 where the module's steps do not.
    assert not any("rnn" in step.name for step in found.plan.left_to_pytorch)


@pytest.mark.parametrize(("hidden", "steps"), [(257, 40), (64, 4)])
def test_a_loop_stays_where_its_weights_do_not_fit_or_its_steps_are_few(
    hidden: int, steps: int
) -> None:
    found = planned(16, hidden, steps, Library.WHERE_FASTER)
    assert not recurrent(found) and LOOPS not in found.lowered
    assert isinstance(found.rewritten.graph["rnn_tanh_cell"].kind, Opaque)


def test_another_plan_of_the_module_has_the_same_loops() -> None:
    found = planned(16, 32, 40, Library.WHERE_FASTER)
    short = capture_module(
        Spelled("").eval(), (torch.rand(STEPS, BATCH, INPUTS), torch.rand(BATCH, HIDDEN))
    )
    again = plan_graph(short, H200, choices=found.choices)
    assert len(recurrent(again)) == 1
    assert not recurrent(plan_graph(short, H200))


def test_a_thousand_steps_take_seconds() -> None:
    start = perf_counter()
    found = plan_graph(_unrolled(1000), H200)
    assert perf_counter() - start < 15
    assert len(recurrent(found)) == 1 and len(found.plan.steps) < 20


def _unrolled(steps: int) -> Graph:
    """tanh(x[t] A' + h B' + b), step by step; tracing as many takes minutes."""
    sizes = {"x": (steps, 8, 64), "h": (8, 32), "a": (32, 64), "b": (32, 32), "c": (32,)}
    kinds = {"x": Input("x"), "h": Input("h"), **{name: Parameter(name) for name in "abc"}}
    nodes = [_node(name, kind, sizes[name]) for name, kind in kinds.items()]
    state = "h"
    for t in range(steps):
        nodes += [
            _node(f"x{t}", View(Select(0, Dim.static(t))), (8, 64), "x"),
            _node(f"p{t}", Contract("ab", "cb", "ac"), (8, 32), f"x{t}", "a"),
            _node(f"q{t}", Contract("ab", "cb", "ac"), (8, 32), state, "b"),
            _node(f"r{t}", _ADD, (8, 32), f"p{t}", f"q{t}"),
            _node(f"s{t}", _ADD, (8, 32), f"r{t}", "c"),
            _node(f"h{t}", _TANH, (8, 32), f"s{t}"),
            _node(f"u{t}", View(Unsqueeze(0)), (1, 8, 32), f"h{t}"),
        ]
        state = f"h{t}"
    every = (f"u{t}" for t in range(steps))
    nodes.append(_node("all", Concat(0), (steps, 8, 32), *every))
    return Graph(name="unrolled", nodes=tuple(nodes), returns=Ref("all"))


_OPERANDS = Operand(0, DType.F32), Operand(1, DType.F32)
_ADD = Pointwise(Call("add", _OPERANDS, DType.F32))
_TANH = Pointwise(Call("tanh", _OPERANDS[:1], DType.F32))


def _node(name: str, kind: Kind, shape: tuple[int, ...], *inputs: str) -> Node:
    kind_of_value = TensorType(DType.F32, tuple(map(Dim.static, shape)))
    return Node(name=name, kind=kind, type=kind_of_value, inputs=inputs)
