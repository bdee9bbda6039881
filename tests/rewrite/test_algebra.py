"""Rules on sums, single elements and known values: the same numbers as PyTorch in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Concat, Contract, Reduce, Scan, View
from kernelwright.rewrite import Rewritten, rewrite

Forward = Callable[..., torch.Tensor]
SIZES = st.tuples(*[st.integers(2, 5)] * 3)
FEW = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


class Function(nn.Module):
    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.function(a, b, c)


def rewritten(function: Forward, args: tuple[torch.Tensor, ...], run: Any) -> Rewritten:
    """The graph, which gives what the function gives."""
    module = Function(function)
    found = rewrite(capture_module(module, args))
    want = function(*args)
    got = run(found.graph, module, args, {})
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10, equal_nan=True)
    return found


def operands(sizes: tuple[int, int, int]) -> tuple[torch.Tensor, ...]:
    m, n, k = sizes
    generator = torch.Generator().manual_seed(m + 7 * n + 49 * k)
    return tuple(
        torch.rand(*shape, dtype=torch.float64, generator=generator) - 0.3
        for shape in ((m, k), (k, n), (n,))
    )


def contracted(graph: Graph) -> list[str]:
    return [str(node.kind) for node in graph.nodes if isinstance(node.kind, Contract)]


SUMS: dict[str, Forward] = {
    "columns": lambda a, b, c: (a @ b).sum(1),
    "columns, kept": lambda a, b, c: (a @ b).sum(1, keepdim=True) * 2,
    "rows": lambda a, b, c: (a @ b).sum(0),
    "mean": lambda a, b, c: (a @ b).mean(1),
    "with bias": lambda a, b, c: (a @ b + c).mean(1),
    "scaled, shifted": lambda a, b, c: (3 - (a @ b * 2 + c) / 4).sum(1),
    "bias along the other": lambda a, b, c: (a @ b + a[:, :1]).sum(1),
    "negated": lambda a, b, c: (-(a @ b)).sum(0),
}


@pytest.mark.parametrize("name", SUMS)
@FEW
@given(sizes=SIZES)
def test_sums_of_products(name: str, sizes: tuple[int, int, int], run: Any) -> None:
    found = rewritten(SUMS[name], operands(sizes), run)
    assert found.algebraic
    assert all(len(kind.split("->")[1]) < 2 for kind in contracted(found.graph))


STAYING: dict[str, Forward] = {
    "not linear": lambda a, b, c: (a @ b).relu().sum(1),
    "maximum": lambda a, b, c: (a @ b).amax(1),
    "squared": lambda a, b, c: (a @ b * (a @ b)).sum(1),
    "of everything": lambda a, b, c: (a @ b).sum(),
    "returned as well": lambda a, b, c: torch.cat([(p := a @ b), p.sum(1, keepdim=True)], 1),
}


@pytest.mark.parametrize("name", STAYING)
@FEW
@given(sizes=SIZES)
def test_sums_that_stay(name: str, sizes: tuple[int, int, int], run: Any) -> None:
    found = rewritten(STAYING[name], operands(sizes), run)
    assert not found.algebraic


SINGLE: dict[str, Forward] = {
    "sum": lambda a, b, c: a[:, :1].sum(1),
    "softmax": lambda a, b, c: a[:, :1].softmax(1),
    "logsumexp": lambda a, b, c: a[:, :1].logsumexp(1),
    "variance": lambda a, b, c: a[:, :1].var(1, unbiased=False),
    "place": lambda a, b, c: a[:, :1].argmax(1),
    "maximum": lambda a, b, c: a[:, :1].amax(1, keepdim=True),
}


@pytest.mark.parametrize("name", SINGLE)
def test_reductions_of_one_element(name: str, run: Any) -> None:
    a = torch.tensor([[1.5], [torch.inf], [-torch.inf], [torch.nan], [-0.0]], dtype=torch.float64)
    found = rewritten(SINGLE[name], (a, a, a), run)
    assert not any(isinstance(node.kind, Reduce) for node in found.graph.nodes)


KNOWN: dict[str, Forward] = {
    "disjoint clamps": lambda a, b, c: a.clamp(max=0).clamp(0, 1) + 2,
    "relu of a negative": lambda a, b, c: (-a.abs()).relu(),
    "above a sigmoid": lambda a, b, c: a.sigmoid().clamp(min=1.0),
    "itself taken away": lambda a, b, c: a - a.view(a.shape),
    "below a constant": lambda a, b, c: torch.min(a, torch.tensor(0.0, dtype=a.dtype)).clamp(
        0.0, 1.0
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_values_need_no_data(name: str, run: Any) -> None:
    found = rewritten(KNOWN[name], operands((3, 2, 4)), run)
    assert found.algebraic
    assert {name for node in found.graph.nodes for name in node.inputs} <= {"where", *_made(found)}


def _made(found: Rewritten) -> set[str]:
    """Values that are made of nothing."""
    return {node.name for node in found.graph.nodes if node.name not in ("a", "b", "c")}


def test_overlapping_clamps_stay(run: Any) -> None:
    found = rewritten(lambda a, b, c: a.clamp(max=0.5).clamp(0, 1), operands((3, 2, 4)), run)
    assert not found.algebraic


def test_constants_are_folded_as_float32_rounds(run: Any) -> None:
    from kernelwright.ir.expr import Call, Literal
    from kernelwright.ir.types import DType
    from kernelwright.rewrite.expressions import simplify

    for op, function in (("add", torch.add), ("mul", torch.mul), ("div", torch.div)):
        x, y = torch.tensor(0.1), torch.tensor(3.7)
        args = (Literal(0.1, DType.F32), Literal(3.7, DType.F32))
        folded = simplify(Call(op, args, DType.F32))
        assert isinstance(folded, Literal)
        assert torch.tensor(folded.value).item() == function(x, y).item()
    overflow = Call("mul", (Literal(1e30, DType.F32), Literal(1e30, DType.F32)), DType.F32)
    assert simplify(overflow) == overflow


FLIPPED: dict[str, Forward] = {
    "one dimension": lambda a, b, c: a.flip(1).cumsum(1).flip(1),
    "both": lambda a, b, c: a.flip(0, 1).cumsum(1).flip(1, 0) * 2,
    "another order": lambda a, b, c: a.flip(1).cumprod(1).flip(1).cumsum(0),
}


@pytest.mark.parametrize("name", FLIPPED)
def test_flips_around_running_totals_disappear(name: str, run: Any) -> None:
    found = rewritten(FLIPPED[name], operands((3, 2, 4)), run)
    kinds = [node.kind for node in found.graph.nodes]
    assert not any(isinstance(kind, View) for kind in kinds)
    assert any(isinstance(kind, Scan) and kind.reverse for kind in kinds)


def test_flips_of_other_dimensions_stay(run: Any) -> None:
    found = rewritten(lambda a, b, c: a.flip(0).cumsum(1), operands((3, 2, 4)), run)
    assert sum(isinstance(node.kind, View) for node in found.graph.nodes) == 1


MOVED: dict[str, Forward] = {
    "zeros in front": lambda a, b, c: torch.cat(
        [torch.zeros_like(a[:, :1]), a[:, :-1].cumsum(1)], 1
    ),
    "ones in front": lambda a, b, c: torch.cat([torch.ones_like(a[:1]), a[:-1].cumprod(0)], 0),
    "zeros at the end": lambda a, b, c: torch.cat(
        [a[:, 1:].flip(1).cumsum(1).flip(1), torch.zeros_like(a[:, :1])], 1
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_running_totals_moved_on_by_one_place_are_exclusive(name: str, run: Any) -> None:
    found = rewritten(MOVED[name], operands((3, 2, 4)), run)
    scans = [node.kind for node in found.graph.nodes if isinstance(node.kind, Scan)]
    assert [scan.exclusive for scan in scans] == [True]
    assert not any(isinstance(node.kind, Concat) for node in found.graph.nodes)


def test_running_totals_behind_other_numbers_are_not_exclusive(run: Any) -> None:
    found = rewritten(
        lambda a, b, c: torch.cat([torch.ones_like(a[:, :1]), a[:, :-1].cumsum(1)], 1),
        operands((3, 2, 4)),
        run,
    )
    assert any(isinstance(node.kind, Concat) for node in found.graph.nodes)
