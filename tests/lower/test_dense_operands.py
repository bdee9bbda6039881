"""Which transposed operands are copied for the kernels that read them, and that values stay."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from kernelwright.capture import capture_module
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.plan import Launch, TorchCall
from kernelwright.ir.types import TensorType
from kernelwright.lower import lower
from kernelwright.machine import A100, H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import plan_graph


class Block(nn.Module):
    """A norm over channels and two products between a convolution and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(24, 24, 7, padding=3, groups=24)
        self.norm = nn.LayerNorm(24)
        self.wide, self.narrow = nn.Linear(24, 96), nn.Linear(96, 24)
        self.scale = nn.Parameter(torch.linspace(0.1, 1, 24).reshape(24, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return self.scale * self.narrow(gelu(self.wide(rows))).permute(0, 3, 1, 2) + x


@torch.no_grad()
def test_rows_and_windows_read_dense_operands() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(Block(), Block()).eval(), torch.rand(8, 24, 57, 55)
    graph = capture_module(module, (x,))
    plan = plan_graph(graph, H200).plan
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    copies = [it for it in launches if it.kernel.operators == ("contiguous",)]
    made = {it.result for it in copies}
    assert len(copies) == 3 and all(it.kernel.reads_transposed for it in copies)
    rows = [it for it in launches if it.kernel.family == "rows"]
    assert len(rows) == 2 and all(it.inputs[0] in made for it in rows)
    windows = [it for it in launches if it.kernel.family == "pooling"]
    assert [it.inputs[0] in made for it in windows] == [False, True]
    lowered = lower(rewrite(graph).graph, H200)
    assert "dense operands" in lowered.changed
    torch.testing.assert_close(
        run_graph(lowered.graph, module, (x,), {}), module(x), rtol=1e-4, atol=1e-4
    )


@torch.no_grad()
def test_copies_of_16_bits_stay_so() -> None:
    """A depthwise convolution and a norm compute in float32: they widen what they read."""
    module = nn.Sequential(Block(), Block()).eval().bfloat16()
    x = torch.rand(16, 24, 57, 55, dtype=torch.bfloat16)
    plan = plan_graph(capture_module(module, (x,)), H200).plan
    launches = [step.kernel for step in plan.steps if isinstance(step, Launch)]
    large = [it for kernel in launches for it in (*kernel.inputs, *kernel.outputs)]
    wide = [str(it) for it in large if isinstance(it, TensorType) and it.rank == 4]
    assert len(wide) > 10 and all(it.startswith("bf16") for it in wide), wide


class Biased(nn.Module):
    """Attention with a learned bias for each pair of places, whose heads are last in the table."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.rand(49, 49, 4))

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = self.bias.permute(2, 0, 1).contiguous().unsqueeze(0)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)


@torch.no_grad()
def test_a_mask_is_dense_as_the_user_had_it() -> None:
    q, k, v = (torch.rand(64, 4, 49, 32) for _ in range(3))
    # A card for which there is no attention of ours.
    plan = plan_graph(capture_module(Biased(), (q, k, v)), A100).plan
    call = next(step for step in plan.steps if isinstance(step, TorchCall))
    copies = [step for step in plan.steps if isinstance(step, Launch)]
    assert [it.kernel.operators for it in copies] == [("contiguous",)]
    assert copies[0].results[0] in call.call.refs


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.permute(0, 2, 3, 1).exp(),  # in tiles anyway
        lambda x: x.permute(0, 2, 3, 1).sum(-1),  # read once
        lambda x: x.permute(0, 2, 1, 3).softmax(-1),  # neighbours stay neighbours
        lambda x: x[:1].permute(0, 2, 3, 1).softmax(-1),  # small
        lambda x: x[:1].expand(64, 24, 57, 55).permute(0, 2, 3, 1).softmax(-1),  # little memory
    ],
)
@torch.no_grad()
def test_what_gains_nothing_is_read_where_it_lies(function: Callable[[Tensor], Tensor]) -> None:
    class Function(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    graph = rewrite(capture_module(Function(), (torch.rand(8, 24, 57, 55),))).graph
    assert "dense operands" not in lower(graph, H200).changed
