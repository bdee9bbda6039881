"""Caches that a call writes a few places of: no copy of them, the same values, twice in a row."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.emulator import Session
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Write
from kernelwright.ir.plan import Launch, Room, TorchCall
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.program_interpreter import run_program
from kernelwright.machine import H200
from kernelwright.module import optimize_module
from kernelwright.program import program_of
from kernelwright.schedule import plan_graph

Change = Callable[[Tensor, Tensor], Any]


class Cached(nn.Module):
    """One change of a cache, an argument."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change

    def forward(self, cache: Tensor, new: Tensor) -> Any:
        return self.change(cache, new)


def _last(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, -1:] = new * 2
    return F.scaled_dot_product_attention(new, cache, cache)


def _index(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, 3] = new[:, :, 0].exp()
    return cache.sum()


def _several(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, 1:5] = torch.cat([new, new + 1, new + 2, new + 3], dim=2)
    return cache.mean(dim=2)


def _twice(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, 2:3] = new
    cache[:, :, 4:6] = torch.cat([new, new + 1], dim=2)
    return cache @ new.transpose(-1, -2)


def _given_back(cache: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    cache[:, :, -1:] = new + 1
    return cache, cache.sum(dim=2)


IN_PLACE: list[Change] = [_last, _index, _several, _twice, _given_back]


def _old_is_read(cache: Tensor, new: Tensor) -> Tensor:
    before = cache.clone()
    cache[:, :, -1:] = new
    return before.sum(dim=2) + cache.amax(dim=2)


def _old_is_part_of_new(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, -1:] = cache[:, :, :1] * new
    return cache.sum(dim=2)


def _view_is_given_back(cache: Tensor, new: Tensor) -> Tensor:
    cache[:, :, -1:] = new
    return cache[:, :, 2:].clone()


def _joined(cache: Tensor, new: Tensor) -> Tensor:
    """Nothing is changed: the caller gets a new cache."""
    return torch.cat([cache[:, :, 1:], new], dim=2)


COPIED: list[Change] = [_old_is_read, _old_is_part_of_new, _view_is_given_back, _joined]


def _expect_same(change: Change, run: Callable[..., Any], *inputs: Tensor) -> None:
    """Values, and what the cache holds afterwards, of two calls in a row."""
    own, others = ([it.clone() for it in inputs] for _ in range(2))
    for _ in range(2):
        found, expected = run(*own), change(*others)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(own, others, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("change", [*IN_PLACE, *COPIED], ids=lambda it: it.__name__)
def test_a_cache_takes_what_is_written_to_it(change: Change) -> None:
    module, inputs = Cached(change).eval(), (torch.rand(2, 3, 7, 8), torch.rand(2, 3, 1, 8))
    graph = capture_module(module, tuple(it.clone() for it in inputs))
    plan = plan_graph(graph, H200).plan
    program = program_of(plan)
    for run in (
        lambda *args: run_graph(graph, module, args, {}),
        lambda *args: run_plan(plan, module, args),
        lambda *args: run_program(program, module, args),
    ):
        _expect_same(change, run, *inputs)
    rooms = [it for it in plan.steps if isinstance(it, Room) and it.within is not None]
    written = [it.kind.path for it in plan.graph.nodes if isinstance(it.kind, Write)]
    copies = [it for it in plan.steps if isinstance(it, TorchCall) and "copy_" in it.name]
    if change is _given_back:
        own = [it.clone() for it in inputs]
        assert run_program(program, module, own)[0] is own[0]
    if change in IN_PLACE:
        assert rooms and set(written) == {"cache"} and not copies
        made = [out for it in plan.steps if isinstance(it, Launch) for out in it.kernel.outputs]
        assert inputs[0].shape not in [tuple(d.hint for d in it.shape) for it in made]
    else:
        assert not rooms and not written


class Step(nn.Module):
    """A step whose caches are buffers, with a projection in front."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 16)
        self.register_buffer("keys", torch.rand(2, 3, 7, 8))
        self.register_buffer("values", torch.rand(2, 3, 7, 8))

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        key, value = self.project(x).chunk(2, dim=-1)
        self.keys[:, :, 4:5] = key
        self.values[:, :, 4:5] = value
        other[:, 2:3] = x.transpose(1, 2) * 2
        return (
            F.scaled_dot_product_attention(x, self.keys, self.values) + other[:, :1, :, None].sum()
        )


@torch.no_grad()
def test_kernels_write_to_buffers_and_to_arguments_of_any_strides() -> None:
    module = Step().eval()
    ours = deepcopy(module)
    inputs = [torch.rand(2, 3, 1, 8), torch.rand(2, 3, 5, 8).transpose(1, 2)]
    others = [it.clone() for it in inputs]
    inputs[1] = torch.rand(2, 5, 8, 3).permute(0, 1, 3, 2).copy_(inputs[1])
    fast = optimize_module(ours, tuple(others), machine=H200)
    assert not [it for it in fast.kernelwright.left_to_pytorch if "copy" in it]
    with Session():
        for _ in range(2):
            own = [inputs[0], inputs[1].clone(memory_format=torch.preserve_format)]
            expected, found = module(*own), fast(*inputs)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(inputs[1], own[1])
    for name in ("keys", "values"):
        torch.testing.assert_close(getattr(ours, name), getattr(module, name))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(0, 6),
    st.integers(1, 3),
)
def test_any_places_of_any_dimension(sizes: list[int], dim: int, start: int, count: int) -> None:
    dim %= len(sizes)
    sizes[dim] = 8
    places = tuple(slice(None) for _ in range(dim))

    def change(cache: Tensor, new: Tensor) -> Tensor:
        cache[(*places, slice(start, start + count))] = new + 1
        return cache.sum()

    new = torch.rand([*sizes[:dim], min(count, 8 - start), *sizes[dim + 1 :]])
    module, cache = Cached(change).eval(), torch.rand(sizes)
    plan = plan_graph(capture_module(module, (cache.clone(), new)), H200).plan
    assert any(isinstance(it, Room) and it.within is not None for it in plan.steps)
    _expect_same(change, lambda *args: run_plan(plan, module, args), cache, new)
