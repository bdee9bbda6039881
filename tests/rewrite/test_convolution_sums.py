"""Sums and averages of what convolutions make: from sums of the input and of the filter, where that
is less work, the numbers are PyTorch's in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.kinds import Conv
from kernelwright.rewrite import Rewritten, rewrite

WINDOWS = "windows of a convolution become a convolution with windows of its filter"
SUM = "sum of a transposed convolution becomes a product of sums"


class After(nn.Module):
    """A convolution and what follows it."""

    def __init__(self, conv: nn.Module, after: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.conv = conv
        self.scale = nn.Parameter(torch.rand(()))
        self.column = nn.Parameter(torch.rand(6, *[1] * len(conv.stride)))  # type: ignore[arg-type]
        self.after = after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self, self.conv(x))


def rewritten(conv: nn.Module, after: Any, size: tuple[int, ...], run: Any) -> Rewritten:
    """The graph, which gives what the module gives at the captured sizes and at others."""
    torch.manual_seed(0)
    module = After(conv, after).double()
    found = rewrite(capture_module(module, (torch.rand(2, 4, *size, dtype=torch.float64),)))
    for more in (0, 1, 4) if min(size) > 1 else (0,):
        x = torch.rand(3, 4, *(it + more for it in size), dtype=torch.float64)
        torch.testing.assert_close(run(found.graph, module, (x,), {}), module(x))
    return found


def _pool(n: int, size: int, **others: Any) -> Any:
    pool = getattr(nn, f"AvgPool{n}d")(size, **others)
    return lambda module, y: pool(y)


def _mean(module: Any, y: torch.Tensor) -> torch.Tensor:
    return (y * module.scale).mean(tuple(range(2, y.dim())), keepdim=True)


_POOLED = {
    "usual": (nn.Conv2d(4, 6, 3), _pool(2, 4), (14, 18)),
    "padded, groups, no bias": (nn.Conv2d(4, 6, (3, 5), padding=(1, 2), groups=2, bias=False),
                                _pool(2, 2), (9, 12)),
    "one dimension": (nn.Conv1d(4, 6, 4, padding=1), _pool(1, 3), (20,)),
    "steps between": (nn.Conv2d(4, 6, 3),
                      lambda m, y: nn.functional.avg_pool2d(3 - (y * m.scale + m.column) / 4, 2),
                      (9, 9)),
    "transposed": (nn.ConvTranspose3d(4, 6, 3, 2, 1), _pool(3, 2), (3, 4, 5)),
    "transposed, longer": (nn.ConvTranspose2d(4, 6, (5, 4), 2, (2, 1), output_padding=1),
                           _pool(2, 2), (5, 6)),
    "transposed, of three": (nn.ConvTranspose2d(4, 6, 4, 3, 2), _pool(2, 3), (5, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", _POOLED)
def test_windows(name: str, run: Any) -> None:
    found = rewritten(*_POOLED[name], run)
    assert [item.rule for item in found.applied if item.algebraic] == [WINDOWS]


_SUMMED = {
    "all taps count": (nn.ConvTranspose2d(4, 6, 3), _mean, (5, 6)),
    "all but one": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), _mean, (5, 6)),
    "one dimension of two": (nn.ConvTranspose2d(4, 6, (3, 2), (2, 3), (1, 0),
                             output_padding=(1, 0)), _mean, (5, 6)),
    "no bias": (nn.ConvTranspose3d(4, 6, 2, 2, bias=False), _mean, (2, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", _SUMMED)
def test_sums(name: str, run: Any) -> None:
    found = rewritten(*_SUMMED[name], run)
    assert SUM in [item.rule for item in found.applied]
    assert not any(isinstance(node.kind, Conv) for node in found.graph.nodes)


_STAYING = {
    "ceil mode": (nn.Conv2d(4, 6, 3), _pool(2, 2, ceil_mode=True), (8, 9)),
    "windows overlap": (nn.Conv2d(4, 6, 3), _pool(2, 3, stride=2), (9, 9)),
    "windows are padded": (nn.Conv2d(4, 6, 3), _pool(2, 2, padding=1), (9, 9)),
    "not linear": (nn.Conv2d(4, 6, 3), lambda m, y: nn.functional.avg_pool2d(y.relu(), 2), (9, 9)),
    "stride": (nn.Conv2d(4, 6, 3, stride=2), _pool(2, 2), (13, 13)),
    "dilation": (nn.ConvTranspose2d(4, 6, 3, 2, 1, dilation=2), _pool(2, 2), (6, 6)),
    "one place": (nn.ConvTranspose1d(4, 6, 3, 2, 1, output_padding=1), _mean, (1,)),
    "the last tap leaves": (nn.ConvTranspose2d(4, 6, 3, 2, 1), _mean, (5, 6)),
    "usual": (nn.Conv2d(4, 6, 3), _mean, (5, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", _STAYING)
def test_what_stays(name: str, run: Any) -> None:
    found = rewritten(*_STAYING[name], run)
    assert {WINDOWS, SUM}.isdisjoint(item.rule for item in found.applied)
