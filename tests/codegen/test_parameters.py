"""What a call reads of its module: found once, and found again after any change of it."""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from kernelwright.emulator.session import Session
from kernelwright.machine import H200
from kernelwright.module import OptimizedModule, optimize_module


class Scaled(nn.Module):
    """Two launches that read parameters in a list, one of the module's own, and a buffer."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.mix = nn.Parameter(torch.rand(8, 8))
        self.register_buffer("shift", torch.rand(8))
        for value in self.parameters():
            nn.init.uniform_(value)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.softmax(self.norms[0](x) * self.mix, 0)
        return torch.softmax(self.norms[1](x) + self.shift.view(8, 1), 0)


@pytest.fixture(scope="module")
def emulated() -> Iterator[None]:
    """An emulator for all tests: what they launch runs here."""
    with torch.no_grad(), Session():
        yield


@pytest.fixture
def x(emulated: None) -> Tensor:
    return torch.rand(8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def fast(emulated: None) -> OptimizedModule:
    torch.manual_seed(0)
    return optimize_module(Scaled(), (torch.rand(8, 8),), machine=H200)


def looks(fast: OptimizedModule, count: list[int]) -> None:
    """Count from now on how often a call looks at its module."""
    space = fast._run.__globals__
    before = space["_operands"]

    def operands(module: nn.Module) -> Any:
        count.append(1)
        return before(module)

    space["_operands"] = operands


def test_a_call_that_finds_the_same_does_not_look_again(fast: OptimizedModule, x: Tensor) -> None:
    space, count = fast._run.__globals__, list[int]()
    before = space["_operands"]
    fast(x)
    try:
        looks(fast, count)
        for _ in range(3):
            torch.testing.assert_close(fast(x), fast.original()(x))
        assert not count
        fast.mix.data = torch.rand(8, 8)
        fast(x)
        assert len(count) == 1
    finally:
        space["_operands"] = before


def load(fast: Any, **options: bool) -> None:
    fast.load_state_dict(
        {name: torch.rand_like(it) for name, it in fast.state_dict().items()}, **options
    )


def swap_children(fast: Any) -> None:
    first, second = fast.norms
    fast.norms._modules = OrderedDict({"0": second, "1": first})


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


CHANGES: dict[str, Callable[[Any], object]] = {
    "replaced": lambda it: setattr(it, "mix", nn.Parameter(torch.rand(8, 8))),
    "replaced below": lambda it: setattr(it.norms[1], "weight", nn.Parameter(torch.rand(8))),
    "a child replaced": lambda it: it.norms.__setitem__(
        0, nn.LayerNorm(8, eps=1e-5).half().float()
    ),
    "a list replaced": lambda it: setattr(it, "norms", nn.ModuleList(reversed(it.norms))),
    "a table replaced": swap_children,
    "tied": lambda it: setattr(it.norms[0], "weight", it.norms[1].bias),
    "a buffer replaced": lambda it: setattr(it, "shift", torch.rand(8)),
    "other memory": lambda it: setattr(it.mix, "data", torch.rand(8, 8)),
    "other strides": lambda it: setattr(it.mix, "data", it.mix.data.t()),
    "strides in place": lambda it: it.mix.t_(),
    "values in place": lambda it: it.norms[0].bias.mul_(3),
    "loaded": load,
    "loaded by assignment": lambda it: load(it, assign=True),
    "moved": lambda it: (it.double().float(), it.norms[0].bias.neg_()),
    "a property": lambda it: parametrize.register_parametrization(it.norms[0], "bias", Doubled()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_module_is_seen(fast: OptimizedModule, change: str, x: Tensor) -> None:
    before = fast(x)
    CHANGES[change](fast)
    expected = fast.original()(x)
    assert (before - expected).abs().max() > 1e-4
    for _ in range(2):
        torch.testing.assert_close(fast(x), expected)
    assert fast.why_not(x) is None


def test_what_a_property_gives_is_read_in_each_call(fast: OptimizedModule, x: Tensor) -> None:
    parametrize.register_parametrization(fast.norms[0], "bias", Doubled())
    fast(x)
    fast.norms[0].parametrizations.bias.original.mul_(3)  # type: ignore[union-attr,operator]
    torch.testing.assert_close(fast(x), fast.original()(x))


def test_other_tensors_for_one_call(fast: OptimizedModule, x: Tensor) -> None:
    before = fast(x)
    values = {name: torch.rand_like(it) for name, it in fast.state_dict().items()}
    inside = torch.func.functional_call(fast, values, (x,))
    torch.testing.assert_close(inside, torch.func.functional_call(fast.original(), values, (x,)))
    torch.testing.assert_close(fast(x), before)


def test_a_parameter_of_another_dtype_or_shape_is_refused_after_calls(
    fast: OptimizedModule, x: Tensor
) -> None:
    fast(x)
    fast.mix.data = torch.rand(9, 8)
    assert "mix: expected shape (8, 8), got (9, 8)" in str(fast.why_not(x))
    fast.mix.data = torch.rand(8, 8)
    fast.shift = fast.shift.double()
    assert "shift: expected dtype torch.float32" in str(fast.why_not(x))


def test_a_buffer_that_wants_a_gradient_is_refused_after_calls(
    fast: OptimizedModule, x: Tensor
) -> None:
    for value in fast.parameters():
        value.requires_grad_(False)
    with torch.enable_grad():
        fast(x)
        fast.shift.requires_grad_()
        with pytest.raises(RuntimeError, match="shift: these kernels have no backward"):
            fast(x)


@pytest.mark.parametrize(
    "way", [copy.deepcopy, copy.copy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_copies_look_for_themselves(
    fast: OptimizedModule, way: Callable[..., Any], x: Tensor
) -> None:
    before = fast(x)
    other = way(fast)
    other.mix = nn.Parameter(torch.rand(8, 8))
    torch.testing.assert_close(other(x), other.original()(x))
    if way is not copy.copy:  # Which shares its tables.
        torch.testing.assert_close(fast(x), before)


def test_calls_keep_no_module_alive(fast: OptimizedModule, x: Tensor) -> None:
    other = copy.deepcopy(fast)
    other(x)
    parameter = weakref.ref(other.mix)
    gc.collect()
    gc.disable()
    try:
        del other
        assert parameter() is None
    finally:
        gc.enable()


class Failing:
    """A library of kernels that cannot be launched."""

    def __getattr__(self, name: str) -> Any:
        if name == "error_name":
            return lambda code: b"cudaErrorLaunchFailure"
        return lambda words: 0 if name.startswith("workspace_") else 719


def test_a_launch_that_fails_leaves_nothing_for_later_calls(
    fast: OptimizedModule, x: Tensor
) -> None:
    expected = fast(x)
    space = fast._run.__globals__
    library = space["_library"]
    space["_library"] = Failing
    try:
        with pytest.raises(RuntimeError, match=r"launch_forward: cudaErrorLaunchFailure.*719"):
            fast(x)
    finally:
        space["_library"] = library
    torch.testing.assert_close(fast(x), expected)
