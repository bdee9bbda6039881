"""Row programs: on the emulator over shapes and layouts, and under nvcc."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.ir.anchors import RowProgram
from kernelwright.ir.row_configs import (
    BlockRows,
    ColumnRows,
    GridRows,
    HeldRows,
    PartRows,
    RingRows,
    RowConfig,
    ShortRows,
)
from kernelwright.ir.types import DType
from kernelwright.machine import H200
from kernelwright.schedule.row_configs import row_configs
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_FOLDER = Path(__file__).parent / "rows"
sys.path.insert(0, str(_FOLDER))

from row_programs import CASES  # noqa: E402
from run_rows import LAYOUTS, text_of  # noqa: E402

_RUN = _FOLDER / "run_rows.py"

# Lengths of 0, 1, less than a vector, and odd ones; rows that are cut in parts; few rows and many;
# reduced dimensions that are inner, outer, apart from each other, and all.
_RUNS: dict[str, list[dict[str, Any]]] = {
    "softmax": [
        {"dims": [1], "shapes": [[3, 17], [1, 1], [4, 0], [0, 4], [2, 9001], [300, 5]]},
        {"dims": [0], "shapes": [[17, 3], [900, 20], [4001, 3]], "dtype": "BF16"},
    ],
    "layer_norm": [{"dims": [0, 2, 3], "shapes": [[3, 5, 2, 2], [4, 5, 0, 6], [20, 3, 17, 11]]}],
    "extremes": [{"dims": [0, 2], "shapes": [[3, 4, 5], [2, 3, 1500]], "special": "nan"}],
    "sums": [
        {"dims": [0], "shapes": [[3000, 2], [0, 3]], "dtype": "F64"},
        {"dims": [1], "shapes": [[3, 17]], "dtype": "I64"},
    ],
    "cross_entropy": [{"dims": [1], "shapes": [[3, 17], [1, 1], [2, 5000]]}],
}

_RING = {"threads": 64, "team": 64, "cluster": 1, "width": 4, "vectors": 2, "stages": 3}
_HELD = {"threads": 64, "team": 64, "cluster": 2, "width": 4, "vectors": 5, "stages": 1}
_HELD |= {"resident": 1, "in_registers": True}
_PARTS = {"threads": 64, "width": 4, "unroll": 2, "resident": 1}
_SHORT = {"threads": 64, "width": 4, "resident": 1}
_BLOCKS = {"threads": 64, "width": 4, "vectors": 2, "holds": True, "resident": 1}
_GRID = {"fold_warps": 2, "finish_warps": 1, "width": 4, "vectors": 2, "ring": 8192}
_COLUMNS = {"lanes": 32, "split": 2, "width": 4, "vectors": 4, "resident": 1}
_STREAMS = {"streams": True}
_COLUMNS_IN_PARTS = _COLUMNS | {"width": 1, "holds": False, "in_parts": True}
_JOINED = {"lanes": 8, "split": 8, "joined": True}
# What the tuner chooses from: rows that begin and end between vectors, that are shorter than the
# room for them, that are more than the teams; what does not fit is left to the other kernels.
_TUNED: dict[str, dict[str, Any]] = {
    "blocks": {
        "case": "layer_norm",
        "dims": [1],
        "shapes": [[3, 117], [1, 501], [50, 200]],
        "config": _RING | {"resident": 1},
    },
    "warps": {
        "case": "cross_entropy",
        "dims": [1],
        "shapes": [[3, 117], [9, 380]],
        "config": _RING | {"team": 32, "vectors": 3, "stages": 2, "resident": 1},
    },
    "clusters": {
        "case": "two_level_softmax",
        "dims": [1],
        "special": "nan",
        "shapes": [[3, 1700], [7, 2040]],
        "config": _RING | {"cluster": 4, "stages": 2, "resident": 2},
    },
    # The next row comes in groups of vectors, in the places of the one that is finished.
    "one stage": {
        "case": "two_level_softmax",
        "dims": [1],
        "shapes": [[7, 1101], [5, 1240]],
        "config": _RING | {"vectors": 5, "stages": 1, "resident": 1},
    },
    # A row in registers, the next one in its place; by clusters, with edges.
    "held": {
        "case": "softmax",
        "dims": [1],
        "shapes": [[5, 2301], [9, 2304]],
        "config": _HELD,
    },
    # With weights, each for a line: where these are no whole vectors another kernel has the row.
    "held with weights": {
        "case": "group_norm",
        "dims": [2, 3],
        "special": "nan",
        "shapes": [[2, 2, 2, 1148], [1, 3, 4, 571]],
        "layouts": ["plain", "misaligned"],
        "config": _HELD,
    },
    # Lines that end within vectors, of rows that begin within them.
    "lines that end within vectors": {
        "case": "normed_groups",
        "dims": [2, 3],
        "special": "inf",
        "shapes": [[2, 3, 5, 99], [3, 1, 170, 3], [1, 2, 4, 125]],
        "layouts": ["plain", "misaligned"],
        "config": _RING | {"stages": 1, "resident": 1},
    },
    "runs that begin within vectors": {
        "case": "layer_norm",
        "dims": [0, 2, 3],
        "special": "nan",
        "shapes": [[3, 2, 17, 61], [2, 3, 1, 271], [4, 2, 5, 49]],
        "layouts": ["plain", "misaligned"],
        "config": _PARTS,
    },
    "halves that begin within vectors": {
        "case": "normed_groups",
        "dtype": "F16",
        "dims": [2, 3],
        "special": "inf",
        "shapes": [[2, 3, 3, 343], [1, 2, 2, 571]],
        "layouts": ["plain", "misaligned"],
        "config": _PARTS | {"width": 8},
    },
    "rows in one piece": {
        "case": "cross_entropy",
        "dims": [1],
        "shapes": [[9, 1101], [3, 900]],
        "config": _PARTS | _STREAMS,
    },
    "parts": {
        "case": "layer_norm",
        "dims": [0, 2, 3],
        "shapes": [[3, 7, 5, 8], [20, 3, 16, 12], [2, 2, 64, 65]],
        "config": _PARTS,
    },
    # What is shorter than the room, or longer, is left to the other kernel.
    "runs held": {
        "case": "layer_norm",
        "dims": [0, 2, 3],
        "shapes": [[5, 7, 5, 8], [10, 3, 4, 9], [2, 2, 8, 64], [2, 3, 5, 5]],
        "config": _BLOCKS,
    },
    "runs read again": {
        "case": "two_level_softmax",
        "dims": [0, 2],
        "special": "nan",
        "shapes": [[9, 2, 36], [40, 3, 31], [2, 3, 700]],
        "config": _BLOCKS | {"width": 1, "holds": False},
    },
    "parts of all": {
        "case": "extremes",
        "dims": [0, 1, 2],
        "shapes": [[3, 2, 1701], [2, 3, 2040]],
        "config": _PARTS,
    },
    # Rows with the same weights, and runs that meet the same vector.
    "lines of rows": {
        "case": "layer_norm",
        "dims": [1],
        "shapes": [[5, 264], [35, 520], [3, 117]],
        "config": _PARTS,
    },
    "lines of runs": {
        "case": "hinge",
        "dims": [1, 2],
        "shapes": [[2, 9, 264], [1, 13, 1040], [2, 3, 117]],
        "config": _PARTS | _STREAMS,
    },
    # Rows finished by blocks for a few vectors each: runs of rows, pieces that share a weight, of
    # rows in groups; the last block of each has less to do.
    "slices of runs": {
        "case": "softmax",
        "dims": [0, 2, 3],
        "shapes": [[2, 4, 128, 130]],
        "layouts": ["plain", "misaligned"],
        "config": _PARTS,
    },
    "slices of pieces": {
        "case": "group_norm",
        "dims": [2, 3],
        "shapes": [[2, 3, 2, 12296]],
        "layouts": ["plain"],
        "config": _PARTS,
    },
    # Rows that all blocks hold: chunks that go round the ring, a shorter last one, more rows
    # than flags; what does not fit is left to the other kernel.
    "rows of the grid": {
        "case": "group_norm",
        "dims": [2, 3],
        "shapes": [[2, 10, 2, 712], [1, 5, 3, 300], [2, 2, 1, 8], [1, 3, 4, 1501]],
        "layouts": ["plain", "misaligned"],
        "config": _GRID,
    },
    "halves of the grid": {
        "case": "softmax",
        "dtype": "F16",
        "dims": [1],
        "special": "nan",
        "shapes": [[7, 2056], [20, 1000], [3, 40]],
        "config": _GRID | {"width": 8, "fold_warps": 1, "finish_warps": 2, "vectors": 1},
    },
    "rows of the grid with weights": {
        "case": "layer_norm",
        "dims": [1],
        "shapes": [[9, 1500], [33, 136]],
        "layouts": ["plain"],
        "config": _GRID,
    },
    "short rows": {
        "case": "two_level_softmax",
        "dims": [1],
        "special": "nan",
        "shapes": [[70, 24], [9, 32], [3, 17], [5, 48]],
        "config": _SHORT | {"lanes": 4, "vectors": 3},
    },
    "short rows of halves": {
        "case": "layer_norm",
        "dtype": "F16",
        "dims": [2],
        "shapes": [[5, 7, 16], [1, 33, 8]],
        "config": _SHORT | {"lanes": 1, "vectors": 4},
    },
    # Rows that begin between vectors, element by element.
    "short rows of single elements": {
        "case": "two_level_softmax",
        "dims": [1],
        "special": "nan",
        "shapes": [[70, 25], [9, 28], [3, 13], [5, 29]],
        "config": _SHORT | {"width": 1, "lanes": 4, "vectors": 7},
    },
    "short rows of single elements, exponentials": {
        "case": "cross_entropy",
        "dims": [1],
        "special": "nan",
        "shapes": [[70, 25], [9, 13]],
        "config": _SHORT | {"width": 1, "lanes": 8, "vectors": 4},
    },
    "short rows of single elements with weights": {
        "case": "layer_norm",
        "dims": [1],
        "shapes": [[70, 57], [3, 61]],
        "config": _SHORT | {"width": 1, "lanes": 32, "vectors": 2},
    },
    # A block for a row, whose threads have all of their vectors, all but one, or some.
    "rows of a block": {
        "case": "two_level_softmax",
        "dims": [1],
        "special": "nan",
        "shapes": [[3, 768], [2, 516], [3, 300]],
        "config": _SHORT | {"lanes": 64, "vectors": 3},
    },
    "rows of a block with weights": {
        "case": "layer_norm",
        "dims": [1],
        "shapes": [[2, 285], [3, 131]],
        "config": _SHORT | {"threads": 96, "lanes": 96, "width": 1, "vectors": 3},
    },
    "rows of a block, exponentials": {
        "case": "cross_entropy",
        "dims": [1],
        "special": "nan",
        "shapes": [[3, 190], [2, 100]],
        "config": _SHORT | {"width": 1, "lanes": 64, "vectors": 3},
    },
    "rows of a block, extremes": {
        "case": "extremes",
        "dims": [1],
        "special": "nan",
        "shapes": [[3, 380]],
        "config": _SHORT | _STREAMS | {"lanes": 64, "vectors": 2},
    },
    # Results of every level, each written with the next fold, which takes it.
    "short rows, results of every level": {
        "case": "chained",
        "dims": [1],
        "special": "nan",
        "shapes": [[70, 24], [9, 48], [5, 40]],
        "config": _SHORT | {"lanes": 4, "vectors": 3},
    },
    "short rows of 16 bits, results of every level": {
        "case": "chained",
        "dtype": "BF16",
        "dims": [2],
        "special": "nan",
        "shapes": [[3, 11, 72], [2, 4, 96]],
        "config": _SHORT | {"lanes": 4, "vectors": 3, "width": 8},
    },
    "rings, results of every level": {
        "case": "chained",
        "dims": [1],
        "special": "nan",
        "shapes": [[3, 117], [9, 380], [5, 384]],
        "config": _RING | {"team": 32, "vectors": 3, "stages": 2, "resident": 1},
    },
    "held, results of every level": {
        "case": "chained",
        "dims": [1],
        "shapes": [[5, 2301], [9, 2304]],
        "layouts": ["plain", "misaligned"],
        "config": _HELD,
    },
    "columns held": {
        "case": "layer_norm",
        "dtype": "BF16",
        "dims": [1],
        "shapes": [[3, 7, 16], [1, 3, 400], [2, 4, 40]],
        "config": _COLUMNS | {"vectors": 2, "width": 8, "holds": True},
    },
    "columns read": {
        "case": "extremes",
        "dims": [0],
        "shapes": [[70, 17], [300, 41]],
        "config": _COLUMNS | _STREAMS | {"width": 1, "vectors": 8, "holds": False},
    },
    "columns read once, halves": {
        "case": "sums",
        "dtype": "F16",
        "dims": [0],
        "special": "nan",
        "shapes": [[3, 20], [7, 132], [5, 33]],
        "config": _COLUMNS | _STREAMS | {"holds": False},
    },
    # Parts that rows do not fill, fewer rows than lanes; two levels of folds.
    "columns in parts": {
        "case": "two_level_softmax",
        "dims": [0],
        "special": "nan",
        "shapes": [[70, 17], [301, 41]],
        "config": _COLUMNS_IN_PARTS,
    },
    "columns in parts, whole vectors": {
        "case": "layer_norm",
        "dims": [0, 1],
        "shapes": [[3, 41, 132], [1, 19, 4]],
        "layouts": ["plain", "misaligned"],
        "config": _COLUMNS_IN_PARTS | {"width": 4, "lanes": 16, "split": 4},
    },
    # Few rows with so many parts that more threads make the totals of each.
    "columns in many parts": {
        "case": "layer_norm",
        "dims": [0, 1],
        "special": "nan",
        "shapes": [[9, 41, 12], [30, 41, 4], [2, 130, 1]],
        "config": _COLUMNS_IN_PARTS | {"resident": 16},
    },
    # Blocks that make the totals of the rows that they finish.
    "columns in joined parts": {
        "case": "two_level_softmax",
        "dims": [0],
        "special": "nan",
        "shapes": [[70, 17], [301, 41]],
        "config": _COLUMNS_IN_PARTS | _JOINED,
    },
    "columns in joined parts, whole vectors": {
        "case": "layer_norm",
        "dims": [0, 1],
        "shapes": [[9, 41, 132], [2, 130, 4], [1, 19, 12]],
        "layouts": ["plain", "misaligned"],
        "config": _COLUMNS_IN_PARTS | _JOINED | {"width": 4, "resident": 2},
    },
    "extremes of columns in parts": {
        "case": "extremes",
        "dims": [1],
        "shapes": [[3, 70, 35]],
        "config": _COLUMNS_IN_PARTS | {"vectors": 2},
    },
}

# Of values around 1: half a unit in the last place of the result, and what exp and rsqrt are off.
_ALLOWED = {"F32": 4e-7, "F16": 6e-4, "BF16": 5e-3, "F64": 1e-14, "I64": 0.0}


def _expect_right(runs: list[dict[str, Any]], run_script: Callable[..., Any]) -> None:
    """Each run within what its element type allows; their numbers begin the keys of the errors."""
    seen = run_script(_RUN, json.dumps(runs))
    assert seen["findings"] == []
    worst: dict[str, float] = seen["worst"]
    assert len(worst) == sum(len(run.get("layouts", LAYOUTS)) * len(run["shapes"]) for run in runs)
    for key, error in worst.items():
        run = runs[int(key.split()[0])]
        assert error <= _ALLOWED[run.get("dtype", "F32")], (run["case"], key)


_ANY = [{"case": name, "config": {}} | run for name, runs in _RUNS.items() for run in runs]


# Parts, for some workers.
@pytest.mark.parametrize("part", [0, 1])
def test_rows_of_any_layout(part: int, run_script: Callable[..., Any]) -> None:
    _expect_right(_ANY[part::2], run_script)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_every_way_to_walk_rows(part: int, run_script: Callable[..., Any]) -> None:
    _expect_right(list(_TUNED.values())[part::3], run_script)


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("name", "dtype", "rank", "dims"),
    [
        ("two_level_softmax", [], 2, (1,)),
        ("layer_norm", [DType.F16], 4, (0, 2, 3)),
        ("extremes", [], 3, (1,)),
        ("sums", [DType.F64], 2, (0,)),
        ("cross_entropy", [], 2, (1,)),
    ],
)
def test_rows_spill_nothing(
    name: str, dtype: list[DType], rank: int, dims: tuple[int, ...]
) -> None:
    kernel = CASES[name](*dtype).kernel(rank, dims, RowConfig(multiprocessors=132))
    report = compile_check(text_of(kernel))
    assert len(report.kernels) == 2 + len(kernel.anchor.levels)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("name", "dtype", "rank", "dims", "fold_warps"),
    [
        ("group_norm", [], 4, (2, 3), 8),
        ("layer_norm", [DType.BF16], 2, (1,), 12),
        ("softmax", [DType.F16], 2, (1,), 12),
        ("extremes", [], 3, (1, 2), 12),
    ],
)
def test_rows_of_the_grid_spill_nothing(
    name: str, dtype: list[DType], rank: int, dims: tuple[int, ...], fold_warps: int
) -> None:
    width = 8 if dtype else 4
    tuned = GridRows(fold_warps=fold_warps, finish_warps=8, width=width, vectors=4, ring=223 * 1024)
    config = RowConfig(multiprocessors=132, tuned=tuned)
    report = compile_check(text_of(CASES[name](*dtype).kernel(rank, dims, config)))
    assert f"{name}_kernel" in [kernel.name for kernel in report.kernels]
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


_TEAM = {"threads": 512, "team": 512, "cluster": 16, "width": 4, "vectors": 16}


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "tuned",
    [
        HeldRows(**_TEAM, stages=1, resident=1),
        RingRows(**_TEAM, stages=1, resident=1),
        PartRows(threads=512, width=4, unroll=4, resident=2),
    ],
    ids=lambda tuned: type(tuned).__name__,
)
def test_rows_with_weights_for_lines_spill_nothing(tuned: RingRows | PartRows) -> None:
    config = RowConfig(multiprocessors=132, tuned=tuned)
    report = compile_check(text_of(CASES["group_norm"]().kernel(4, (2, 3), config)))
    assert "group_norm_kernel" in [kernel.name for kernel in report.kernels]
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    "tuned",
    [
        RingRows(threads=128, team=128, cluster=1, width=4, vectors=8, stages=2, resident=4),
        PartRows(threads=256, width=4, unroll=4, resident=4),
    ],
)
def test_rows_without_clusters_compile_for_older_cards(tuned: RingRows | PartRows) -> None:
    config = RowConfig(multiprocessors=108, tuned=tuned)
    report = compile_check(text_of(CASES["softmax"]().kernel(2, (1,), config)), "sm_80")
    assert "softmax_kernel" in [kernel.name for kernel in report.kernels]


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("name", "tuned", "once"),
    [
        ("sums", ShortRows(threads=256, lanes=256, width=4, vectors=2, resident=4), "0b1"),
        (
            "cross_entropy",
            BlockRows(threads=256, width=4, vectors=4, holds=False, resident=4),
            "0b01",
        ),
        (
            "total",
            ColumnRows(lanes=128, split=2, width=1, vectors=16, holds=False, resident=4),
            "0b1",
        ),
        # The second input is the same for each run of a row.
        ("hinge", PartRows(threads=512, width=4, unroll=4, resident=2), "0b01"),
    ],
    ids=lambda it: type(it).__name__ if not isinstance(it, str) else it,
)
def test_rows_that_leave_the_caches_first_spill_nothing(name: str, tuned: Any, once: str) -> None:
    dims = (0,) if isinstance(tuned, ColumnRows) else (1,)
    config = RowConfig(multiprocessors=132, tuned=tuned, streams=True)
    text = text_of(CASES[name]().kernel(2, dims, config))
    assert f"static constexpr unsigned ONCE = {once};" in text
    report = compile_check(text)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


@pytest.mark.parametrize(
    ("name", "quotient"),
    [
        ("softmax", "share_of_sum(expf(a - total0), total1)"),
        ("two_level_softmax", "divide_by_row(exp_2, total1)"),
        # What a row has one of is divided as ever.
        ("layer_norm", "((a - total0) * rsqrtf(total1 / size0"),
    ],
)
def test_elements_are_divided_by_what_their_row_shares(name: str, quotient: str) -> None:
    kernel = CASES[name]().kernel(2, (1,), RowConfig(multiprocessors=132))
    assert f"return {quotient}" in text_of(kernel)


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("chained", (100_352, 96)),
        ("chained", (25_088, 192)),
        ("layer_norm", (1568, 768)),
        ("softmax", (4096, 1024)),
    ],
)
def test_short_rows_of_16_bits_spill_nothing(name: str, shape: tuple[int, int]) -> None:
    kernel = CASES[name](DType.BF16).kernel(2, (1,), RowConfig(multiprocessors=132), shape)
    best = row_configs(kernel.anchored(RowProgram), kernel.inputs, H200)[0]
    assert isinstance(best.tuned, ShortRows)
    report = compile_check(text_of(replace(kernel, config=best)))
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []


def test_results_are_due_with_the_fold_after_their_last_total() -> None:
    text = text_of(CASES["chained"](DType.BF16).kernel(2, (1,), RowConfig(multiprocessors=132)))
    assert "static constexpr int DUE[] = {2, 0, 1, 2};" in text
    # What folds take is what results are: both are computed once.
    assert "static constexpr int TAKES[] = {1, 2};" in text
    alone = text_of(CASES["layer_norm"]().kernel(2, (1,), RowConfig(multiprocessors=132)))
    assert "static constexpr int TAKES[] = {-1};" in alone
