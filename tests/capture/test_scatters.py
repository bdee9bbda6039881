"""Parts of tensors that are written in place: computed where they stand, with no copy."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.emulator import Session
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Opaque
from kernelwright.machine import H200
from kernelwright.module import optimize_module


class Changed(nn.Module):
    def __init__(self, change: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        self.change(y)
        return y * 2


def _numbers(y: Tensor) -> None:
    y[:, 2:5] = 0.5
    y[1:, -3:] = 7
    y[:, :, 1:] = -1


def _windows(y: Tensor) -> None:
    """Regions of a mask, as shifted windows number them."""
    number = 0
    for rows in ((0, -7), (-7, -3), (-3, None)):
        for columns in ((0, -7), (-7, -3), (-3, None)):
            y[slice(*rows), slice(*columns)] = number
            number += 1


def _what_was_there(y: Tensor) -> None:
    y[:, 2:6] *= 3
    y[:, 1:4] = y[:, 1:4].sigmoid() + y.sum()
    y[:, :, 3:] = -y[:, :, 3:]


def _everything(y: Tensor) -> None:
    y[:, 0:12] = 4


def _one_index(y: Tensor) -> None:
    y[2] = 1.5
    y[0, 3:5] = y[0, 3:5] * 2
    y[-1] += y[0, 0, 0]


def _an_upper_half(y: Tensor) -> None:
    """A new value that asks where it is, in its own places."""
    y[:, 2:] = torch.ones_like(y[:, 2:]).triu()


def _a_scalar(y: Tensor) -> None:
    y[1:3].fill_(2.5)
    y[:, 3:4] = y.amax()


INLINE = [_numbers, _one_index, _what_was_there, _everything, _an_upper_half, _a_scalar]


def _other_places(y: Tensor) -> None:
    y[:, 2:5] = y[:, 3:6].clone()


def _steps(y: Tensor) -> None:
    y[:, ::2] = 1


def _opaque(module: nn.Module, x: Tensor) -> list[str]:
    graph = capture_module(module, (x,))
    got = run_graph(graph, module, (x,), {})
    torch.testing.assert_close(got, module(x), equal_nan=True, rtol=1e-12, atol=1e-12)
    return [str(node.origin) for node in graph.nodes if isinstance(node.kind, Opaque)]


@pytest.mark.parametrize("change", INLINE, ids=lambda it: it.__name__)
def test_elements_are_computed_where_they_stand(change: Callable[[Tensor], None]) -> None:
    for sizes in ((5, 12, 10), (4, 12, 4)):
        x = torch.rand(*sizes, dtype=torch.float64) - 0.5
        x[0, 3, 3] = torch.nan
        assert _opaque(Changed(change), x) == []


@pytest.mark.parametrize("change", [_other_places, _steps], ids=lambda it: it.__name__)
def test_others_are_pytorchs(change: Callable[[Tensor], None]) -> None:
    x = torch.rand(5, 12, 10, dtype=torch.float64)
    assert any("slice_scatter" in it for it in _opaque(Changed(change), x))


def test_a_mask_of_windows_is_one_kernel() -> None:
    module, x = Changed(_windows).eval(), torch.rand(56, 56).bfloat16()
    with torch.no_grad():
        fast = optimize_module(module, (x,), machine=H200)
        assert not [it for it in fast.kernelwright.left_to_pytorch if "scatter" in it]
        with Session() as session:
            found = fast(x)
            assert sum(session.take_launches().values()) <= 2
        assert torch.equal(found, module(x))
