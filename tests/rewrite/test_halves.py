"""Halves of a tensor put side by side, as rotary embeddings do: read as rows, with no copy."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from kernelwright.capture import capture_module
from kernelwright.emulator import Session
from kernelwright.ir.kinds import Concat
from kernelwright.machine import H200
from kernelwright.module import optimize_module
from kernelwright.rewrite import rewrite


class Rotary(nn.Module):
    """Heads of `x` turned by an angle for each place."""

    def __init__(self, width: int, turned: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.turned = turned
        self.register_buffer("cosine", torch.rand(64, width))
        self.register_buffer("sine", torch.rand(64, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        first, second = x.chunk(2, dim=-1)
        length = x.shape[2]
        return x * self.cosine[:length] + self.turned(first, second) * self.sine[:length]


ROTATED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "the second half first": (lambda a, b: torch.cat([-b, a], -1), True),
    "as they are": (lambda a, b: torch.cat([a, b.exp()], -1), True),
    "of one another": (lambda a, b: torch.cat([a * b, a], -1), False),
    "three": (lambda a, b: torch.cat([-b, a[..., :1], a[..., 1:]], -1), False),
    "elsewhere": (lambda a, b: torch.cat([-b, a], -2)[:, :, : a.shape[2], :1], False),
}


@pytest.mark.parametrize(
    ("name", "width"), [*((it, 8) for it in ROTATED), ("the second half first", 2)]
)
def test_halves_are_rows(name: str, width: int, run: Any) -> None:
    turned, is_rows = ROTATED[name]
    module = Rotary(width, turned).double()
    for length in (5, 1):
        x = torch.rand(2, length, 3, width, dtype=torch.float64) - 0.5
        x[0, 0, 0, 0] = torch.nan
        found = rewrite(capture_module(module, (x,)))
        got = run(found.graph, module, (x,), {})
        torch.testing.assert_close(got, module(x), equal_nan=True, rtol=1e-12, atol=1e-12)
        joins = [node for node in found.graph.nodes if isinstance(node.kind, Concat)]
        assert (not joins) is is_rows


def test_a_rotary_embedding_is_one_kernel() -> None:
    dtype = torch.bfloat16
    module = Rotary(16, ROTATED["the second half first"][0]).eval().to(dtype)
    x = torch.rand(2, 33, 3, 16).to(dtype)
    with torch.no_grad():
        fast = optimize_module(module, (x,), machine=H200)
        assert len(fast.kernelwright.kernels) == 1 and not fast.kernelwright.left_to_pytorch
        for length in (33, 1):
            want = module.double()(x[:, :length].double())
            module.to(dtype)
            with Session() as session:
                found = fast(x[:, :length])
                assert sum(session.take_launches().values()) == 1
            torch.testing.assert_close(found.double(), want, rtol=1e-2, atol=1e-2)
