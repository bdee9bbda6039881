"""The model of a product's time: near what was measured, and it prefers what was faster."""

from dataclasses import replace

import pytest

from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.kinds import Contract
from kernelwright.ir.product_configs import (
    Feed,
    GemmConfig,
    Major,
    ProductConfig,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.machine import A100, H200
from kernelwright.schedule.gemm_configs import ranked_products
from kernelwright.schedule.library_model import is_convincing, library_seconds
from kernelwright.schedule.product_shape import Factor, ProductShape, product_shape
from kernelwright.schedule.tensor_core_configs import tensor_core_configs
from kernelwright.schedule.tensor_core_model import elements_ahead, is_buffered, tensor_core_seconds

SPLIT = TensorCoreConfig(block_n=128, feed=Feed.SPLIT, stages=3, cluster=2)
NARROW = replace(SPLIT, block_n=64, stages=4)


def shape(m: int, k: int, n: int, batches: int = 1, dtype: DType = DType.F32) -> ProductShape:
    """Both factors contiguous, the left one along K."""
    chunk = 16 // dtype.itemsize
    lhs = Factor(elements=batches * m * k, major=Major.K, is_aligned=k % chunk == 0)
    rhs = Factor(elements=batches * k * n, major=Major.MN, is_aligned=n % chunk == 0)
    size = (lhs.elements + rhs.elements + batches * m * n) * dtype.itemsize
    return ProductShape(batches=batches, m=m, n=n, k=k, dtype=dtype, lhs=lhs, rhs=rhs, bytes=size)


def best(product: ProductShape) -> ProductConfig:
    return ranked_products(product, product.dtype.itemsize, H200)[0][1]


# Microseconds on an H200, split included, each timed by itself with a flushed L2.
@pytest.mark.parametrize(
    ("m", "k", "n", "config", "ours", "library"),
    [
        (4096, 4096, 4096, SPLIT, 606, 2682),
        (2048, 8192, 4096, SPLIT, 630, 2678),
        (1024, 8192, 8192, SPLIT, 679, 2711),
        (16384, 1024, 1024, SPLIT, 185, 687),
        (2048, 2048, 2048, SPLIT, 91, 342),
        (8192, 8192, 8192, SPLIT, 4800, 21684),
        (1024, 1024, 1024, SPLIT, 28, 64),
        (1024, 1024, 1024, NARROW, 21, 64),
    ],
)
def test_the_model_is_near_what_was_measured(
    m: int, k: int, n: int, config: TensorCoreConfig, ours: float, library: float
) -> None:
    product = shape(m, k, n)
    assert tensor_core_seconds(product, config, H200) * 1e6 == pytest.approx(ours, rel=0.13)
    assert library_seconds(product, H200) * 1e6 == pytest.approx(library, rel=0.25)


def test_few_tiles_and_a_long_k_are_cut_into_slices() -> None:
    config = best(shape(256, 524288, 256))
    assert isinstance(config, TensorCoreConfig) and config.slices == 30
    assert config.feed is Feed.INSIDE
    whole = best(shape(4096, 4096, 4096))
    assert isinstance(whole, TensorCoreConfig) and whole.slices == 1


def test_a_short_k_gives_a_stage_for_its_results() -> None:
    short, long = best(shape(1048576, 256, 768)), best(shape(4096, 4096, 4096))
    assert isinstance(short, TensorCoreConfig) and is_buffered(short, H200)
    assert isinstance(long, TensorCoreConfig) and not is_buffered(long, H200)


def test_tiles_without_a_result_take_no_time() -> None:
    whole = shape(4096, 4096, 4096)
    # Four and two waves of tiles instead of eight; those without a result take a step each.
    for kept, diagonal, share in ((Side.UPPER, 0, 0.52), (Side.LOWER, -2048, 0.28)):
        part = replace(whole, triangle=Triangle(kept=kept, diagonal=diagonal))
        config = replace(SPLIT, cluster=1)
        split = 79e-6  # of both factors, whatever is kept
        seconds = [tensor_core_seconds(product, config, H200) - split for product in (part, whole)]
        assert seconds[0] / seconds[1] == pytest.approx(share, abs=0.05)


def test_the_larger_factor_is_the_one_to_split_on_the_way() -> None:
    left = replace(SPLIT, feed=Feed.CONVERT)
    right = replace(left, transposed=True)
    for product, faster, slower in (
        (shape(65536, 1024, 1024), left, right),
        (shape(1024, 8192, 65536), right, left),
    ):
        assert {left, right} <= {
            replace(config, min_products=0) for config in tensor_core_configs(product, H200)
        }
        seconds = [tensor_core_seconds(product, config, H200) for config in (faster, slower)]
        assert seconds[0] < seconds[1]


def test_rows_that_are_not_aligned_are_split_before() -> None:
    configs = list(tensor_core_configs(shape(8205, 2949, 5921), H200))
    assert {config.feed for config in configs} == {Feed.SPLIT}
    assert list(tensor_core_configs(shape(8205, 2949, 5921, dtype=DType.F16), H200)) == []


def test_rows_of_16_bits_that_begin_anywhere_take_longer_to_store() -> None:
    """And the library takes kernels of older cards for them: GPT-2's scores of 50,257 words."""

    def scores(words: int, k: int) -> ProductShape:
        found = shape(4096, k, words, dtype=DType.BF16)
        rows = Factor(elements=words * k, major=Major.K, is_aligned=True)
        return replace(found, rhs=rows)

    def ours(product: ProductShape) -> float:
        return ranked_products(product, 2, H200)[0][0]

    assert ours(scores(50257, 64)) > 1.2 * ours(scores(50256, 64))
    whole = scores(50257, 768)
    assert 2 * whole.products / ours(whole) < 0.9 * H200.flops["bf16"]
    assert library_seconds(whole, H200) > 4 * ours(whole)


def test_idle_warps_split_what_a_first_launch_leaves_time_for() -> None:
    ahead = replace(SPLIT, feed=Feed.AHEAD)
    half, quarter = shape(4096, 4096, 4096), shape(1024, 8192, 8192)
    assert elements_ahead(half, ahead, H200) == half.rhs.elements // 2
    assert elements_ahead(quarter, ahead, H200) == quarter.rhs.elements // 4
    assert elements_ahead(shape(16384, 8192, 2048), ahead, H200) > 0  # of the left factor
    for other in (
        shape(2048, 2048, 2048),
        shape(8205, 2949, 5921),
        shape(4096, 4096, 4096, batches=4),
        replace(half, triangle=Triangle(kept=Side.UPPER, diagonal=0)),
    ):
        assert elements_ahead(other, ahead, H200) == 0
        feeds = {config.feed for config in tensor_core_configs(other, H200)}
        assert Feed.AHEAD not in feeds
    config = best(half)
    assert isinstance(config, TensorCoreConfig) and config.feed is Feed.AHEAD


def test_both_factors_are_split_inside_where_one_guard_sees_all_of_them() -> None:
    whole = shape(256, 524288, 256)
    triangular = replace(whole, triangle=Triangle(kept=Side.UPPER, diagonal=0))
    for other in (triangular, shape(256, 524288, 256, batches=2), shape(256, 524289, 256)):
        assert Feed.INSIDE not in {config.feed for config in tensor_core_configs(other, H200)}
    assert Feed.INSIDE in {config.feed for config in tensor_core_configs(whole, H200)}


def test_a_few_rows_are_read_once() -> None:
    for product in (shape(1, 8192, 4096), shape(65536, 8192, 1)):
        config = best(product)
        assert isinstance(config, ThinConfig) and config.rows == 1
    assert not isinstance(best(shape(256, 4096, 4096)), ThinConfig)


def test_tiles_of_a_few_rows_where_launches_are_what_counts() -> None:
    config = best(shape(20, 128, 512))
    assert isinstance(config, ThinConfig) and config.rows * config.row_tiles >= 64
    assert isinstance(best(shape(128, 4096, 4096)), TensorCoreConfig)


def test_cards_without_the_instructions_use_their_cuda_cores() -> None:
    ranked = ranked_products(shape(4096, 4096, 4096), 4, A100)
    assert all(isinstance(config, GemmConfig) for _, config in ranked)


def test_stages_fill_the_shared_memory() -> None:
    for dtype in (DType.F32, DType.BF16):
        for config in tensor_core_configs(shape(4096, 4096, 4096, dtype=dtype), H200):
            planes = 1 if config.feed.is_direct else 2
            stage = planes * (config.block_m + config.block_n) * 64 * 2
            outside = (34 if config.feed is Feed.INSIDE else 21) * 1024
            assert config.stages >= 3
            assert config.stages * (stage + 16) + outside <= H200.shared_memory_per_block


def test_sixteen_bits_are_ours_where_the_library_has_old_kernels_alone() -> None:
    """GPT-2's scores: 4.42 ms became 1.90 on an H200; products of 10 to 30 us are the library's."""
    scores = shape(4096, 768, 50257, dtype=DType.BF16)
    scores = replace(scores, rhs=replace(scores.rhs, major=Major.K, is_aligned=True))
    assert library_seconds(scores, H200) == pytest.approx(3.36e-3, rel=0.35)
    short = shape(4096, 1024, 1024, dtype=DType.BF16)
    for product, is_ours in ((scores, True), (short, False)):
        seconds, config = ranked_products(product, 2, H200)[0]
        library = library_seconds(product, H200)
        assert is_convincing(config, product, seconds, library, H200) == is_ours


@pytest.mark.parametrize(
    ("equation", "batches", "m"),
    [
        ("abc,dc->abd", 1, 6304),
        ("bac,dc->abd", 197, 32),
        ("dc,bac->abd", 197, 32),
        ("eabc,dc->eabd", 1, 6304),  # Of one.
        ("ebac,edc->eabd", 197, 32),
        ("bc,dc->bd", 1, 32),
    ],
)
def test_rows_that_do_not_lie_together_are_batches(equation: str, batches: int, m: int) -> None:
    factors, out = equation.split("->")
    lhs, rhs = factors.split(",")
    sizes = {"a": 197, "b": 32, "c": 768, "d": 768, "e": 1}
    kinds = [
        TensorType(DType.F32, tuple(Dim.static(sizes[letter]) for letter in word))
        for word in (lhs, rhs, out)
    ]
    found = product_shape(Contract(lhs, rhs, out), kinds[:2], kinds[2])
    assert (found.batches, found.m) == (batches, m)
    # PyTorch copies them.
    assert (found.copied.batches, found.copied.m) == (1, batches * m)


# 16 bits, both factors along K, on an H200, microseconds; the second with bias and GELU.
@pytest.mark.parametrize(("columns", "measured"), [(50257, 578), (3072, 44)])
def test_turns_of_16_bits_have_wide_tiles(columns: int, measured: float) -> None:
    product = shape(4096, 768, columns, dtype=DType.BF16)
    product = replace(product, rhs=replace(product.rhs, major=Major.K, is_aligned=True))
    chosen = best(product)
    assert isinstance(chosen, TensorCoreConfig)
    assert (chosen.feed, chosen.block_m, chosen.block_n) == (Feed.TURNS, 64, 256)
    assert tensor_core_seconds(product, chosen, H200) * 1e6 == pytest.approx(measured, rel=0.1)
