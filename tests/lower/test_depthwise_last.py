"""Depthwise convolutions after convolutions on channels-last operands."""

from collections.abc import Iterator

import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.kinds import Conv, Pooling
from kernelwright.ir.plan import Kernel, Launch, Plan
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.ir.window_configs import WindowConfig, WindowWay
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule
from kernelwright.schedule.conv_or_library import Convolutions


class Squeezed(nn.Module):
    """A depthwise convolution with its norm, squeeze and excitation, between convolutions."""

    def __init__(self, size: tuple[int, int] = (5, 3), stride: int = 2) -> None:
        super().__init__()
        padding = (size[0] // 2, size[1] // 2)
        self.first = nn.Conv2d(16, 64, 3, padding=1)
        self.depthwise = nn.Conv2d(64, 64, size, stride, padding, groups=64)
        self.norm = nn.BatchNorm2d(64)
        self.down, self.up = nn.Conv2d(64, 8, 1), nn.Conv2d(8, 64, 1)
        self.last = nn.Conv2d(64, 16, 3)
        with torch.no_grad():
            self.norm.running_mean.uniform_()
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = nn.functional.silu(self.norm(self.depthwise(y)))
        means = torch.relu(self.down(y.mean((2, 3), keepdim=True)))
        return torch.relu(self.last(y * torch.sigmoid(self.up(means))))


def _plan(module: nn.Module, dtype: torch.dtype = torch.float32) -> Plan:
    """The plan with all convolutions but depthwise ones the library's."""
    with torch.no_grad():
        graph = capture_module(module.to(dtype), (torch.empty(16, 16, 128, 128, dtype=dtype),))
    graph = rewrite(graph).graph
    names = [node.name for node in graph.nodes if isinstance(node.kind, Conv)]
    left = Convolutions(left=dict.fromkeys(names, "as it is"), ours={})
    return schedule(graph, H200, convolutions=left)


def _pooling(plan: Plan) -> Kernel:
    (kernel,) = (kernel for kernel in plan.kernels if kernel.family == "pooling")
    return kernel


def _launched(plan: Plan) -> Iterator[tuple[str, ...]]:
    return (step.kernel.operators for step in plan.steps if isinstance(step, Launch))


def test_filters_are_read_as_they_are() -> None:
    plan = _plan(Squeezed().eval())
    kernel = _pooling(plan)
    assert kernel.anchor.window.op is Pooling.DOT_LAST
    assert kernel.anchor.window.size == (5, 3, 1)
    assert kernel.inputs[-1].shape[-1].hint == 64
    assert kernel.configured(WindowConfig).way is WindowWay.CHANNELS
    # The input is copied, and nothing else.
    assert list(_launched(plan)).count(("contiguous",)) == 1


def test_norms_and_activations_are_computed_with_the_convolution() -> None:
    plan = _plan(Squeezed().eval(), torch.bfloat16)
    kernel = _pooling(plan)
    assert kernel.operators[-2:] == ("batch_norm", "silu")
    assert kernel.output.dtype.itemsize == 2
    # What the norm makes of its parameters is no launch.
    assert ("batch_norm",) not in _launched(plan)


def test_what_follows_is_computed_with_it_whoever_reads_that() -> None:
    """The last convolution is too small for another order: it reads a copy, in 16 bits."""
    module = Squeezed().eval()
    steps = (module.first, nn.ReLU(), module.depthwise, module.norm, nn.SiLU(), module.last)
    plan = _plan(nn.Sequential(*steps, nn.ReLU()), torch.bfloat16)
    kernel = _pooling(plan)
    assert kernel.operators[-2:] == ("batch_norm", "silu")
    assert kernel.output.dtype.itemsize == 2


def test_means_are_one_launch() -> None:
    plan = _plan(Squeezed().eval(), torch.bfloat16)
    launches = list(_launched(plan))
    assert launches.count(("mean",)) == 1
    (rows,) = (kernel for kernel in plan.kernels if kernel.family == "rows")
    assert rows.operators == ("mean",) and rows.output.dtype.itemsize == 2


def test_the_plan_says_what_the_module_does() -> None:
    ours, eager = Squeezed().eval(), Squeezed().double().eval()
    eager.load_state_dict(ours.state_dict())
    plan = _plan(ours)
    x = torch.rand(2, 16, 13, 12, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        got = run_plan(plan, ours, (x.float(),)).double()
        torch.testing.assert_close(got, eager(x), rtol=0, atol=1e-6)
