"""Thousands of small products: their tiles, and what they and the library's copies cost."""

from dataclasses import replace

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.ir.product_configs import GemmConfig, Major, TensorCoreConfig
from kernelwright.ir.types import DType
from kernelwright.machine import H200
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule
from kernelwright.schedule.gemm_configs import ranked_products
from kernelwright.schedule.many_small import (
    library_product_seconds,
    many_small_configs,
    many_small_seconds,
)
from kernelwright.schedule.product_shape import Factor, ProductShape


def shape(
    batches: int,
    m: int,
    n: int,
    k: int,
    majors: tuple[Major, Major],
    *,
    bytes_: float | None = None,
    extras: int = 0,
) -> ProductShape:
    lhs, rhs = (
        Factor(
            elements=batches * side * k,
            major=major,
            is_aligned=(k if major is Major.K else side) % 4 == 0,
        )
        for side, major in zip((m, n), majors, strict=True)
    )
    size = 4 * batches * (m * k + k * n + m * n) if bytes_ is None else int(bytes_)
    return ProductShape(
        batches=batches,
        m=m,
        n=n,
        k=k,
        dtype=DType.F32,
        lhs=lhs,
        rhs=rhs,
        bytes=size,
        extras=extras,
    )


ALONG_N = (Major.MN, Major.MN)
ALONG_K = (Major.K, Major.K)
LEFT = (Major.K, Major.MN)

# Microseconds on an H200 with a cold L2 (docs/measured/gemm.md).
MEASURED = [
    (shape(32768, 64, 16, 64, ALONG_N), (64, 16, 16), 209),
    (shape(16384, 3, 1024, 3, LEFT), (4, 128, 8), 153),
    (shape(32768, 64, 64, 16, ALONG_K, extras=1), (64, 64, 16), 457),
    (shape(32768, 64, 64, 64, LEFT), (64, 64, 16), 564),
    # Its factor of a row is not counted.
    (shape(32768, 64, 64, 16, ALONG_K, bytes_=814e6, extras=1), (64, 64, 16), 520),
    (shape(1920, 49, 32, 49, LEFT), (64, 32, 16), 28),
]


@pytest.mark.parametrize(("product", "tile", "measured"), MEASURED)
def test_the_model_chooses_the_tile_that_was_measured(
    product: ProductShape, tile: tuple[int, int, int], measured: float
) -> None:
    assert product.are_many_small(H200)
    seconds, config = ranked_products(product, 4, H200)[0]
    assert isinstance(config, GemmConfig) and config.promote_k == 0
    assert (config.block_m, config.block_n, config.block_k) == tile
    assert seconds * 1e6 == pytest.approx(measured, rel=0.15)


# cuBLAS there: batch, rows, columns, K, microseconds with the right factor along N and along K.
LIBRARY = [
    (32768, 64, 16, 64, 319, 317),
    (32768, 64, 64, 16, 305, 303),
    (32768, 64, 64, 64, 593, 598),
    (32768, 16, 64, 64, 314, 374),
    (16384, 3, 1024, 3, 444, 757),
    (16384, 3, 1024, 16, 815, 1032),
    (32768, 32, 32, 32, 147, 151),
    (65536, 16, 16, 16, 169, 159),
    (65536, 8, 8, 8, 132, 125),
    (8192, 64, 64, 64, 157, 164),
    (2048, 64, 64, 64, 46, 49),
    (1920, 49, 49, 32, 31, 32),
    (1920, 49, 32, 49, 30, 31),
]


@pytest.mark.parametrize("row", LIBRARY, ids=str)
def test_the_library_takes_what_was_measured(row: tuple[int, ...]) -> None:
    *sizes, along_n, along_k = row
    for measured, major in ((along_n, Major.MN), (along_k, Major.K)):
        product = shape(*sizes, (Major.K, major))
        assert library_product_seconds(product, H200) * 1e6 == pytest.approx(measured, rel=0.15)


def test_the_larger_of_two_tiles_was_faster() -> None:
    product = shape(32768, 64, 64, 16, ALONG_K, extras=1)
    tiles = {(c.block_m, c.block_n): c for c in many_small_configs(product)}
    seconds = [many_small_seconds(product, tiles[size], H200) for size in ((64, 64), (32, 64))]
    assert seconds == pytest.approx([457e-6, 517e-6], rel=0.15)
    assert seconds[0] < seconds[1]


def test_a_tile_that_could_not_read_a_factor_is_none() -> None:
    product = shape(32768, 64, 16, 64, ALONG_N)
    narrow = {(c.block_m, c.block_n) for c in many_small_configs(product)}
    assert {(64, 16), (4, 128)} <= narrow
    apart = replace(product, lhs=replace(product.lhs, major=Major.NONE))
    tiles = {(c.block_m, c.block_n) for c in many_small_configs(apart)}
    assert (64, 16) not in tiles and {(64, 64), (4, 128)} <= tiles


@pytest.mark.parametrize(
    "changes",
    [
        {"batches": 1023},
        {"k": 129},
        {"m": 257},
        {"dtype": DType.F16},
        {"dtype": DType.F64},
    ],
    ids=str,
)
def test_other_products_are_modelled_as_before(changes: dict[str, object]) -> None:
    whole = shape(1024, 64, 64, 128, LEFT)
    assert whole.are_many_small(H200)
    other = replace(whole, **changes)  # type: ignore[arg-type]
    assert not other.have_small_tiles(H200)
    configs = [config for _, config in ranked_products(other, 8, H200)]
    assert all(c.promote_k > 0 for c in configs if isinstance(c, GemmConfig))


# Measured on an H100: 0.25 ms with this tile; 0.46 on the tensor cores, and 0.08 before them.
def test_small_tiles_share_larger_results() -> None:
    product = shape(2048, 512, 32, 100, ALONG_N)
    assert product.have_small_tiles(H200) and not product.are_many_small(H200)
    (seconds, config), *others = ranked_products(product, 4, H200)
    assert isinstance(config, GemmConfig) and (config.block_m, config.block_n) == (64, 32)
    assert seconds * 1e6 == pytest.approx(251, rel=0.2)
    on_tensor_cores = min(time for time, it in others if isinstance(it, TensorCoreConfig))
    assert on_tensor_cores * 1e6 == pytest.approx(430, rel=0.1)


class Product(torch.nn.Module):
    def __init__(self, equation: str) -> None:
        super().__init__()
        self.equation = equation

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, a, b)


class Parts(Product):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, a, b[:, :2])


class Heads(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a.transpose(1, 2), b.transpose(1, 2))


@pytest.mark.parametrize(
    ("module", "left", "right", "is_ours"),
    [
        # As one batch lies: the library's kernel is as fast.
        (Product("blk,bks->bls"), (4096, 64, 64), (4096, 64, 64), False),
        (Product("bchls,bchsp->bchlp"), (512, 2, 4, 64, 64), (512, 2, 4, 64, 64), False),
        # Heads between rows and columns, which the library wants copied.
        (Product("bclhn,bcshn->bchls"), (512, 2, 64, 4, 16), (512, 2, 64, 4, 16), True),
        (Product("bchls,bcshp->bchlp"), (512, 2, 4, 64, 64), (512, 2, 64, 4, 64), True),
        (Heads(), (1024, 64, 4, 16), (1024, 16, 4, 64), True),
        # Attention in windows of 7 x 7.
        (Product("bqk,bkd->bqd"), (1920, 49, 49), (1920, 49, 32), False),
        (Product("bhqk,bkhd->bhqd"), (640, 3, 49, 49), (640, 49, 3, 32), True),
        # A part of the first two dimensions of what is larger is no batch of one stride.
        (Parts("bcls,bcsp->bclp"), (2048, 2, 64, 64), (2048, 3, 64, 64), True),
    ],
)
def test_what_the_library_would_copy_first_is_ours(
    module: torch.nn.Module, left: tuple[int, ...], right: tuple[int, ...], is_ours: bool
) -> None:
    graph = rewrite(capture_module(module, (torch.zeros(left), torch.zeros(right)))).graph
    plan = schedule(graph, H200)
    assert [kernel.family for kernel in plan.kernels] == (["gemm"] if is_ours else [])
    assert bool(plan.left_to_pytorch) != is_ours
