"""What is left to PyTorch is called as the user called it, and planned as the library does it."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernelwright.capture import capture_module
from kernelwright.codegen.python import forward_body
from kernelwright.ir.kinds import Contract
from kernelwright.ir.library_calls import PUBLIC
from kernelwright.ir.plan import Einsum, Plan, TorchCall
from kernelwright.machine import H200, Machine
from kernelwright.program import program_of
from kernelwright.schedule import Library, Planned, plan_graph


class Function(nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> object:
        return self.function(x, y)


class InvertedResidual(nn.Module):
    """Of MobileNetV2: channels up, each by itself, and down again."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        wide = 6 * channels
        self.block = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide)),
            *(nn.ReLU6(), nn.Conv2d(wide, channels, 1), nn.ReLU()),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x)


def planned(
    module: nn.Module | Callable[..., object],
    *args: torch.Tensor,
    library: Library = Library.WHERE_FASTER,
    machine: Machine = H200,
) -> Planned:
    module = module if isinstance(module, nn.Module) else Function(module)
    return plan_graph(capture_module(module, args), machine, library)


def calls(plan: Plan) -> list[str]:
    """The calls of an operator, as they are emitted."""
    lines = (line.strip().partition(" = ")[2] for line in forward_body(program_of(plan)))
    return [_call(line) for line in lines if any(name in line for name in _NAMES)]


_NAMES = ("torch.ops.aten.", *PUBLIC.values())


def _call(text: str) -> str:
    """Without the sizes at which a convolution is channels-last, and where the operator is from."""
    if text.startswith("_convolve("):
        operator, _, rest = text.removeprefix("_convolve(").partition(", (")
        text = f"{operator}({rest.partition('), ')[2]}"
    for place in ("torch.ops.aten.", "torch.nn.functional.", "torch."):
        text = text.removeprefix(place)
    return text


def product_kernels(plan: Plan) -> list[tuple[str, ...]]:
    return [kernel.operators for kernel in plan.kernels if kernel.family == "gemm"]


def test_convolutions_that_are_left_stay_convolutions() -> None:
    found = planned(InvertedResidual(64).eval(), torch.empty(16, 64, 32, 32))
    made = [call.partition("(")[0] for call in calls(found.plan)]
    assert set(made) == {"conv2d"}  # that of each channel by itself is a window
    assert product_kernels(found.plan) == []
    assert not any(isinstance(node.kind, Contract) for node in found.rewritten.graph.nodes)
    assert "self.block[6].weight, None)" in calls(found.plan)[-1]
    assert set(found.choices.left) == {"conv2d", "bias"}
    whys = [step.why for step in found.plan.left_to_pytorch if "conv2d" in step.name]
    assert ["the library" in why for why in whys] == [True, True]


def test_convolutions_that_are_ours_stay_ours() -> None:
    module = InvertedResidual(64).eval()
    found = planned(module, torch.empty(16, 64, 32, 32), library=Library.NEVER)
    made = [it.operators for it in found.plan.kernels if it.family == "conv"]
    assert made == [("conv2d", "batch_norm", "hardtanh"), ("conv2d", "bias", "relu", "add")]
    # They are products that are faster as convolutions: nobody says why they are the library's.
    assert found.choices.left == {"conv2d": None, "bias": None}


def test_another_plan_leaves_the_same_calls() -> None:
    first = planned(InvertedResidual(64).eval(), torch.empty(16, 64, 32, 32))
    graph = capture_module(InvertedResidual(64).eval(), (torch.empty(2, 64, 6, 6),))
    again = plan_graph(graph, H200, Library.NEVER, first.choices)
    assert calls(again.plan) == calls(first.plan)
    assert not product_kernels(again.plan)


@pytest.mark.parametrize(
    ("function", "shapes", "call"),
    [
        (functional.linear, ((8, 64), (32, 64)), "linear(x, y)"),
        (
            lambda x, y: functional.linear(x, y, y[:, 0]).relu(),
            ((8, 9, 64), (32, 64)),
            "linear(x, y, y.select(1, 0))",
        ),
        (
            lambda x, y: torch.addmm(y[0], x, y, alpha=2),
            ((64, 64), (64, 32)),
            "addmm.default(y.select(0, 0), x, y, alpha=2)",
        ),
        (torch.tensordot, ((8, 4, 5), (4, 5, 16)), "tensordot.default(x, y, [-2, -1], [0, 1])"),
        (lambda x, y: x.T @ y.T, ((64, 64), (32, 64)), "matmul(x.t(), y.t())"),
        (
            lambda x, y: torch.einsum("bnk,bkm->nbm", x, y),
            ((4, 256, 64), (4, 64, 256)),
            'einsum.default("bnk,bkm->nbm", [x, y])',
        ),
        (
            lambda x, y: functional.conv2d(x, y, stride=2),
            ((4, 8, 12, 12), (16, 8, 1, 1)),
            "conv2d(x, y, None, [2, 2])",
        ),
        (
            lambda x, y: functional.conv_transpose1d(x, y, y[0, :, 0]),
            ((4, 64, 128), (64, 64, 1)),
            "conv_transpose1d(x, y, y.select(0, 0).squeeze(1))",
        ),
    ],
)
def test_what_is_left_is_the_call_of_the_user(
    function: Callable[..., object], shapes: tuple[tuple[int, ...], ...], call: str
) -> None:
    args = [torch.empty(shape, dtype=torch.float64) for shape in shapes]
    plan = planned(function, *args).plan
    assert calls(plan) == [call]
    assert product_kernels(plan) == []


def test_each_call_reads_what_the_call_before_it_is_named() -> None:
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    plan = planned(layers, torch.empty(64, 64)).plan
    assert [step.result for step in plan.steps] == ["linear", "linear_1", "linear_2"]
    assert calls(plan)[-1] == "linear(linear_1, self[2].weight, self[2].bias)"


def test_a_call_that_is_left_has_an_operand_that_its_product_did_not_read() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> object:
        return x @ y, torch.addmm(x * 0.5, y, x, beta=0)

    found = planned(function, torch.rand(4, 4), torch.rand(4, 4)).plan
    assert [call for call in calls(found) if "addmm" in call], str(found)


def test_equal_calls_are_made_once() -> None:
    plan = planned(
        lambda x, y: functional.linear(x, y) + functional.linear(x, y).exp(),
        torch.empty(64, 64),
        torch.empty(64, 64),
    ).plan
    assert calls(plan) == ["linear(x, y)"]


def test_products_of_several_contractions_are_left_one_by_one() -> None:
    plan = planned(
        lambda x, y: torch.einsum("ij,jk,kl->il", x, y, x),
        torch.empty(64, 64),
        torch.empty(64, 64),
    ).plan
    assert len([s for s in plan.steps if isinstance(s, TorchCall | Einsum)]) == 2


def test_one_product_is_ours_and_another_is_left() -> None:
    plan = planned(lambda x, y: (x @ x, y @ y), torch.empty(64, 64), torch.empty(2048, 2048)).plan
    assert product_kernels(plan) == [("matmul",)]
    assert calls(plan) == ["matmul(x, x)"]


def test_convolutions_compete_with_tf32() -> None:
    x, y = torch.empty(64, 64, 56, 56), torch.empty(64, 64, 1, 1)
    as_product = planned(lambda x, y: y[:, :, 0, 0] @ x.flatten(2), x, y).plan
    assert product_kernels(as_product) == [("matmul",)]
    assert calls(planned(functional.conv2d, x, y).plan) == ["conv2d(x, y)"]
    flops = {unit: rate for unit, rate in H200.flops.items() if unit != "tf32"}
    older = replace(H200, flops=MappingProxyType(flops))
    assert product_kernels(planned(functional.conv2d, x, y, machine=older).plan) == [("conv2d",)]


def test_convolutions_with_strides_stay_convolutions() -> None:
    x, y = torch.empty(8, 64, 128, 128), torch.empty(32, 64, 1, 1)
    plan = planned(lambda x, y: functional.conv2d(x, y, stride=2), x, y).plan
    assert calls(plan) == ["conv2d(x, y, None, [2, 2])"]
