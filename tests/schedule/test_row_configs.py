"""Configurations of rows in several runs of memory, as batch norms over images have them."""

import pytest
import torch
from torch import nn

from kernelwright.capture import capture_module
from kernelwright.ir.configs import BlockRows, HeldRows, PartRows
from kernelwright.ir.plan import RowKernel
from kernelwright.machine import H200
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
    (kernel,) = (it for it in plan.kernels if isinstance(it, RowKernel))
    best = row_configs(kernel.program, kernel.inputs, H200)[0].tuned
    assert isinstance(best, family)
    assert isinstance(best, BlockRows | PartRows)
    assert best.width == width
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


class _Largest(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.logsumexp(1)


def test_many_rows_without_results_have_a_warp_each() -> None:
    best = _best(_Largest(), 2048)
    assert isinstance(best, PartRows)
    assert best.threads == best.resident == 32


def _best(module: nn.Module, length: int) -> object:
    """The first configuration for 4096 rows."""
    with torch.device("meta"):
        rows = torch.empty(4096, length)
    graph = rewrite(capture_module(module, (rows,))).graph
    plan = schedule(graph, H200, Library.NEVER, frozenset())
    (kernel,) = (it for it in plan.kernels if isinstance(it, RowKernel))
    return row_configs(kernel.program, kernel.inputs, H200)[0].tuned
