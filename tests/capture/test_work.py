"""FLOPs of calls that stay PyTorch's, against PyTorch's own counter and against hand counts."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.capture import capture_module
from kernelwright.capture.work import flops_of_call
from kernelwright.ir.calls import AtenCall, Record, Ref, Text
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import H200
from kernelwright.schedule import cost_of_plan, plan_graph


class Calls(nn.Module):
    """Convolutions of both kinds and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=2)
        self.transposed = nn.ConvTranspose1d(6, 4, 5, stride=3)

    def forward(self, image: Any, line: Any, query: Any, key: Any, value: Any) -> Any:
        attended = F.scaled_dot_product_attention(query, key, value)
        return self.plain(image), self.transposed(line), attended


def counted(module: nn.Module, args: tuple[Any, ...]) -> int:
    """FLOPs of all calls of the captured graph that a rule knows."""
    graph = capture_module(module, args)
    types = {node.name: node.type for node in graph.nodes}
    return sum(flops_of_call(node.origin, types, node.type) for node in graph.nodes if node.origin)


def test_calls_count_what_pytorch_counts() -> None:
    shapes = ((3, 8, 9, 11), (2, 6, 7), (2, 4, 10, 16), (2, 4, 12, 16), (2, 4, 12, 8))
    args = tuple(torch.rand(shape) for shape in shapes)
    image, line = 2 * 3 * 12 * 5 * 6 * 4 * 9, 2 * 2 * 6 * 7 * 4 * 5
    attention = 2 * 2 * 4 * 10 * 12 * (16 + 8)
    assert counted(Calls(), args) == image + line + attention
    with FlopCounterMode(display=False) as counter:
        Calls()(*args)
    of_convolutions = counter.get_flop_counts()["Global"][torch.ops.aten.convolution]
    assert of_convolutions == image + line


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("lead", [(7, 3), (7,)])
def test_a_recurrent_layer_counts_its_weights_once_a_step(kind: Any, lead: tuple[int, ...]) -> None:
    layer = kind(5, 6, num_layers=2, bidirectional=True)
    weights = sum(p.numel() for p in layer.parameters() if p.dim() == 2)
    assert counted(layer, (torch.rand(*lead, 5),)) == 2 * torch.Size(lead).numel() * weights


def test_a_plan_counts_calls_and_kernels() -> None:
    model = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GELU()).eval()
    plan = plan_graph(capture_module(model, (torch.rand(2, 8, 6, 6),)), H200).plan
    of_call = 2 * 2 * 16 * 36 * 8 * 9
    cost = cost_of_plan(plan)
    assert of_call < cost.flops < 1.1 * of_call
    assert cost.arithmetic(H200) == "tf32"


def refs(names: str) -> tuple[Ref, ...]:
    return tuple(map(Ref, names.split()))


@pytest.mark.parametrize(
    ("target", "args", "result", "flops"),
    [
        ("linear.default", refs("v4x5x6 v7x6 v7"), (4, 5, 7), 2 * 20 * 6 * 7),
        ("addmm.default", refs("v7 v20x6 v6x7"), (20, 7), 2 * 20 * 6 * 7),
        ("matmul.default", refs("v2x20x6 v2x6x7"), (2, 20, 7), 2 * 40 * 6 * 7),
        (
            "lstm_cell.default",
            (Ref("v4x6"), Record("list", refs("v4x5 v4x5")), *refs("v20x6 v20x5 v20 v20")),
            (4, 5),
            2 * 4 * 20 * (6 + 5),
        ),
        ("einsum.default", (Text("ij, jk->ik"), Record("list", refs("v3x4 v4x5"))), (3, 5), 120),
        ("einsum.default", (Text("...j,jk"), Record("list", refs("v3x4 v4x5"))), (3, 5), 0),
        ("cumsum.default", refs("v4x6"), (4, 6), 0),
    ],
)
def test_a_call_counts_its_multiplications(
    target: str, args: tuple[Any, ...], result: tuple[int, ...], flops: int
) -> None:
    """Operands are named by their shapes: v7x6."""

    def kind(sizes: tuple[int, ...]) -> TensorType:
        return TensorType(DType.F32, tuple(map(Dim.static, sizes)))

    call = AtenCall(f"aten.{target}", args)
    types = {name: kind(tuple(map(int, name[1:].split("x")))) for name in call.refs}
    assert flops_of_call(call, types, kind(result)) == flops
