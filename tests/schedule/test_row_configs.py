"""Configurations of rows in several runs of memory, as batch norms over images have them."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from kernelwright.capture import capture_module
from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.row_configs import (
    BlockRows,
    ColumnPartRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.machine import H200, Machine
from kernelwright.rewrite import rewrite
from kernelwright.schedule import Library, schedule
from kernelwright.schedule.row_configs import row_configs


@pytest.mark.parametrize(
    ("shape", "family", "width", "holds"),
    [
        # Runs of 49 vectors, 490 of a row; of 49 elements, which no wider access fits.
        ((10, 1024, 14, 14), BlockRows, 4, True),
        ((10, 576, 7, 7), BlockRows, 1, True),
        # Too long for registers, read again from the cache.
        ((10, 144, 56, 56), BlockRows, 4, False),
        # A few rows of long runs keep the card busy in parts only.
        ((10, 32, 112, 112), PartRows, 4, None),
        ((64, 64, 512, 512), PartRows, 4, None),
        # Many short runs, of which each is a part: a large block would have a vector a thread.
        ((512, 128, 34, 34), PartRows, 4, None),
        ((65, 64, 63, 65), PartRows, 4, None),
        ((256, 64, 33, 33), PartRows, 4, None),
    ],
)
def test_batch_norms_have_blocks_for_rows_of_short_runs(
    shape: tuple[int, ...], family: type, width: int, holds: bool | None
) -> None:
    module = nn.BatchNorm2d(shape[1])
    with torch.device("meta"):
        image = torch.empty(shape)
    graph = rewrite(capture_module(module, (image,))).graph
    plan = schedule(graph, H200, Library.NEVER, frozenset())
    (kernel,) = (it for it in plan.kernels if it.family == "rows")
    best = row_configs(kernel.anchored(RowProgram), kernel.inputs, H200)[0].tuned
    assert isinstance(best, family)
    assert isinstance(best, BlockRows | PartRows)
    assert best.width == width
    if isinstance(best, PartRows):
        assert best.threads * best.unroll * best.width <= shape[2] * shape[3]
    if isinstance(best, BlockRows):
        vectors = shape[0] * shape[2] * shape[3] // width
        assert best.holds is holds
        assert (vectors <= best.threads * best.vectors) == holds
        assert vectors * 4 > best.threads * best.vectors


class _ByMean(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows / rows.abs().mean(1, keepdim=True)


@pytest.mark.parametrize(("length", "threads"), [(65535, 640), (59999, 608), (65536, None)])
def test_rows_that_begin_between_vectors_are_held_by_odd_blocks(
    length: int, threads: int | None
) -> None:
    best = _best(_ByMean(), length)
    odd = best.threads if isinstance(best, HeldRows) and best.threads & best.threads - 1 else None
    assert odd == threads
    if isinstance(best, HeldRows) and odd is not None:
        vectors = best.cluster * best.threads * best.vectors
        assert vectors >= length // 4 + 2


@pytest.mark.parametrize(
    ("module", "shape", "family", "fold_warps"),
    [
        # Rows of 8.4 MB, of which the card holds more than two; of 16.8 MB.
        (nn.GroupNorm(8, 64), (112, 64, 512, 512), GridRows, 8),
        (nn.GroupNorm(1, 64), (16, 64, 256, 256), GridRows, 12),
        # A cluster holds rows of 2.1 MB, nobody those of 33.5 MB.
        (nn.GroupNorm(8, 64), (112, 64, 256, 256), HeldRows, None),
        # Channels end within vectors: rows that a large cluster would hold, and a small one.
        (nn.GroupNorm(8, 64), (112, 64, 255, 255), PartRows, None),
        (nn.GroupNorm(8, 64), (112, 64, 127, 127), RingRows, None),
        (nn.GroupNorm(1, 64), (16, 64, 512, 256), PartRows, None),
        # Weights of a row's size; too few rows; what is in the cache anyway.
        (nn.LayerNorm((64, 256, 256)), (16, 64, 256, 256), PartRows, None),
        (nn.GroupNorm(1, 64), (7, 64, 256, 256), PartRows, None),
        (nn.GroupNorm(1, 64), (16, 64, 128, 144), PartRows, None),
        # Rows that end between two vectors; exponentials and their sum in one fold.
        (nn.GroupNorm(1, 1), (64, 1, 1001, 2001), PartRows, None),
        (nn.Softmax(1), (64, 2_000_000), GridRows, 8),
    ],
)
def test_rows_beyond_a_cluster_are_held_by_the_whole_card(
    module: nn.Module, shape: tuple[int, ...], family: type, fold_warps: int | None
) -> None:
    best = _best_of(module.to("meta"), shape)
    assert type(best) is family
    if isinstance(best, GridRows):
        assert best.fold_warps == fold_warps
        assert best.ring < H200.shared_memory_per_block


@pytest.mark.parametrize("length", [100_000, 400_000, 2_000_000])
def test_a_card_without_clusters_is_offered_none(length: int) -> None:
    card = replace(H200, limits=replace(H200.limits, cluster_blocks=1))
    offered = [config.tuned for config in _configs(nn.Softmax(1), (4096, length), card)]
    assert not any(isinstance(it, GridRows) for it in offered)
    assert all(it.cluster == 1 for it in offered if isinstance(it, RingRows))
    assert any(isinstance(it, PartRows) for it in offered)


class _Largest(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.logsumexp(1)


def test_many_rows_without_results_have_a_warp_each() -> None:
    best = _best(_Largest(), 20480)
    assert isinstance(best, PartRows)
    assert best.threads == best.resident == 32


@pytest.mark.parametrize(
    ("length", "lanes", "vectors"),
    # More than a warp holds, and than a block does.
    [(49, 8, 7), (593, 32, 19), (13, 2, 7), (641, 64, 11), (2049, 160, 13), (16385, None, None)],
)
def test_short_rows_of_no_whole_vectors_are_read_element_by_element(
    length: int, lanes: int | None, vectors: int | None
) -> None:
    best = _best_of(nn.Softmax(1), (2**16, length))
    assert isinstance(best, ShortRows) == (lanes is not None)
    if isinstance(best, ShortRows):
        assert (best.width, best.lanes, best.vectors) == (1, lanes, vectors)


class _WithMean(nn.Module):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        active = functional.silu(images)
        return active, active.mean((2, 3))


@pytest.mark.parametrize(
    ("module", "shape", "way"),
    [
        # Enough threads, however few the rows: width, lanes and vectors.
        (nn.LayerNorm(96), (100_352, 96), (8, 4, 3)),
        (nn.LayerNorm(384), (6272, 384), (8, 16, 3)),
        (nn.LayerNorm(768), (1568, 768), (8, 32, 3)),
        (nn.LayerNorm(768), (32, 768), None),
        (nn.LayerNorm(96), (1568, 96), None),
        # Whole accesses of fewer elements, or elements one by one.
        (_WithMean(), (32, 672, 14, 14), (4, 16, 4)),
        (_WithMean(), (32, 960, 7, 7), (1, 8, 7)),
        (_WithMean(), (1, 960, 7, 7), None),
    ],
)
def test_short_rows_of_16_bits_share_warps(
    module: nn.Module, shape: tuple[int, ...], way: tuple[int, int, int] | None
) -> None:
    best = _best_of(module.to("meta", torch.bfloat16), shape, torch.bfloat16)
    assert isinstance(best, ShortRows) == (way is not None)
    if isinstance(best, ShortRows):
        assert (best.width, best.lanes, best.vectors) == way


class _NormOfSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.norm(rows + rows.flip(0).contiguous())


def test_short_rows_that_a_thread_holds_more_of_have_fewer_blocks() -> None:
    threads = []
    for module in (nn.LayerNorm(96), _NormOfSum()):
        module = module.to("meta", torch.bfloat16)
        best = _best_of(module, (100_352, 96), torch.bfloat16)
        assert isinstance(best, ShortRows)
        threads.append(best.threads * best.resident)
    # 64 and 80 registers each.
    assert threads == [1024, 768]


class _LargestOfColumns(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.amax(0)


@pytest.mark.parametrize(
    ("shape", "width", "lanes"),
    [
        ((32768, 1024), 2, 128),
        ((65537, 593), 1, 128),
        ((204800, 32), 2, 16),
        ((65537, 3), 1, 16),
        ((32768, 65536), None, None),
        ((64, 1024), None, None),
    ],
)
def test_few_long_rows_side_by_side_are_cut_in_parts(
    shape: tuple[int, ...], width: int | None, lanes: int | None
) -> None:
    best = _best_of(_LargestOfColumns(), shape)
    assert isinstance(best, ColumnRows)
    assert isinstance(best, ColumnPartRows) == (width is not None)
    assert width is None or (best.width, best.lanes, best.lanes * best.split) == (width, lanes, 256)


@pytest.mark.parametrize(
    ("shape", "dtype", "way"),
    [
        # Lanes, threads of a row, width and vectors: some 128 blocks, a line wide.
        ((1960, 256), torch.float32, (8, 32, 4, 4)),
        ((490, 2048), torch.float32, (8, 32, 4, 8)),
        ((125440, 96), torch.float32, (8, 32, 4, 16)),
        ((7840, 16), torch.float32, (4, 64, 4, 1)),
        ((1960, 256), torch.bfloat16, (4, 64, 8, 2)),
        # More than the L2 cache holds.
        ((65536, 1024), torch.float32, None),
    ],
)
def test_norms_of_columns_that_the_cache_holds_take_two_launches(
    shape: tuple[int, int], dtype: torch.dtype, way: tuple[int, ...] | None
) -> None:
    best = _best_of(nn.BatchNorm1d(shape[1]).to("meta", dtype), shape, dtype)
    assert isinstance(best, ColumnPartRows) and best.joined == (way is not None)
    assert way is None or (best.lanes, best.split, best.width, best.vectors) == way


def test_few_rows_of_which_nothing_is_wanted_twice_are_read_in_parts() -> None:
    best = _best_of(_Largest(), (512, 65536))
    assert isinstance(best, PartRows)
    assert best.threads == 256


class _Place(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.argmax(1)


@pytest.mark.parametrize(("count", "family"), [(512, BlockRows), (600, PartRows)])
def test_blocks_read_whole_long_rows_where_these_fill_the_card(count: int, family: type) -> None:
    assert isinstance(_best_of(_Place(), (count, 65536)), family)


@pytest.mark.parametrize(
    ("module", "shape", "way"),
    [
        # Width, threads and vectors; weights of channels that end within vectors.
        (nn.LayerNorm(2048), (32768, 2048), (4, 256, 2)),
        (nn.LayerNorm(3000), (32768, 3000), (4, 256, 3)),
        (nn.GroupNorm(8, 512), (129, 512, 7, 7), (1, 256, 13)),
        # Too few rows to fill the card, and rows that no block holds.
        (nn.LayerNorm(2048), (500, 2048), None),
        (nn.LayerNorm(20000), (4096, 20000), None),
    ],
)
def test_many_rows_beyond_a_warp_are_held_by_blocks(
    module: nn.Module, shape: tuple[int, ...], way: tuple[int, int, int] | None
) -> None:
    best = _best_of(module.to("meta"), shape)
    assert isinstance(best, ShortRows) == (way is not None)
    if isinstance(best, ShortRows):
        assert (best.width, best.threads, best.vectors) == way
        assert best.lanes == best.threads


class _LogSumExp(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.logsumexp(1)


def test_rows_of_which_too_little_is_held_have_a_warp() -> None:
    # Totals of functions alone, and one vector of 16-bit elements a thread.
    assert not isinstance(_best_of(_LogSumExp(), (32768, 2048)), ShortRows)
    best = _best_of(nn.LayerNorm(2048).to("meta", torch.bfloat16), (32768, 2048), torch.bfloat16)
    assert isinstance(best, RingRows)
    # Functions of odd rows that eight blocks hold are not computed again.
    best = _best_of(nn.LogSoftmax(1), (97, 393217))
    assert isinstance(best, RingRows) and best.cluster == 8


class _Sum(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.sum(1)


class _SquaresOfColumns(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.square().sum(0)


@pytest.mark.parametrize(
    ("module", "shape", "family", "streams"),
    [
        (_Sum(), (32768, 2048), ShortRows, True),
        (_Place(), (512, 65536), BlockRows, True),
        (_Largest(), (4096, 20480), PartRows, True),
        (_LargestOfColumns(), (1024, 65536), ColumnRows, True),
        (_LargestOfColumns(), (32768, 1024), ColumnPartRows, True),
        # What the L2 cache holds, or a small part of what is read; what is read twice or written,
        # too; several rows for a warp; single elements.
        (_LargestOfColumns(), (32768, 65536), ColumnRows, False),
        (_LargestOfColumns(), (65537, 593), ColumnPartRows, False),
        (_Sum(), (4096, 2048), ShortRows, False),
        (nn.Softmax(1), (32768, 2048), ShortRows, False),
        (_Sum(), (75001, 592), ShortRows, False),
        (_SquaresOfColumns(), (65537, 593), ColumnPartRows, False),
    ],
)
def test_what_is_read_once_and_no_cache_holds_leaves_it_first(
    module: nn.Module, shape: tuple[int, ...], family: type, streams: bool
) -> None:
    first, *_, general = _configs(module, shape, H200)
    assert type(first.tuned) is family
    assert first.streams is streams
    assert not general.streams


def _best(module: nn.Module, length: int) -> object:
    """The first configuration for 4096 rows."""
    return _best_of(module, (4096, length))


def _best_of(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> object:
    """The first configuration for rows of this shape."""
    return _configs(module, shape, H200, dtype)[0].tuned


def _configs(
    module: nn.Module,
    shape: tuple[int, ...],
    machine: Machine,
    dtype: torch.dtype = torch.float32,
) -> tuple[RowConfig, ...]:
    """All that are offered for rows of this shape, the first one first."""
    with torch.device("meta"):
        rows = torch.empty(shape, dtype=dtype)
    graph = rewrite(capture_module(module, (rows,))).graph
    plan = schedule(graph, machine, Library.NEVER, frozenset())
    (kernel,) = (it for it in plan.kernels if it.family == "rows")
    return row_configs(kernel.anchored(RowProgram), kernel.inputs, machine)
