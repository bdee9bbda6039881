"""Steps between a convolution of ours and a norm of groups."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.plan_interpreter import run_plan
from kernelwright.machine import H200
from kernelwright.schedule import Library, plan_graph


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, 3)
        self.norm = nn.GroupNorm(4, 16)
        self.scale = nn.Parameter(torch.rand(16, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.sigmoid(self.convolution(x) * self.scale))


class Pooled(Normed):
    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.norm(self.convolution(x)) * self.scale, 2)


@pytest.mark.parametrize(
    ("kind", "joined"),
    [
        (Normed, ("conv2d", "bias", "mul", "sigmoid")),
        (Pooled, ("conv2d", "bias")),
    ],
    ids=["norm", "pooling"],
)
def test_steps_before_a_norm_of_groups_join_the_convolution(
    kind: type[Normed], joined: tuple[str, ...]
) -> None:
    torch.manual_seed(0)
    module, x = kind().eval(), torch.rand(2, 8, 12, 11)
    with torch.no_grad():
        plan = plan_graph(capture_module(module, (x,)), H200, Library.NEVER).plan
        # The norm divides by a deviation of a few hundredths, and float32's errors with it.
        torch.testing.assert_close(run_plan(plan, module, (x,)), module(x), rtol=1e-4, atol=1e-4)
    assert plan.kernels[0].operators == joined
    assert not any("conv2d" in kernel.operators for kernel in plan.kernels[1:])
