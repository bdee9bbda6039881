"""Random modules: their plans compute what the modules compute."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph

Tensor = torch.Tensor
Step = tuple[int, int, int, int]
"""Which operation, on which values, and how."""


def _dims(x: Tensor, how: int) -> tuple[int, ...]:
    """Some dimensions of `x`, at least one."""
    chosen = tuple(d for d in range(x.dim()) if how >> d & 1)
    return chosen or (x.dim() - 1,)


def _like(x: Tensor, y: Tensor) -> Tensor:
    """Something of `y` that broadcasts to `x`."""
    while y.dim() > x.dim():
        y = y[0]
    for dim in range(1, y.dim() + 1):
        if y.shape[-dim] not in (1, x.shape[-dim]):
            y = y.narrow(-dim, 0, 1)
    return y


OPERATIONS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "tanh": lambda x, y, how: torch.tanh(x),
    "relu": lambda x, y, how: F.relu(x - 0.1),
    "sigmoid": lambda x, y, how: torch.sigmoid(x),
    "scale": lambda x, y, how: x * 0.5 + 1,
    "add": lambda x, y, how: x + _like(x, y),
    "mul": lambda x, y, how: x * _like(x, y),
    "where": lambda x, y, how: torch.where(_like(x, y) > 0, x, -x),
    "sum": lambda x, y, how: x.sum(_dims(x, how), keepdim=how % 3 > 0) * 0.1,
    "mean": lambda x, y, how: x.mean(_dims(x, how), keepdim=how % 2 > 0),
    "amax": lambda x, y, how: x.amax(_dims(x, how), keepdim=True),
    "var": lambda x, y, how: x.var(_dims(x, how), unbiased=False, keepdim=how % 2 > 0),
    "softmax": lambda x, y, how: x.softmax(how % x.dim()),
    "normalize": lambda x, y, how: x / (1 + x.norm(dim=how % x.dim(), keepdim=True)),
    "layer_norm": lambda x, y, how: F.layer_norm(x, x.shape[-1:]),
    "cumsum": lambda x, y, how: x.cumsum(how % x.dim()) * 0.2,
    "transpose": lambda x, y, how: x.transpose(0, -1),
    "flatten": lambda x, y, how: x.flatten(how % x.dim()),
    "unsqueeze": lambda x, y, how: x.unsqueeze(how % (x.dim() + 1)) if x.dim() < 4 else x,
    "slice": lambda x, y, how: x.narrow(how % x.dim(), 0, max(1, x.shape[how % x.dim()] - 1)),
    "flip": lambda x, y, how: x.flip(how % x.dim()),
    "max_pool": lambda x, y, how: (
        F.max_pool1d(x, 2, 1, 0) if x.dim() == 3 and x.shape[-1] > 2 else x + 1
    ),
    "matmul": lambda x, y, how: torch.tanh(x @ x.mT) if x.dim() >= 2 else x - 1,
}
NAMES = tuple(OPERATIONS)


class Random(nn.Module):
    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        values = [x, y, self.weight]
        for which, first, second, how in self.steps:
            operation = OPERATIONS[NAMES[which % len(NAMES)]]
            one, two = (values[-1 - n % len(values)] for n in (first, second))
            values.append(operation(one, two, how))
            if values[-1].dim() == 0:
                values[-1] = values[-1] + self.weight
        return values[-1], values[3 + self.steps[0][3] % len(self.steps)]


STEPS = st.lists(
    st.tuples(st.integers(0, len(NAMES) - 1), *[st.integers(0, 7)] * 3), min_size=1, max_size=12
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_plans_of_random_graphs(steps: list[Step], run_plan: Callable[..., Any]) -> None:
    module = Random(steps).double()
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(2, 3, 4, dtype=torch.float64, generator=generator) - 0.3
    y = torch.rand(3, 4, dtype=torch.float64, generator=generator) - 0.3
    expected = module(x, y)
    captured = capture_module(module, (x, y))
    plan = plan_graph(captured, H200, Library.NEVER).plan
    for want, got in zip(expected, run_plan(plan, module, (x, y)), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-7, equal_nan=True)
