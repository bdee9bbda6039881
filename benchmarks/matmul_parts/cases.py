"""The products that are measured, each with the text of its problem file, as KernelBench has them.

A name says M x K x N and the layout: N for a factor stored row by row, T for one stored transposed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import torch
from torch import Tensor, nn


class Layout(Enum):
    """How the two stored factors lie: (M, K) or its transpose, (K, N) or its transpose."""

    NN = "NN"
    NT = "NT"
    TN = "TN"
    TT = "TT"

    @property
    def lhs_transposed(self) -> bool:
        """Whether the left factor is stored as (K, M)."""
        return self.value[0] == "T"

    @property
    def rhs_transposed(self) -> bool:
        """Whether the right factor is stored as (N, K)."""
        return self.value[1] == "T"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One product: its problem file, its sizes, and the speed that is asked of it."""

    name: str
    source: str
    """The problem file."""
    m: int
    k: int
    n: int
    batch: int = 1
    """Products in the batch; for a tensor times a matrix the leading sizes are part of `m`."""
    layout: Layout = Layout.NN
    weight: str | None = None
    """Path of the parameter that is the right factor; None: the second argument is."""
    triangular: bool = False
    """Both factors are zero below the diagonal."""
    required: float | None = None
    """Least speed over the library."""
    stretch: float | None = None

    @property
    def flops(self) -> float:
        """Of the full product, a multiply-add as two, zeros counted."""
        return 2.0 * self.batch * self.m * self.k * self.n

    def factors(self, module: nn.Module, inputs: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Views of the factors as (..., M, K) and (..., K, N), for filling in place."""
        rhs = inputs[1] if self.weight is None else module.get_parameter(self.weight).detach()
        return (
            inputs[0].mT if self.layout.lhs_transposed else inputs[0],
            rhs.mT if self.layout.rhs_transposed else rhs,
        )


# --- Problem files -----------------------------------------------------------------------------

_TWO_ARGUMENTS = """\
import torch
from torch import nn

{constants}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return {expression}


def get_inputs():
    return [{lhs}, {rhs}]


def get_init_inputs():
    return []
"""

_LINEAR = """\
import torch
from torch import nn

BATCH = {m}
IN_FEATURES = {k}
OUT_FEATURES = {n}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features{dtype})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return {expression}


def get_inputs():
    return [torch.rand(BATCH, IN_FEATURES{dtype})]


def get_init_inputs():
    return [IN_FEATURES, OUT_FEATURES]
"""


def _two_arguments(
    expression: str, lhs: tuple[str, ...], rhs: tuple[str, ...], sizes: dict[str, int], made: str
) -> str:
    """`made` is how an argument comes from its sizes: "torch.rand({})"."""
    return _TWO_ARGUMENTS.format(
        constants="\n".join(f"{name} = {size}" for name, size in sizes.items()),
        expression=expression,
        lhs=made.format(", ".join(lhs)),
        rhs=made.format(", ".join(rhs)),
    )


def product(
    m: int,
    k: int,
    n: int,
    layout: Layout = Layout.NN,
    *,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """(M, K) times (K, N), each stored as `layout` says."""
    a, lhs = ("a.T", ("K", "M")) if layout.lhs_transposed else ("a", ("M", "K"))
    b, rhs = ("b.T", ("N", "K")) if layout.rhs_transposed else ("b", ("K", "N"))
    short = dtype != torch.float32
    suffix = f" {dtype}".replace("torch.", "") if short else ""
    return Case(
        name=f"{m}x{k}x{n} {layout.value}{suffix}",
        source=_two_arguments(
            f"torch.matmul({a}, {b})",
            lhs,
            rhs,
            {"M": m, "K": k, "N": n},
            f"torch.rand({{}}, dtype={dtype})" if short else "torch.rand({})",
        ),
        m=m,
        k=k,
        n=n,
        layout=layout,
    )


def linear(
    m: int,
    k: int,
    n: int,
    expression: str,
    *,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """A linear layer of `m` rows inside `expression`, which calls it on `x`."""
    short = dtype != torch.float32
    suffix = f" {dtype}".replace("torch.", "") if short else ""
    return Case(
        name=f"{m}x{k}x{n} {expression.replace('self.linear(x)', 'linear')}{suffix}",
        source=_LINEAR.format(
            m=m, k=k, n=n, expression=expression, dtype=f", dtype={dtype}" if short else ""
        ),
        m=m,
        k=k,
        n=n,
        layout=Layout.NT,
        weight="linear.weight",
    )


def batched(batch: int, m: int, k: int, n: int) -> Case:
    """As many products as `batch` says, of the same sizes."""
    sizes = {"BATCH": batch, "M": m, "K": k, "N": n}
    lhs, rhs = ("BATCH", "M", "K"), ("BATCH", "K", "N")
    return Case(
        name=f"{batch} x ({m}x{k}x{n})",
        source=_two_arguments("torch.bmm(a, b)", lhs, rhs, sizes, "torch.rand({})"),
        m=m,
        k=k,
        n=n,
        batch=batch,
    )


def tensor_by_matrix(
    leading: tuple[int, ...],
    k: int,
    n: int,
    expression: str,
) -> Case:
    """A tensor whose last dimension is multiplied by one matrix."""
    names = tuple(f"D{index}" for index in range(len(leading)))
    sizes = dict(zip(names, leading, strict=True)) | {"K": k, "N": n}
    shape = "x".join(map(str, (*leading, k)))
    rows = int(np.prod(leading))
    return Case(
        name=f"({shape}) @ ({k}x{n})",
        source=_two_arguments(expression, (*names, "K"), ("K", "N"), sizes, "torch.rand({})"),
        m=rows,
        k=k,
        n=n,
    )


def triangular(size: int) -> Case:
    """The product of two upper triangular matrices, of which only the upper triangle is kept."""
    return Case(
        name=f"triu({size}) @ triu({size})",
        source=_two_arguments(
            "torch.triu(torch.matmul(a, b))",
            ("N", "N"),
            ("N", "N"),
            {"N": size},
            "torch.triu(torch.rand({}))",
        ),
        m=size,
        k=size,
        n=size,
        triangular=True,
    )


def _asked(case: Case, required: float, stretch: float | None = None) -> Case:
    return replace(case, required=required, stretch=stretch)


# --- The cases of each part --------------------------------------------------------------------


def acceptance() -> Iterator[Case]:
    """The table of shapes with the speed over the library's fp32 product that each has to reach."""
    yield _asked(product(4096, 4096, 4096), 4.7, 5.2)
    yield _asked(product(8192, 8192, 8192), 5.0, 6.0)
    for layout in Layout:
        yield _asked(product(2048, 8192, 4096, layout), 4.5, 5.0)
    relu = "torch.relu(self.linear(x)) / 2.0"
    yield _asked(linear(1024, 8192, 8192, relu), 4.2, 5.0)
    yield _asked(product(2048, 2048, 2048), 3.8, 4.5)
    yield _asked(product(1024, 1024, 1024), 3.0, 3.5)
    yield _asked(product(8205, 2949, 5921), 4.6, 5.0)
    yield _asked(product(16384, 1024, 1024), 4.0, 4.6)
    yield _asked(product(1024, 65536, 1024), 3.5, 4.3)
    yield _asked(batched(128, 512, 1024, 2048), 3.4, 4.2)
    yield _asked(product(256, 524288, 256), 3.0, 3.6)
    yield _asked(product(32768, 64, 32768), 3.5, 3.8)
    yield _asked(product(32768, 32, 32768), 2.2, 2.4)
    matmul, einsum = "torch.matmul(a, b)", 'torch.einsum("bijl,lk->bijk", a, b)'
    yield _asked(tensor_by_matrix((16, 1024), 2048, 768, matmul), 3.3, 3.8)
    yield _asked(tensor_by_matrix((8, 256, 512), 256, 768, einsum), 4.0, 5.0)
    yield _asked(triangular(4096), 7.0, 15.0)
    yield _asked(product(2048, 1048576, 1), 0.99, 1.05)


def representative() -> Iterator[Case]:
    """One shape for each way to compute a product, small enough for every distribution."""
    yield product(1024, 2048, 1024)
    yield product(517, 4099, 771, Layout.TN)
    yield product(2000, 1000, 3000, Layout.NT)
    yield product(192, 65536, 128)
    yield product(2048, 48, 2048, Layout.TT)
    yield product(4, 4096, 4096, Layout.NT)
    yield product(3000, 2048, 1)
    yield product(96, 100, 64)
    yield batched(6, 300, 520, 260)


def half() -> Iterator[Case]:
    """16-bit factors: no slower than the library, faster where something is fused."""
    for dtype in (torch.float16, torch.bfloat16):
        yield _asked(product(4096, 4096, 4096, dtype=dtype), 0.97)
        yield _asked(product(8192, 8192, 8192, dtype=dtype), 0.97)
        for layout in Layout:
            yield _asked(product(2048, 8192, 4096, layout, dtype=dtype), 0.97)
        yield _asked(product(16384, 1024, 1024, dtype=dtype), 0.97)
        relu = "torch.relu(self.linear(x))"
        yield _asked(linear(4096, 4096, 4096, relu, dtype=dtype), 1.05)
        yield _asked(linear(1024, 8192, 8192, relu, dtype=dtype), 1.05)


_SEED = 3
_MOST = 16384
"""Largest M, K and N of the random shapes."""


def random_shapes(count: int) -> Iterator[Case]:
    """M, K and N log-uniform from 1 to 16384, one layout after the other.

    A smaller `count` gives the first ones of a larger.
    """
    generator = np.random.default_rng(_SEED)
    layouts = list(Layout)
    for index in range(count):
        m, k, n = (int(_MOST**exponent + 0.5) for exponent in generator.uniform(size=3))
        yield _asked(product(m, k, n, layouts[index % len(layouts)]), 0.95)
