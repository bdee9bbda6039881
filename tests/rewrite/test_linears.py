"""Linear layers get their rows in the order of memory."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.interpreter import run_graph
from kernelwright.ir.kinds import Contract, Opaque, Permute, Relayout, Reshape, View
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import plan_graph


class Turned(nn.Module):
    """Rows of a batch that come second, as nn.MultiheadAttention has them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(768, 2304, bias=bias), nn.Linear(768, 768, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.layer(x.transpose(0, 1))
        heads = rows.unflatten(-1, (3, 12, 64)).permute(2, 1, 3, 0, 4)
        found = F.scaled_dot_product_attention(*heads)
        joined = found.permute(2, 0, 1, 3).reshape(x.shape[0] * x.shape[1], 768)
        return self.out(joined).view(x.shape[1], x.shape[0], 768).transpose(0, 1) + x


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "kind"), [(torch.bfloat16, Opaque), (torch.float32, Contract)])
def test_rows_are_not_turned_for_a_layer(bias: bool, dtype: torch.dtype, kind: type) -> None:
    module, x = Turned(bias).to(dtype), torch.rand(32, 197, 768, dtype=dtype)
    graph = plan_graph(capture_module(module, (x,)), H200).plan.graph
    layers = [it for it in graph.nodes if isinstance(it.kind, kind)]
    assert len(layers) == 2
    first, second = (graph[it.inputs[0]] for it in layers)
    assert first.name == "x"
    if dtype is torch.float32:
        # One product of all rows: they lie in the result as in the operand.
        products = [it.kind for it in layers if isinstance(it.kind, Contract)]
        assert all(it.out[:-1] == it.lhs[:-1] for it in products)
    else:
        # The library has the heads of an attention side by side: nothing is copied.
        assert second.kind == View(Reshape()) and _turns(graph, second.inputs[0]) == (0, 2, 1, 3)
    small = torch.rand(2, 5, 768, dtype=dtype)
    found = run_graph(graph, module, (small,), {})
    exact = module.double()(small.double())
    close = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), exact, rtol=close, atol=close)


class Einstein(nn.Module):
    """A product in Einstein notation of rows in an order of their own."""

    def __init__(self, equation: str, joined: bool = False) -> None:
        super().__init__()
        self.equation, self.joined = equation, joined
        self.weight = nn.Parameter(torch.rand(768, 768))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(0, 1)
        if self.joined:
            heads = x.unflatten(-1, (12, 64)).transpose(1, 2)
            found = F.scaled_dot_product_attention(heads, heads, heads)
            rows = found.permute(2, 0, 1, 3).reshape(-1, 768)
        made = torch.einsum(self.equation, rows, self.weight).relu()
        return made.view(x.shape[1], x.shape[0], 768).transpose(0, 1) + x


@torch.no_grad()
@pytest.mark.parametrize(
    ("module", "shape", "product"),
    [
        (Einstein("abc,dc->abd"), (32, 197, 768), "abc,dc->abd"),
        (Einstein("abc,cd->abd"), (32, 197, 768), "abc,cd->abd"),
        # The call of two dimensions is none of three.
        (Einstein("ac,dc->ad", joined=True), (32, 197, 768), "abc,dc->abd"),
        # Rows fill tiles as they are.
        (Einstein("abc,dc->abd"), (1024, 4, 768), "bac,dc->abd"),
    ],
)
def test_products_of_ours_are_of_all_rows(
    module: Einstein, shape: tuple[int, ...], product: str
) -> None:
    rewritten = rewrite(capture_module(module, (torch.rand(shape),))).graph
    (found,) = (it for it in rewritten.nodes if isinstance(it.kind, Contract))
    assert str(found.kind) == product
    x = torch.rand(2, 5, 768)
    result, exact = (
        run_graph(rewritten, module, (x,), {}),
        copy.deepcopy(module).double()(x.double()),
    )
    torch.testing.assert_close(result.double(), exact, rtol=1e-5, atol=1e-5)


def _turns(graph: Graph, name: str) -> tuple[int, ...] | None:
    kind = graph[name].kind
    return kind.map.dims if isinstance(kind, View) and isinstance(kind.map, Permute) else None


class InWindows(nn.Module):
    """Rows that are joined in another order than that of memory, which copies them anyway."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(96, 288)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.view(-1, 8, 7, 8, 7, 96).permute(0, 1, 3, 2, 4, 5)
        return self.layer(parts.reshape(-1, 49, 96))


@torch.no_grad()
def test_rows_that_are_copied_are_so_before_the_layer_makes_more_of_them() -> None:
    module, x = InWindows().bfloat16(), torch.rand(32, 56, 56, 96).bfloat16()
    graph = plan_graph(capture_module(module, (x,)), H200).plan.graph
    assert any(isinstance(it.kind, Opaque) for it in graph.nodes)
    copied = [it.tensor.shape[-1].hint for it in graph.nodes if isinstance(it.kind, Relayout)]
    assert copied == [96]
