"""The model of attention in 16 bits, beside what a card took (docs/measured/attention.md)."""

from dataclasses import replace

import pytest

from kernelwright.ir.types import DType
from kernelwright.machine import H200
from kernelwright.schedule.attention_configs import (
    AttentionSizes,
    attention_configs,
    attention_seconds,
    library_seconds,
)


def _sizes(heads: int, groups: int, length: int, *, causal: bool) -> AttentionSizes:
    return AttentionSizes(
        heads=heads, groups=groups, rows=length, keys=length, depth=64, width=64,
        dtype=DType.BF16, causal=causal, is_softmax=True, mask_bytes=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "ours", "library"),
    [
        (_sizes(96, 96, 512, causal=False), 23.7, 19.1),
        (_sizes(384, 384, 197, causal=False), 28.4, 24.8),
        (_sizes(48, 48, 1024, causal=True), 34.5, 27.1),
        # Each head has keys and values repeated before the call, in 12.2 of them.
        (_sizes(64, 32, 1024, causal=True), 41.6, 33.4 + 12.2),
    ],
)
def test_times_are_those_of_a_card(sizes: AttentionSizes, ours: float, library: float) -> None:
    # The model counts launches, too.
    assert attention_seconds(sizes, H200) * 1e6 == pytest.approx(ours + 2.5, rel=0.25)
    assert library_seconds(sizes, H200) * 1e6 == pytest.approx(library + 2.5, rel=0.25)
    assert (attention_seconds(sizes, H200) < library_seconds(sizes, H200)) == (ours < library)


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        # One step: a stage, and as many keys as an instruction has at least.
        (replace(_sizes(6144, 6144, 49, causal=False), dtype=DType.F32, depth=32), (1, 64, 1)),
        (replace(_sizes(384, 384, 197, causal=False), dtype=DType.F32), (1, 64, 1)),
        (replace(_sizes(128, 128, 2048, causal=False), dtype=DType.F32), (2, 128, 2)),
        (replace(_sizes(384, 384, 197, causal=False), depth=96, width=96), (2, 128, 2)),
        (_sizes(384, 384, 197, causal=False), (1, 64, 2)),
        (_sizes(48, 48, 1024, causal=True), (2, 128, 2)),
    ],
)
def test_short_rows_leave_room_for_other_blocks(
    sizes: AttentionSizes, wanted: tuple[int, int, int]
) -> None:
    first = attention_configs(sizes, H200)[0]
    assert (first.consumers, first.block_n, first.stages) == wanted


@pytest.mark.parametrize(
    ("heads", "rows", "keys", "ours", "library"),
    [(256, 1, 4096, 151, 657), (128, 4, 1000, 32, 132), (32, 1, 1000, 8, 138)],
)
def test_few_rows_of_float32(heads: int, rows: int, keys: int, ours: float, library: float) -> None:
    sizes = replace(_sizes(heads, heads, keys, causal=False), rows=rows, dtype=DType.F32)
    assert attention_configs(sizes, H200)[0].few == rows
    assert attention_seconds(sizes, H200) * 1e6 == pytest.approx(ours + 2.5, rel=0.25)
    assert attention_seconds(sizes, H200) < library_seconds(sizes, H200) < 1e-6 * library
    # A step of blocks for many rows has as many keys.
    assert attention_configs(replace(sizes, keys=64), H200)[0].few == 0


def test_windows_are_ours_in_float32() -> None:
    # H200: 0.124 ms, PyTorch's 0.144, since its tiles are of 64 rows, keys and columns.
    sizes = replace(_sizes(4096, 4096, 49, causal=False), dtype=DType.F32, depth=32, width=32)
    assert attention_seconds(sizes, H200) < library_seconds(sizes, H200)
    assert library_seconds(sizes, H200) == pytest.approx(0.144e-3, rel=0.1)
