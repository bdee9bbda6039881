"""Rewritten graphs compute what PyTorch computes, and become the kernels that they should."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.kinds import Contract, Expand, Permute, Pointwise
from kernelwright.ir.plan import Reinterpret
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule

Forward = Callable[..., torch.Tensor]

SCALINGS: dict[str, tuple[Forward, tuple[str, str]]] = {
    "diag @": (lambda a, b: torch.diag(a) @ b, ("n", "nm")),
    "@ diag": (lambda a, b: b @ torch.diag(a), ("n", "mn")),
    "mm": (lambda a, b: torch.mm(torch.diag(a), b), ("n", "nm")),
    "diag_embed": (lambda a, b: torch.matmul(torch.diag_embed(a), b), ("n", "nm")),
    "batched diag_embed": (lambda a, b: torch.diag_embed(a) @ b, ("kn", "knm")),
    "einsum": (lambda a, b: torch.einsum("i,ij->ij", a, b), ("n", "nm")),
    "einsum columns": (lambda a, b: torch.einsum("j,ij->ij", a, b), ("n", "mn")),
    "unsqueeze": (lambda a, b: a.unsqueeze(1) * b, ("n", "nm")),
    "indexed": (lambda a, b: a[:, None] * b, ("n", "nm")),
}
PRODUCTS: dict[str, tuple[Forward, tuple[str, str]]] = {
    "both transposed": (lambda a, b: torch.matmul(a.T, b.T), ("kn", "mk")),
    "right transposed": (lambda a, b: a @ b.T, ("nk", "mk")),
    "left transposed": (lambda a, b: a.mT @ b, ("kn", "km")),
    "of the product": (lambda a, b: (a @ b).T, ("nk", "km")),
    "batch broadcasts": (lambda a, b: a @ b, ("bnk", "km")),
    "batch": (lambda a, b: torch.bmm(a, b), ("bnk", "bkm")),
    "linear on three dimensions": (lambda a, b: nn.functional.linear(a, b), ("bnk", "mk")),
    "vector @ matrix": (lambda a, b: a @ b, ("k", "kn")),
    "matrix @ vector": (lambda a, b: a @ b, ("nk", "k")),
}
# Sums of products that are no matrix product as they are written: the one they become.
ORDERED: dict[str, tuple[Forward, tuple[str, str], str]] = {
    "two summed": (lambda a, b: torch.tensordot(a, b, 2), ("bkm", "kmn"), "ab,bf->af"),
    "summed in another order": (
        lambda a, b: torch.einsum("bkm,mkn->bn", a, b),
        ("bkm", "mk9"),
        "bm,mn->bn",
    ),
    "summed around another": (
        lambda a, b: torch.einsum("kbm,kmn->bn", a, b),
        ("kbm", "kmn"),
        "bk,kn->bn",
    ),
    "summed over the batch": (
        lambda a, b: torch.addbmm(a[0, :, :1], a, b),
        ("bnk", "bkm"),
        "ba,ad->bd",
    ),
    "two dimensions of columns": (
        lambda a, b: torch.tensordot(a, b, 1),
        ("nk", "kmb"),
        "ab,bd->ad",
    ),
    "and two of rows": (lambda a, b: torch.tensordot(a, b, 1), ("bnk", "kmb"), "abc,ce->abe"),
    "columns apart": (
        lambda a, b: torch.einsum("nk,bkm->nbm", a, b),
        ("nk", "bk9"),
        "nk,bkm->nbm",
    ),
    "batch last": (
        lambda a, b: torch.einsum("bnk,bkm->nmb", a, b),
        ("bnk", "bkm"),
        "bnk,bkm->bnm",
    ),
    "batch between": (
        lambda a, b: torch.einsum("bnk,bkm->nbm", a, b),
        ("bnk", "bkm"),
        "bnk,bkm->nbm",
    ),
    "read with the batch between": (
        lambda a, b: torch.bmm(a, b).transpose(0, 1).flatten(1),
        ("bnk", "bkm"),
        "abc,acd->bad",
    ),
    "vectors, batch last": (
        lambda a, b: torch.einsum("bnk,bk->nb", a, b),
        ("bnk", "bk"),
        "bnk,bk->bn",
    ),
    "rows of two dimensions, turned": (
        lambda a, b: torch.einsum("bnk,km->nmb", a, b),
        ("bnk", "km"),
        "bnk,km->nmb",
    ),
    "one tap": (nn.functional.conv2d, ("bkmn", "nk11"), "oc,bcx->box"),
    "one tap, no batch": (nn.functional.conv3d, ("kmnb", "nk111"), "oc,cx->ox"),
    "one tap, some of the places": (
        lambda a, b: nn.functional.conv2d(a, b, stride=(2, 3)),
        ("bkmn", "nk11"),
        "oc,bcx->box",
    ),
    "one tap, transposed": (nn.functional.conv_transpose2d, ("bkmn", "kn11"), "co,bcx->box"),
}
# What is done to each element of a product joins it, however the product is looked at before.
SUNK: dict[str, tuple[Forward, tuple[str, str]]] = {
    "transposed": (lambda a, b: (a @ b).T.relu(), ("nk", "km")),
    "transposed, scaled by rows": (lambda a, b: (a @ b).T * b[0][:, None], ("nk", "km")),
    "transposed, scaled by columns": (lambda a, b: (a @ b).T + a[:, 0], ("nk", "km")),
    "transposed, twice": (lambda a, b: ((a @ b).T.relu() * 2).T.neg(), ("nk", "km")),
    "permuted": (lambda a, b: (a @ b).permute(2, 0, 1) * b[0][:, None, None], ("bnk", "km")),
    "heads": (
        lambda a, b: torch.einsum("bnk,bkm->nbm", a, b).sigmoid() * b[:, 0],
        ("bnk", "bkm"),
    ),
    "rows as one": (lambda a, b: (a @ b).flatten(0, 1) + b[0], ("bnk", "km")),
    "rows as two": (lambda a, b: (a @ b).view(2, 2, b.shape[1]) + b[0], ("4k", "km")),
    "columns as two": (
        lambda a, b: (a @ b).view(a.shape[0], 2, 3) * a[:, :1, None],
        ("nk", "k6"),
    ),
    "a dimension more": (lambda a, b: (a @ b)[:, None].relu() + b[0], ("nk", "km")),
    "a dimension less": (lambda a, b: (a @ b)[0] + b[0], ("1nk", "km")),
    "read twice": (lambda a, b: (y := (a @ b).T) * torch.sigmoid(y), ("nk", "km")),
    "bias of a convolution": (
        lambda a, b: nn.functional.conv2d(a, b, a[0, 0, 0, :1]).relu(),
        ("bkmn", "1k11"),
    ),
    "residual of a convolution": (
        lambda a, b: (nn.functional.conv2d(a, b) + a).tanh() + a[:, :, :1, :1],
        ("bkmn", "kk11"),
    ),
    "flattened": (lambda a, b: nn.functional.conv2d(a, b).flatten(1) * 2, ("bkmn", "nk11")),
}


def decay(steps: torch.Tensor) -> torch.Tensor:
    """As between the positions of a block of a state-space model."""
    apart = steps[..., :, None] - steps[..., None, :]
    size = steps.shape[-1]
    later = torch.ones(size, size, dtype=torch.bool).tril()
    return torch.exp(apart.masked_fill(~later, -torch.inf))


# Factors of a product's elements that are computed with their dimensions in another order.
BESIDE: dict[str, tuple[Forward, tuple[str, str]]] = {
    "decayed": (lambda a, b: (a @ a.mT) * decay(b).transpose(0, 1), ("nbmk", "bnm")),
    "decayed twice": (
        lambda a, b: (a @ a.mT).relu() * decay(b).transpose(0, 1) + decay(b).transpose(0, 1),
        ("nbmk", "bnm"),
    ),
    "read twice": (
        lambda a, b: (a @ a.mT) * (x := decay(b).transpose(0, 1)) + x,
        ("nbmk", "bnm"),
    ),
    "of one tensor": (lambda a, b: (a @ a.mT) + b.sigmoid().transpose(0, 1), ("nbk", "bnb")),
    "of fewer dimensions": (
        lambda a, b: (a @ a.mT) * (b[:, None, None] - a[:, 0, :, :1]).transpose(0, 1),
        ("nbmk", "bm"),
    ),
}
# Here the view stays above, and the values right.
STAYING: dict[str, tuple[Forward, tuple[str, str]]] = {
    "two products": (lambda a, b: (a @ b).T + b.T @ a.T, ("nk", "km")),
    "broadcast": (lambda a, b: (a @ b)[:, None] + (a @ b)[None], ("nk", "kn")),
    "rows as columns": (lambda a, b: (a @ a.mT) * decay(b).mT, ("bmk", "bm")),
    "grouped otherwise": (
        lambda a, b: (a @ b).view(3, -1) + torch.cat([b[0], b[1]]),
        ("6k", "km"),
    ),
    "sizes trade places": (lambda a, b: (a @ b).view(b.shape[1], -1) + a[:, 0], ("6k", "k4")),
    "one of an expanded": (
        lambda a, b: (a @ b).flatten(0, 1) + b[0].expand(*a.shape[:2], -1).flatten(0, 1),
        ("bnk", "km"),
    ),
}
SIZES = st.fixed_dictionaries({letter: st.integers(2, 5) for letter in "bkmn"})


# A failure is as plain at any of these sizes: nothing to shrink, which takes minutes.
FEW = settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


class Function(nn.Module):
    """A module of one function."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        self.function = function

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.function(a, b)


def operands(letters: tuple[str, str], sizes: dict[str, int]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (
        [int(letter) if letter.isdigit() else sizes[letter] for letter in word] for word in letters
    )
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def check(run: Any, function: Forward, args: list[torch.Tensor]) -> Any:
    module = Function(function)
    result = rewrite(capture_module(module, args))
    actual = run(result.graph, module, args, {})
    torch.testing.assert_close(actual, module(*args))
    return result


@pytest.mark.parametrize("name", SCALINGS)
@FEW
@given(sizes=SIZES)
def test_scalings_are_one_pointwise_kernel(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = SCALINGS[name]
    args = operands(letters, sizes)
    result = check(run, function, args)
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["pointwise"]
    assert plan.left_to_pytorch == ()
    largest = max(arg.numel() for arg in args)
    assert max(node.tensor.numel_hint for node in result.graph.nodes) == largest


@pytest.mark.parametrize("name", PRODUCTS)
@FEW
@given(sizes=SIZES)
def test_products_are_one_gemm(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = PRODUCTS[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["gemm"]
    assert plan.left_to_pytorch == ()
    (contract,) = (node for node in result.graph.nodes if isinstance(node.kind, Contract))
    assert set(contract.inputs) == {"a", "b"}, "an operand is not read as it lies"


@pytest.mark.parametrize("name", ORDERED)
@FEW
@given(sizes=SIZES)
def test_sums_of_products_become_matrix_products(
    name: str, sizes: dict[str, int], run: Any
) -> None:
    function, letters, expected = ORDERED[name]
    result = check(run, function, operands(letters, sizes))
    (contract,) = (node for node in result.graph.nodes if isinstance(node.kind, Contract))
    assert str(contract.kind) == expected
    plan = schedule(result.graph, H200, Library.NEVER)
    assert "gemm" in [kernel.family for kernel in plan.kernels]
    assert plan.left_to_pytorch == ()


@pytest.mark.parametrize("name", SUNK)
@FEW
@given(sizes=SIZES)
def test_elementwise_work_joins_a_product_under_a_view(
    name: str, sizes: dict[str, int], run: Any
) -> None:
    function, letters = SUNK[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["gemm"]


@pytest.mark.parametrize("name", BESIDE)
@FEW
@given(sizes=SIZES)
def test_a_permuted_factor_joins_a_product(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = BESIDE[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["gemm"]


@pytest.mark.parametrize("name", STAYING)
@FEW
@given(sizes=SIZES)
def test_views_that_cannot_move(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters = STAYING[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER, in_place=frozenset())
    assert len(plan.kernels) == 2


DIAGONAL: dict[str, Forward] = {
    "diag": lambda a, b: torch.diag(a) * 2 + b,
    "diag @ diag": lambda a, b: torch.diag(a) @ torch.diag(b),
    "diag @ matrix @ diag": lambda a, b: torch.diag(a) @ torch.ones_like(a + a[:, None]) @ b.diag(),
    "mask": lambda a, b: torch.diag(a > 0).logical_or((b > a[:, None]).triu(1)),
    "of one": lambda a, b: torch.diag(a[:1]) * b,
    "integers": lambda a, b: torch.diag(a.long()) * b,
}


@pytest.mark.parametrize("name", DIAGONAL)
@FEW
@given(sizes=SIZES)
def test_diagonal_matrices_are_written_by_us(name: str, sizes: dict[str, int], run: Any) -> None:
    result = check(run, DIAGONAL[name], operands(("n", "n"), sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["pointwise"]
    assert plan.left_to_pytorch == ()


TRIANGLES: dict[str, tuple[Forward, tuple[str, str], Triangle | None]] = {
    "upper": (lambda a, b: torch.triu(a @ b), ("nk", "km"), Triangle(kept=Side.UPPER, diagonal=0)),
    "lower": (lambda a, b: (a @ b).tril(-1), ("bnk", "km"), Triangle(kept=Side.LOWER, diagonal=-1)),
    "last": (
        lambda a, b: torch.triu((a @ b).relu() + b[0], 2),
        ("nk", "km"),
        Triangle(kept=Side.UPPER, diagonal=2),
    ),
    "turned": (
        lambda a, b: torch.triu((a @ b).mT, 1),
        ("bnk", "bkm"),
        Triangle(kept=Side.LOWER, diagonal=-1),
    ),
    "turned to lie lower": (
        lambda a, b: torch.tril((a @ b).T, 1).neg().T.tril(-1),
        ("nk", "km"),
        Triangle(kept=Side.LOWER, diagonal=-1),
    ),
    "not last": (lambda a, b: torch.triu(a @ b) + 1, ("nk", "km"), None),
    "of the sum": (
        lambda a, b: torch.tril(a @ b + a[:, :1]),
        ("nk", "km"),
        Triangle(kept=Side.LOWER, diagonal=0),
    ),
}


@pytest.mark.parametrize("name", TRIANGLES)
@FEW
@given(sizes=SIZES)
def test_triangles_join_products(name: str, sizes: dict[str, int], run: Any) -> None:
    function, letters, triangle = TRIANGLES[name]
    result = check(run, function, operands(letters, sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    (kernel,) = plan.kernels
    assert kernel.family == "gemm"
    assert kernel.triangle == triangle
    assert plan.left_to_pytorch == ()


def test_what_is_read_turned_is_written_turned(run: Any) -> None:
    """As in a product that is normalised along its rows and then as a whole."""

    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        shares = a.softmax(dim=2)
        centre = shares.sum(dim=1, keepdim=True) * b[:1, 0, :, None]
        turned = nn.functional.normalize((shares.mT @ b).mT - centre, dim=1)
        return nn.functional.normalize(turned.flatten(1), dim=1)

    sizes = {"b": 2, "k": 3, "m": 4, "n": 5}
    result = check(run, forward, operands(("bnk", "bnm"), sizes))
    plan = schedule(result.graph, H200, Library.NEVER)
    families = ["rows", "rows", "gemm", "rows", "rows", "pointwise"]
    assert [kernel.family for kernel in plan.kernels] == families
    # What repeats its elements is read as it is: once for a row, by who has the row.
    rows = [kernel for kernel in plan.kernels if kernel.family == "rows"]
    assert [len(kernel.inputs) for kernel in rows] == [1, 1, 1, 1]
    views = {type(step.map) for step in plan.steps if isinstance(step, Reinterpret)}
    assert not views & {Permute, Expand}


@FEW
@given(sizes=SIZES)
def test_rows_of_a_batch_of_vectors_are_no_rows_of_a_product(
    sizes: dict[str, int], run: Any
) -> None:
    args = operands(("bnk", "k"), sizes)
    result = check(run, lambda a, b: torch.triu(a @ b), args)
    plan = schedule(result.graph, H200, Library.NEVER)
    assert [kernel.family for kernel in plan.kernels] == ["gemm", "pointwise"]


UNARY = (
    torch.neg,
    torch.abs,
    torch.relu,
    torch.floor,
    lambda x: x * 1,
    lambda x: x - 0.0,
    lambda x: x / 1,
    torch.sin,
    lambda x: x.transpose(0, 1).transpose(0, 1),
)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=6))
def test_random_expressions(steps: list[tuple[int, int]], run: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        values = [a, b]
        for operation, other in steps:
            if operation < len(UNARY):
                values.append(UNARY[operation](values[-1]))
            else:
                second = values[other % len(values)]
                values.append(BINARY[operation - len(UNARY)](values[-1], second))
        return values[-1] + 1

    check(run, function, operands(("nm", "nm"), {"n": 3, "m": 4}))


def test_long_chains_take_no_time(run: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = a.T
        for _ in range(40):
            y = y * torch.sigmoid(y)
        return y + b

    check(run, function, operands(("nm", "mn"), {"n": 3, "m": 4}))


def test_minus_zero_is_not_zero(run: Any) -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return 1 / (a * 0.0) - 1 / (a * -0.0) + b

    graph = check(run, function, [torch.ones(3), torch.ones(3)]).graph
    assert sum(isinstance(n.kind, Pointwise) and n.operators == ("mul",) for n in graph.nodes) == 2


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "shown",
    [
        lambda y: y.reshape(2, 3, 4, 8).permute(0, 1, 3, 2).reshape(2, 3, 4, 8),
        lambda y: y.reshape(2, 8, 3, 4).permute(0, 2, 3, 1),
    ],
)
def test_of_two_products_under_views_one_stays_where_it_is(
    shown: Callable[[torch.Tensor], torch.Tensor], run: Any
) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        other = shown(x.exp() @ weight)
        return (x @ weight).reshape(2, 4, 3, 8).permute(0, 2, 1, 3) + other

    check(run, function, [torch.rand(2, 4, 8), torch.rand(8, 24)])
