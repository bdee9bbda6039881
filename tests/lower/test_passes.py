"""The list of passes: each is said to have changed a graph where it has, and nowhere else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import run_graph
from kernelwright.lower import PASSES, lower
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite


class Biased(nn.Module):
    """A function of what has its own bias for every channel."""

    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 16).reshape(16, 1, 1))
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(x + self.bias)


def graph_of(module: nn.Module, x: Tensor) -> Graph:
    return rewrite(capture_module(module, (x,))).graph


def cheap_step_read_twice(x: Tensor) -> Tensor:
    return x.softmax(-1) + x.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        (torch.relu, ()),
        (cheap_step_read_twice, ("rematerialisation",)),
        (lambda y: y.sum((1, 2, 3)), ("split reductions",)),
    ],
    ids=["relu", "read twice", "sum of channels"],
)
@torch.no_grad()
def test_the_passes_that_changed_a_graph_are_named(
    after: Callable[[Tensor], Tensor], changed: tuple[str, ...]
) -> None:
    module, x = Biased(after).eval(), torch.rand(8, 16, 128, 257)
    graph = graph_of(module, x)
    lowered = lower(graph, H200)
    assert set(changed) <= set(lowered.changed)
    assert bool(lowered.changed) is (lowered.graph != graph)
    torch.testing.assert_close(
        run_graph(lowered.graph, module, (x,), {}), module(x), rtol=1e-4, atol=1e-4
    )


def test_what_ran_before_is_seen_by_what_runs_after() -> None:
    names = [step.name for step in PASSES]
    assert len(set(names)) == len(names)
    assert names.index("rematerialisation") < names.index("channels-last operands")
    assert names.index("channels-last operands") < names.index("split reductions")
    assert all(step.what.endswith(".") for step in PASSES)
