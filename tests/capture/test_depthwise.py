"""Convolutions of each channel by itself are windows; others are nodes of their own kind."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.codegen.python import parameters
from kernelwright.ir.kinds import Conv, Opaque, Pooling, Window
from kernelwright.machine import H200
from kernelwright.program import program_of
from kernelwright.schedule import plan_graph

Run = Callable[..., Any]

CONVOLUTIONS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "plain": (nn.Conv2d(6, 6, 3, groups=6), (2, 6, 9, 11)),
    "no bias": (nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), (2, 6, 9, 11)),
    "strides": (nn.Conv2d(4, 4, (3, 5), (2, 3), (1, 2), groups=4), (2, 4, 12, 13)),
    "dilated": (nn.Conv2d(4, 4, 3, padding=(2, 1), dilation=(2, 1), groups=4), (3, 4, 8, 7)),
    "same": (nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=4), (3, 4, 8, 7)),
    "valid": (nn.Conv2d(4, 4, (3, 2), padding="valid", groups=4), (3, 4, 8, 7)),
    "one image": (nn.Conv2d(4, 4, 3, groups=4), (4, 8, 7)),
    "one channel": (nn.Conv2d(1, 1, 3), (2, 1, 8, 7)),
    "three filters of one channel": (nn.Conv2d(1, 3, (3, 2), 2, padding=1), (2, 1, 8, 7)),
    "one place": (nn.Conv2d(4, 4, 1, groups=4), (2, 4, 3, 5)),
    "a line": (nn.Conv1d(4, 4, 5, 2, 3, groups=4), (2, 4, 17)),
}
LEFT: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "groups of two": (nn.Conv2d(6, 6, 3, groups=3), (2, 6, 9, 11)),
    "two of each": (nn.Conv2d(6, 12, 3, groups=6), (2, 6, 9, 11)),
    "padded more on one side": (nn.Conv2d(4, 4, 2, padding="same", groups=4), (2, 4, 8, 7)),
    "backwards": (nn.ConvTranspose2d(4, 4, 3, groups=4), (2, 4, 8, 7)),
    "many weights": (nn.Conv2d(2, 2, 12, groups=2), (1, 2, 20, 20)),
    "a volume": (nn.Conv3d(2, 3, (1, 2, 3), (1, 2, 1), (0, 1, 2), (1, 1, 2)), (2, 2, 4, 5, 6)),
    "a line, same": (nn.Conv1d(3, 2, 4, padding="same", dilation=3), (3, 15)),
    "backwards with strides": (
        nn.ConvTranspose2d(4, 6, (3, 2), (3, 2), (1, 0), (2, 0), 2, dilation=(1, 2)),
        (2, 4, 5, 4),
    ),
    "backwards, more behind": (nn.ConvTranspose1d(2, 3, 3, 4, 2, 3, bias=False), (2, 2, 5)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_values(name: str, dtype: torch.dtype, run: Run) -> None:
    module, sizes = CONVOLUTIONS[name]
    module = module.to(dtype)
    x = torch.rand(sizes, generator=torch.Generator().manual_seed(1)).to(dtype)
    graph = capture_module(module, (x,))
    windows = [node for node in graph.nodes if isinstance(node.kind, Window)]
    assert [node.kind.op for node in windows if isinstance(node.kind, Window)] == [Pooling.DOT]
    assert not [node for node in graph.nodes if isinstance(node.kind, Opaque)]
    rounding = 2e-2 if dtype is torch.bfloat16 else 1e-5
    with torch.no_grad():
        torch.testing.assert_close(
            run(graph, module, (x,), {}), module(x), rtol=rounding, atol=rounding
        )


@pytest.mark.parametrize("name", LEFT)
def test_others_are_convolutions(name: str, run: Run) -> None:
    module, sizes = LEFT[name]
    x = torch.rand(sizes, generator=torch.Generator().manual_seed(1))
    graph = capture_module(module.float(), (x,))
    assert [node for node in graph.nodes if isinstance(node.kind, Conv)]
    assert not [node for node in graph.nodes if isinstance(node.kind, Opaque | Window)]
    with torch.no_grad():
        torch.testing.assert_close(run(graph, module, (x,), {}), module(x))


def test_nan_goes_where_its_windows_are(run: Run) -> None:
    module = nn.Conv2d(2, 2, 3, padding=1, groups=2)
    x = torch.rand(1, 2, 7, 7)
    x[0, 0, 3, 3], x[0, 1, 0, 0] = torch.nan, torch.inf
    with torch.no_grad():
        result = run(capture_module(module, (x,)), module, (x,), {})
        torch.testing.assert_close(result, module(x), equal_nan=True)


def test_steps_before_and_after_are_in_the_kernel() -> None:
    """Of a block of MobileNet, not in training: a thread keeps what it normalised."""
    block = nn.Sequential(
        *(nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 3, padding=1, groups=16)),
        *(nn.BatchNorm2d(16), nn.ReLU6()),
    ).eval()
    plan = plan_graph(capture_module(block, (torch.rand(8, 16, 56, 56),)), H200).plan
    (kernel,) = plan.kernels
    assert kernel.family == "pooling"
    assert kernel.operators == ("batch_norm", "hardtanh", "conv2d", "batch_norm", "hardtanh")
    read = parameters(program_of(plan))
    assert read is not None
    assert "self[2].weight.squeeze(1)" in str(read.operands)
