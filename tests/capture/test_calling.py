"""What a call passes and returns: arguments by name, numbers, classes; nothing silently wrong."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import CaptureError, UnsupportedValueError, capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import RefusedCallError

Run = Callable[..., Any]


class Wrapped(nn.Module):
    """A function of a tensor and a number."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, n: Any = 0) -> Any:
        return self.function(x, n)


def conditions(graph: Graph) -> list[str]:
    return [guard.condition for guard in graph.guards]


# --- Numbers -----------------------------------------------------------------------------------


def last_rows(x: Tensor, n: Any) -> Tensor:
    """As causal language models choose the places that they give logits for."""
    return x[:, slice(-n, None) if isinstance(n, int) else n] + 1


ASKING: dict[str, tuple[Callable[..., Tensor], Any, Any]] = {
    "isinstance": (last_rows, 2, 3),
    "type": (lambda x, n: x * 2 if type(n) is int else x * 3, 5, 6),
    "is a tensor": (lambda x, n: x + (1.0 if torch.is_tensor(n) else n), 2.5, 3.5),
    "a constant by type": (lambda x, n: x + (n if isinstance(n, float) else 7.0), 2.5, 3.5),
}


@pytest.mark.parametrize("case", ASKING.values(), ids=ASKING)
def test_numbers_that_the_code_asks_about_are_constants(
    case: tuple[Callable[..., Tensor], Any, Any], run: Run
) -> None:
    function, value, other = case
    module, x = Wrapped(function), torch.rand(2, 6)
    graph = capture_module(module, (x, value))
    torch.testing.assert_close(run(graph, module, (x, value), {}), module(x, value))
    note = "the value of n is that of the capture (what the module does depends on what the number"
    assert graph.notes[0].startswith(note)
    for refused in (other, torch.tensor(value)):
        with pytest.raises(RefusedCallError, match="compiled for n = "):
            run(graph, module, (x, refused), {})


def test_numbers_that_the_caller_leaves_out_are_constants(run: Run) -> None:
    module, x = Wrapped(last_rows), torch.rand(2, 6)
    graph = capture_module(module, (x,))
    assert graph.notes == ()
    assert conditions(graph) == ["isinstance(n, int) and n == 0"]
    assert run(graph, module, (x,), {}).shape == module(x).shape == (2, 6)


@pytest.mark.parametrize("value", [3, 2.5])
def test_numbers_that_nothing_is_asked_about_stay_open(value: Any, run: Run) -> None:
    module, x = Wrapped(lambda x, n: torch.softmax(x * n + n / 3, 1)), torch.rand(2, 6)
    graph = capture_module(module, (x, value))
    assert graph.notes == ()
    torch.testing.assert_close(run(graph, module, (x, value + 4), {}), module(x, value + 4))


# --- Arguments ---------------------------------------------------------------------------------


class Decorated(nn.Module):
    """Passes on by name what the caller left out, as transformers' decorators do."""

    def forward(self, x: Tensor, scale: Tensor | None = None, use_cache: bool | None = None) -> Any:
        return x * 2 if scale is None else x * scale


def _filling(function: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    @functools.wraps(function)
    def filled(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **{"use_cache": False, **kwargs})

    return filled


Decorated.forward = _filling(Decorated.forward)  # type: ignore[method-assign]


def test_nothing_is_added_to_what_the_caller_passes(run: Run) -> None:
    module, x, scale = Decorated(), torch.rand(3), torch.rand(3)
    for args, kwargs in [((x,), {}), ((x, scale), {}), ((), {"scale": scale, "x": x})]:
        graph = capture_module(module, args, kwargs)
        assert torch.equal(run(graph, module, args, kwargs), module(*args, **kwargs))
    assert conditions(graph) == ["use_cache is None"]


class Rest(nn.Module):
    def forward(self, x: Tensor, *more: Tensor, **named: Tensor) -> Tensor:
        return x + sum(more) + sum(named.values())


def test_more_arguments_than_were_captured_are_refused(run: Run) -> None:
    module, x = Rest(), torch.rand(3)
    graph = capture_module(module, (x, x), {"y": x})
    torch.testing.assert_close(run(graph, module, (x, x), {"y": x}), module(x, x, y=x))
    for args, kwargs in [((x, x, x), {"y": x}), ((x, x), {"y": x, "z": x})]:
        with pytest.raises(RefusedCallError, match="compiled for"):
            run(graph, module, args, kwargs)


class Total(nn.Module):
    def forward(self, xs: list[Tensor], named: dict[str, Any] | None = None) -> Tensor:
        return sum(xs) + (named["y"][0] if named else 0)


def test_containers_of_other_lengths_are_refused(run: Run) -> None:
    module, x = Total(), torch.rand(3)
    graph = capture_module(module, ([x, x], {"y": [x]}))
    torch.testing.assert_close(run(graph, module, ([x, x], {"y": [x]}), {}), 3 * x)
    for args in [([x, x, x], {"y": [x]}), ([x, x], {"y": [x, x]}), ([x, x], {"y": [x], "z": x})]:
        with pytest.raises(RefusedCallError, match=r"compiled for .* in (xs|named)"):
            run(graph, module, args, {})


# --- Results -----------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Tensor
    y: Any


@dataclasses.dataclass
class Output:
    first: Tensor
    absent: Tensor | None
    parts: list[Tensor]


torch.export.register_dataclass(Output)

RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "namedtuple": lambda x: Point(x + 1, [x - 1]),
    "of torch": lambda x: torch.max(x, 1),
    "ordered": lambda x: collections.OrderedDict(out=x + 1, aux=(x, 2)),
    "dataclass": lambda x: {"a": Output(x + 1, None, [x * 2]), "b": None},
}


def same(a: Any, b: Any) -> bool:
    """Whether two results are of the same classes, inside too, and equal."""
    if type(a) is not type(b):
        return False
    match a:
        case Tensor():
            return torch.equal(a, b)
        case dict():
            return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
        case tuple() | list():
            return len(a) == len(b) and all(map(same, a, b))
        case Output():
            return same(vars(a), vars(b))
    return bool(a == b)


@pytest.mark.parametrize("function", RESULTS.values(), ids=RESULTS)
def test_classes_of_results_are_kept(function: Callable[[Tensor], Any], run: Run) -> None:
    module, x = Wrapped(lambda x, n: function(x)), torch.rand(2, 3)
    found = run(capture_module(module, (x,)), module, (x,), {})
    assert same(found, module(x))


def test_classes_that_no_text_can_name_are_refused() -> None:
    local = collections.namedtuple("Local", "x")
    with pytest.raises(UnsupportedValueError, match=r"returns a Local, which .* has not under"):
        capture_module(Wrapped(lambda x, n: local(x + 1)), (torch.rand(3),))


class Compiled(nn.Module):
    """Another result where it is traced, as code for an export alone has it."""

    def __init__(self, otherwise: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.otherwise = otherwise

    def forward(self, x: Tensor) -> Any:
        return self.otherwise(x) if torch.compiler.is_compiling() else x + 1


OTHERWISE: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "shape": (lambda x: x[:1] + 1, r"f32\[3\] in a call and f32\[1\]"),
    "dtype": (lambda x: x.double() + 1, r"f32\[3\] in a call and f64\[3\]"),
    "structure": (lambda x: (x + 1,), r"f32\[3\] in a call and a tuple"),
    "class": (lambda x: Point(x, 1), r"f32\[3\] in a call and a Point"),
    "nothing": (lambda x: None, r"f32\[3\] in a call and None"),
}


@pytest.mark.parametrize("case", OTHERWISE.values(), ids=OTHERWISE)
def test_a_capture_that_returns_something_else_is_refused(
    case: tuple[Callable[[Tensor], Any], str],
) -> None:
    otherwise, sentence = case
    with pytest.raises(CaptureError, match=sentence):
        capture_module(Compiled(otherwise), (torch.rand(3),))


class OfDevice(nn.Module):
    """Goes by the device, and by whether there is data."""

    def __init__(self, otherwise: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.otherwise = otherwise

    def forward(self, x: Tensor) -> Any:
        return x + 1 if x.device.type == "cpu" else self.otherwise(x)


@pytest.mark.parametrize("otherwise", [lambda x: (x + 1,), lambda x: x.tolist()])
def test_a_module_that_goes_by_the_device_is_captured(otherwise: Callable[[Tensor], Any]) -> None:
    graph = capture_module(OfDevice(otherwise), (torch.rand(3),))
    assert not graph.notes


class Lazy(nn.Module):
    """Makes a tensor and installs a hook in the first call, and keeps them."""

    table: Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(3.0)
            self.child.register_forward_hook(lambda module, args, result: result + 1)
        return self.child(x) + self.table


def test_a_capture_leaves_nothing_behind(run: Run) -> None:
    module, x = Lazy(), torch.rand(3)
    graph = capture_module(module, (x,))
    assert module.table is None
    assert not module.child._forward_hooks
    assert torch.equal(run(graph, module, (x,), {}), module(x))


# --- Nested tensors ----------------------------------------------------------------------------


def test_an_encoder_that_leaves_padding_out_is_refused(run: Run) -> None:
    torch.manual_seed(0)
    x, padding = torch.rand(2, 4, 8), torch.tensor([[False] * 4, [False, False, True, True]])
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    arguments = {"src_key_padding_mask": padding}
    with pytest.raises(CaptureError, match="nested tensors") as caught:
        capture_module(nn.TransformerEncoder(layer, 1).eval(), (x,), arguments)
    assert "enable_nested_tensor=False" in caught.value.next_step
    module = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    graph = capture_module(module, (x,), arguments)
    with torch.no_grad():
        expected = module(x, **arguments)
        found = run(graph, module, (x,), arguments)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
