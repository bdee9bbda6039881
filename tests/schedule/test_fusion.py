"""Which nodes become one kernel, and which must not."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.conv_configs import Rounding
from kernelwright.ir.kinds import Conv
from kernelwright.ir.plan import Launch, Plan
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule
from kernelwright.schedule.conv_or_library import Convolutions


class Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
        return self.function(self, x, y)


def plan(function: Callable[..., object]) -> Plan:
    args = (torch.randn(6, 4), torch.randn(4))
    return schedule(rewrite(capture_module(Function(function), args)).graph, H200, Library.NEVER)


def operators(result: Plan) -> list[tuple[str, ...]]:
    return [step.kernel.operators for step in result.steps if isinstance(step, Launch)]


def test_a_chain_is_one_kernel() -> None:
    assert operators(plan(lambda m, x, y: (x + y).relu().exp())) == [("add", "relu", "exp")]


def test_a_value_used_twice_is_computed_once() -> None:
    result = plan(lambda m, x, y: x * torch.sigmoid(x))
    assert operators(result) == [("sigmoid", "mul")]
    assert len(result.kernels[0].inputs) == 1


def test_a_returned_value_is_written_once_and_read() -> None:
    def function(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> object:
        z = x.exp()
        return z, z + 1

    result = plan(function)
    assert operators(result) == [("exp",), ("add",)]
    assert [step.inputs for step in result.steps if isinstance(step, Launch)][1] == ("exp",)


def test_two_products_are_two_kernels_each_with_its_epilogue() -> None:
    result = plan(lambda m, x, y: (x @ x.T).relu() @ x + y)
    assert operators(result) == [("matmul", "relu"), ("matmul", "add")]


def test_residual_joins_the_product() -> None:
    result = plan(lambda m, x, y: (x @ x.T @ x).relu() + x)
    assert operators(result) == [("matmul",), ("matmul", "relu", "add")]


def test_a_view_between_separates_kernels() -> None:
    result = plan(lambda m, x, y: x.exp().reshape(-1).neg())
    assert operators(result) == [("exp",), ("neg",)]


def test_batch_norm_in_training_keeps_its_place() -> None:
    def function(m: Function, x: torch.Tensor, y: torch.Tensor) -> object:
        before = m.norm.running_mean * 2
        return m.norm(x) + before

    result = plan(function)
    # The buffers change when everything has been read.
    assert {update.path for update in result.graph.updates} >= {
        "norm.running_mean",
        "norm.running_var",
    }
    assert not result.left_to_pytorch
    assert sum("batch_norm" in names for names in operators(result)) == 1


def test_kernels_take_a_bounded_number_of_inputs() -> None:
    class Sum(nn.Module):
        def forward(self, xs: list[torch.Tensor]) -> torch.Tensor:
            return sum(xs[1:], xs[0])

    args = ([torch.randn(3) for _ in range(40)],)
    result = schedule(rewrite(capture_module(Sum(), args)).graph, H200, Library.NEVER)
    assert len(result.kernels) > 1
    assert max(len(kernel.inputs) for kernel in result.kernels) <= 24


class Layers(nn.Module):
    """Two products with the same text: of the same sizes, and of fewer columns."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(2048, 2048))
        self.second = nn.Parameter(torch.empty(2048, columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.first @ self.second


def test_products_share_a_kernel_if_one_configuration_serves_both() -> None:
    names = {}
    for columns in (2048, 64):
        graph = rewrite(capture_module(Layers(columns), (torch.empty(2048, 2048),))).graph
        plan = schedule(graph, H200, Library.NEVER)
        names[columns] = [kernel.name for kernel in plan.kernels]
    assert names == {2048: ["matmul"], 64: ["matmul", "matmul_2"]}


class Residual(nn.Module):
    """A block whose two branches end in a convolution and a norm each."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.long, self.short = (nn.Conv2d(64, 64, size, padding=size // 2) for size in (3, 1))
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(2))
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norms[0](self.long(x)) + self.norms[1](self.short(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_convolution_has_the_steps_of_its_branch(dtype: torch.dtype) -> None:
    x = torch.rand(8, 64, 32, 32, dtype=dtype)
    graph = rewrite(capture_module(Residual(dtype).eval(), (x,))).graph
    rounding = Rounding.NONE if dtype is torch.float32 else Rounding.SHORT
    ours = {node.name: rounding for node in graph.nodes if isinstance(node.kind, Conv)}
    chosen = Convolutions(left={}, ours=ours)
    first, second = operators(schedule(graph, H200, Library.NEVER, convolutions=chosen))
    assert {*first} - {"bias"} == {"conv2d", "batch_norm"}
    assert {*second} - {"bias"} == {"conv2d", "batch_norm", "add", "relu"}
