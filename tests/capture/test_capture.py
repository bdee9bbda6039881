"""What a graph says about its call: symbols, guards, lines; and modules that cannot be captured."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from kernelwright.capture import (
    CaptureError,
    UnsupportedValueError,
    WrongArgumentsError,
    capture,
    capture_module,
)
from kernelwright.capture.arguments import bind
from kernelwright.capture.attempts import Attempt, following
from kernelwright.capture.errors import SymbolicWorkError, UnsolvedSizeError
from kernelwright.capture.openness import Extent, OpenSizes, watched_conditions
from kernelwright.errors import ExitCode
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import RefusedCallError
from kernelwright.ir.kinds import Constant, Contract, Input, Opaque, Pointwise, View
from kernelwright.ir.types import DType, ScalarType, TensorType
from kernelwright.problem.loading import parse_problem

Run = Callable[..., Any]


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return capture_module(Wrapped(function), args)


def conditions(graph: Graph) -> list[str]:
    return [guard.condition for guard in graph.guards]


def kinds(graph: Graph) -> list[str]:
    return [type(node.kind).__name__ for node in graph.nodes if not isinstance(node.kind, Input)]


# --- Sizes -------------------------------------------------------------------------------------


def test_equal_sizes_share_a_symbol() -> None:
    graph = graph_of(torch.matmul, torch.rand(3, 4), torch.rand(4, 5))
    assert [(s.name, s.input, s.dim) for s in graph.symbols] == [
        *(("s0", "x", 0), ("s1", "x", 1), ("s2", "y", 1)),
    ]
    assert [str(node.type) for node in graph.inputs] == ["f32[s0, s1]", "f32[s1, s2]"]


def test_sizes_may_depend_on_each_other() -> None:
    graph = graph_of(lambda x, y: x + y[1:], torch.rand(12), torch.rand(13))
    assert [str(node.type) for node in graph.inputs] == ["f32[s0]", "f32[s0 + 1]"]
    assert graph["slice"].tensor.shape[0].hint == 12


def test_a_size_of_one_is_static() -> None:
    graph = graph_of(lambda x: x + 1, torch.rand(1, 4))
    assert str(graph["x"].type) == "f32[1, s0]"


def test_divisors_are_required() -> None:
    graph = graph_of(lambda x: x.view(-1, 4).sum(0), torch.rand(12))
    assert "(s0 % 4) == 0" in conditions(graph)


def test_relations_between_sizes_are_required(run: Run) -> None:
    module = Wrapped(lambda x, y: x.view(2, -1) + y)
    graph = capture_module(module, (torch.rand(12), torch.rand(6)))
    run(graph, module, (torch.rand(8), torch.rand(4)), {})
    with pytest.raises(RefusedCallError, match="sizes must satisfy"):
        run(graph, module, (torch.rand(8), torch.rand(5)), {})


def test_least_sizes_are_required() -> None:
    graph = graph_of(lambda x: x[:5] + 1, torch.rand(12))
    assert conditions(graph) == ["y is None", "s0 >= 5"]


def test_static_sizes_are_noted() -> None:
    graph = graph_of(
        lambda x: torch.cond(x.shape[0] > 3, torch.sin, torch.cos, (x,)), torch.rand(9)
    )
    assert str(graph["x"].type) == "f32[9]"
    assert graph.notes[0].startswith("sizes are those of the capture")


def test_sizes_that_sympy_cannot_solve_for_stay_open(run: Run) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halve = nn.Conv2d(8, 8, 3, stride=2, padding=1)
            self.last = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pooled = nn.functional.avg_pool2d(self.halve(self.halve(x)), 7)
            return self.last(pooled.view(pooled.size(0), -1))

    model = Model()
    graph = capture_module(model, (torch.rand(2, 8, 28, 28),))
    assert graph.notes == ()
    assert str(graph["x"].type) == "f32[s0, 8, s1, s2]"
    x = torch.rand(3, 8, 29, 27)
    torch.testing.assert_close(run(graph, model, (x,), {}), model(x))
    with pytest.raises(RefusedCallError, match="sizes must satisfy"):
        run(graph, model, (torch.rand(3, 8, 60, 27),), {})


def test_a_size_that_cannot_be_read_is_held_alone() -> None:
    attempt = Attempt(sizes=OpenSizes(Extent.ALL))
    arguments = bind(Wrapped(torch.add), (torch.rand(3, 5), torch.rand(5)), {}, frozenset())
    held = following(attempt, UnsolvedSizeError(frozenset({("x", 1)})), arguments)
    assert held is not None
    assert [held.sizes.has(("x", dim)) for dim in (0, 1)] == [True, False]
    assert held.notes[0].startswith("size 1 of x is that of the capture")
    again = following(held, UnsolvedSizeError(frozenset({("x", 1)})), arguments)
    assert again is not None and again.sizes == OpenSizes(Extent.BATCH)


class Windows(nn.Module):
    """Attention inside windows of a map that is shifted before, as Swin transformers have it."""

    def __init__(self, width: int, window: int, shift: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.window, self.shift = window, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, columns, width = x.shape
        side = self.window
        right, below = (side - columns % side) % side, (side - rows % side) % side
        padded = nn.functional.pad(x, (0, 0, 0, right, 0, below))
        _, tall, wide, _ = padded.shape
        rolled = torch.roll(padded, (-self.shift, -self.shift), dims=(1, 2))
        cut = rolled.view(batch, tall // side, side, wide // side, side, width)
        cut = cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, width)
        q, k, v = self.qkv(cut).chunk(3, dim=-1)
        inside = torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v
        back = inside.view(batch, tall // side, wide // side, side, side, width)
        back = back.permute(0, 1, 3, 2, 4, 5).reshape(batch, tall, wide, width)
        rolled = torch.roll(back, (self.shift, self.shift), dims=(1, 2))
        return x + rolled[:, :rows, :columns].contiguous()


def test_windowed_attention_is_open_in_its_batch_alone(run: Run) -> None:
    model = Windows(4, 3, 1)
    with pytest.raises(SymbolicWorkError), watched_conditions(500) as watch:
        export(model, (torch.rand(2, 8, 10, 4),), dynamic_shapes=({1: Dim.AUTO, 2: Dim.AUTO},))
    assert 500 < watch.terms < 700
    graph = capture_module(model, (torch.rand(2, 8, 10, 4),), terms=500)
    assert str(graph["x"].type) == "f32[s0, 8, 10, 4]"
    (note,) = graph.notes
    assert note.startswith("sizes but for the first of each argument are those of the capture")
    x = torch.rand(5, 8, 10, 4)
    torch.testing.assert_close(run(graph, model, (x,), {}), model(x))


def test_keywords_without_names_of_their_own_are_captured(run: Run) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
            return x * others["scale"]

    x, scale = torch.rand(4), torch.rand(4)
    graph = capture_module(Model(), (x,), {"scale": scale})
    assert [str(node.type) for node in graph.inputs] == ["f32[s0]", "f32[s0]"]
    x, scale = torch.rand(5), torch.rand(5)
    assert torch.equal(run(graph, Model(), (x,), {"scale": scale}), x * scale)


def test_symbols_avoid_the_names_of_arguments() -> None:
    class Model(nn.Module):
        def forward(self, s0: torch.Tensor) -> torch.Tensor:
            return s0 + 1

    graph = capture_module(Model(), (torch.rand(3),))
    assert graph.symbols[0].name != "s0"
    assert graph.symbols[0].input == "s0"


# --- Numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        (torch.float16, DType.F16),
        (torch.bfloat16, DType.BF16),
        (torch.float64, DType.F64),
        (torch.int64, DType.F32),
        (torch.int8, DType.F32),
        (torch.bool, DType.F32),
    ],
)
def test_a_float_promotes_as_python_floats_do(dtype: torch.dtype, result: DType, run: Run) -> None:
    module = Wrapped(lambda x, y: x * y)
    x = torch.arange(6).reshape(2, 3).to(dtype)
    graph = capture_module(module, (x, 2.5))
    assert graph["y"].type == ScalarType(DType.F64)
    assert graph["mul"].tensor.dtype is result
    torch.testing.assert_close(run(graph, module, (x, 1 / 3), {}), module(x, 1 / 3))


def test_arithmetic_of_numbers_is_in_double_precision(run: Run) -> None:
    module = Wrapped(lambda x, y: x + ((y + 1e12) - 1e12))
    graph = capture_module(module, (torch.rand(3), 0.25))
    x = torch.zeros(3)
    torch.testing.assert_close(run(graph, module, (x, 0.375), {}), module(x, 0.375))


@pytest.mark.parametrize("value", [3, 1, 0, -2])
def test_an_integer_stays_open(value: int, run: Run) -> None:
    module = Wrapped(lambda x, y: x * y)
    graph = capture_module(module, (torch.rand(3), value))
    x = torch.rand(4)
    torch.testing.assert_close(run(graph, module, (x, -7), {}), module(x, -7))


def test_an_integer_as_a_size() -> None:
    graph = graph_of(lambda x, y: x[:y] + 1, torch.rand(12), 5)
    assert ("y", None) in [(symbol.input, symbol.dim) for symbol in graph.symbols]
    assert "y >= 0" in conditions(graph)


def test_numbers_that_decide_are_held_fast() -> None:
    graph = graph_of(lambda x, y: x * y if y > 1 else x, torch.rand(3), 2.5)
    assert conditions(graph) == ["isinstance(y, float) and y == 2.5"]
    assert graph.notes[0].startswith("the value of y is that of the capture")


def test_flags_and_absent_arguments_are_held_fast() -> None:
    flagged = graph_of(lambda x, y: x.sum(0, keepdim=y), torch.rand(3, 2), True)
    assert conditions(flagged) == ["y is True"]
    assert conditions(graph_of(lambda x: x + 1, torch.rand(3))) == ["y is None"]


def test_numbers_inside_tensors_only_operators_are_held_fast() -> None:
    graph = graph_of(lambda x, y: torch.stack([torch.as_tensor(y), x[0]]), torch.rand(3), 2.5)
    assert conditions(graph) == ["isinstance(y, float) and y == 2.5"]


# --- Nodes -------------------------------------------------------------------------------------


def test_every_pointwise_and_contract_node_keeps_its_call() -> None:
    graph = graph_of(lambda x, y: torch.relu(x @ y) * 2, torch.rand(3, 4), torch.rand(4, 5))
    calls = [str(node.origin) for node in graph.nodes if node.origin]
    assert calls == [
        *("aten.matmul.default(x, y)", "aten.relu.default(matmul)", "aten.mul.Tensor(relu, 2)"),
    ]
    assert [node.operators for node in graph.nodes if node.origin] == [
        *(("matmul",), ("relu",), ("mul",)),
    ]


def test_linear_is_a_contraction_and_an_addition() -> None:
    graph = capture_module(nn.Linear(4, 5), (torch.rand(2, 3, 4),))
    assert graph["linear"].kind == Contract("abc", "dc", "abd")
    assert graph["bias_1"].inputs == ("linear", "bias")
    assert isinstance(graph["bias_1"].kind, Pointwise)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda d, b: torch.einsum("i,ij->ij", d, b),
        lambda d, b: torch.einsum("i,ij->ij", torch.diagonal(torch.diag(d)), b),
        lambda d, b: d.unsqueeze(1) * b,
    ],
)
def test_products_without_a_sum_are_pointwise(spelling: Callable[..., Any]) -> None:
    graph = graph_of(spelling, torch.rand(4), torch.rand(4, 5))
    assert set(kinds(graph)) == {"View", "Pointwise"}


def test_ones_are_broadcast_by_views() -> None:
    graph = graph_of(torch.matmul, torch.rand(1, 3, 4), torch.rand(5, 4, 6))
    assert kinds(graph) == ["View", "Contract"]
    assert graph["matmul"].kind == Contract("bc", "acd", "abd")


def test_complex_numbers_are_left_alone() -> None:
    graph = graph_of(lambda x: torch.fft.fft(x).abs() + 1, torch.rand(6))
    assert kinds(graph) == ["Opaque", "Opaque", "Pointwise"]


def test_batch_norm_updates_its_buffers() -> None:
    graph = capture_module(nn.BatchNorm1d(4), (torch.rand(3, 4),))
    updates = [update.path for update in graph.updates]
    assert sorted(updates) == ["num_batches_tracked", "running_mean", "running_var"]
    graph = capture_module(nn.BatchNorm1d(4).eval(), (torch.rand(3, 4),))
    assert kinds(graph)[-1] == "Pointwise"
    assert graph.updates == ()


def test_random_calls_are_marked() -> None:
    assert capture_module(nn.Dropout(), (torch.rand(3),))["dropout"].kind == Opaque(random=True)
    lstm = capture_module(nn.LSTM(4, 4, 2, dropout=0.5), (torch.rand(3, 2, 4),))
    assert lstm["lstm"].kind == Opaque(random=True)
    inactive = nn.Sequential(nn.Dropout(), nn.ReLU()).eval()
    assert kinds(capture_module(inactive, (torch.rand(3),))) == ["Pointwise"]


def test_long_sequences_are_not_unrolled() -> None:
    graph = capture_module(nn.LSTM(4, 4, batch_first=True), (torch.rand(2, 4096, 4),))
    assert str(graph["input"].type) == "f32[s0, s1, 4]"
    assert sum(node.name == "lstm" for node in graph.nodes) == 1


def test_copies_that_are_returned_stay_copies() -> None:
    assert kinds(graph_of(lambda x: x.clone(), torch.rand(3))) == ["Opaque"]
    assert kinds(graph_of(lambda x: x.clone() + 1, torch.rand(3))) == ["Pointwise"]


def test_literal_tensors_are_constants() -> None:
    graph = graph_of(lambda x: x + torch.tensor([1.5, 2.5]), torch.rand(3, 2))
    (constant,) = (node for node in graph.nodes if isinstance(node.kind, Constant))
    assert constant.kind == Constant(None, (1.5, 2.5))


def test_devices_are_those_of_the_inputs() -> None:
    graph = graph_of(lambda x: x + torch.arange(3, device=x.device), torch.rand(3))
    assert "device=device" in str(graph["arange"].origin)


def test_lines_of_the_users_file() -> None:
    text = """\
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
    def forward(self, x):
        return self.linear(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        x = self.block(x)
        return torch.relu(x)
def get_inputs():
    return [torch.rand(2, 3)]
def get_init_inputs():
    return []
"""
    graph = capture(parse_problem(Path("/somewhere/model.py"), text))
    assert (graph["linear"].source, graph["relu"].source) == ("model.py:8", "model.py:15")
    assert graph.name == "model"


def test_views_of_views_keep_their_types() -> None:
    graph = graph_of(lambda x: x.mT.flatten(1)[:, 2:] + 0, torch.rand(2, 3, 4))
    assert kinds(graph) == ["View", "View", "View", "Pointwise"]
    assert all(
        isinstance(node.type, TensorType) for node in graph.nodes if isinstance(node.kind, View)
    )


# --- What cannot be captured -------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x * float(x.max()),
        lambda x: x.reshape(-1)[: int(x.sum())],
    ],
)
def test_control_flow_by_values(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError) as caught:
        graph_of(function, torch.rand(4))
    assert caught.value.exit_code is ExitCode.UNSUPPORTED
    assert not re.search(r"\b[suz]\w*\d", str(caught.value)), "a symbol of PyTorch's"


def test_exceptions_in_forward_come_with_the_line() -> None:
    text = """\
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        y = x + 1
        return y @ torch.rand(7, 7)
def get_inputs():
    return [torch.rand(2, 3)]
def get_init_inputs():
    return []
"""
    with pytest.raises(CaptureError, match="RuntimeError") as caught:
        capture(parse_problem(Path("/somewhere/model.py"), text))
    assert caught.value.location == "model.py:6"


@pytest.mark.parametrize("function", [torch.nonzero, lambda x: x[x > 0], torch.unique])
def test_sizes_by_values(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedValueError, match="depends on the numbers in a tensor"):
        graph_of(function, torch.rand(4))


def test_results_without_a_word_for() -> None:
    with pytest.raises((UnsupportedValueError, CaptureError)):
        graph_of(lambda x: {3: x}, torch.rand(4))


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(WrongArgumentsError, match="missing a required argument: 'x'") as caught:
        capture_module(Wrapped(torch.relu), ())
    assert "get_inputs" not in str(caught.value)
    with pytest.raises(WrongArgumentsError, match="too many"):
        capture_module(Wrapped(torch.relu), (torch.rand(3), None, 3))


def test_arguments_of_other_kinds() -> None:
    with pytest.raises(UnsupportedValueError, match="complex"):
        graph_of(lambda x, y: x, torch.rand(3), 1j)


def test_plain_programs_are_made_functional_without_tracing_again(run: Run) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(self.conv(x)).relu_()
            kept = y + 1
            y.add_(kept).mul_(2)
            return nn.functional.dropout(y.flatten(1), 0.5, self.training) + kept.flatten(1)

    class Viewed(nn.Module):
        """Other shapes and types of what there is."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, *rest = x.chunk(2, 1)
            scale = first.mean((1, 2, 3), keepdim=True).expand_as(x).to(torch.float64)
            flat = (x * scale.to(x.dtype)).flatten(1).reshape_as(x.swapaxes(2, 3)).to(x.device)
            return flat.to(x).sum((0, 1)).T @ rest[0].sum((0, 1)) + torch.tensor(1.5)

    class Shared(nn.Module):
        """Changes that are seen through a view, an argument, or another type."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            row = y[0]
            y.mul_(3)
            return y + row

    model, x = Model().eval(), torch.rand(2, 3, 8, 8)
    with patch.object(ExportedProgram, "run_decompositions", side_effect=AssertionError):
        graph = capture_module(model, (x,))
        views = capture_module(Viewed(), (torch.rand(2, 4, 8, 8),))
        with pytest.raises(CaptureError):
            capture_module(Shared(), (x,))
    square = torch.rand(3, 6, 9, 9)
    torch.testing.assert_close(run(views, Viewed(), (square,), {}), Viewed()(square))
    other = torch.rand(3, 3, 9, 7)
    torch.testing.assert_close(run(graph, model, (other,), {}), model(other))
    shared = capture_module(Shared(), (x,))
    torch.testing.assert_close(run(shared, Shared(), (other,), {}), Shared()(other))


# --- Manners -----------------------------------------------------------------------------------


def test_the_module_stays_as_it_was() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(3)
            self.linear = nn.Linear(3, 3)
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.linear(x)) * self.scale

    module = Model()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    scale = module.scale
    capture_module(module, (torch.rand(4, 3),))
    assert module.scale is scale
    assert "scale" in vars(module)
    assert list(module.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_nothing_is_printed_and_no_random_number_is_drawn(
    capfd: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph_of(lambda x, y: nn.functional.dropout(x) * y if y > 1 else x, torch.ones(3, 1), 2.5)
    assert torch.equal(torch.rand(3), expected)
    assert capfd.readouterr() == ("", "")
