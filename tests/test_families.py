"""Each family of kernels on the emulator: odd and empty sizes, any strides, 16-bit types.

The shapes are those that break kernels: 0 and 1, less than a vector (3), a vector and one (17),
many blocks that do not come out even (1000, 4097), and a little more than one tile (130).
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.compiling import Compiled, compile_problem, write_candidate
from kernelwright.ir.anchors import Side, Triangle
from kernelwright.ir.configs import Config
from kernelwright.ir.joint import JointConfig
from kernelwright.ir.kinds import Reduction
from kernelwright.ir.product_configs import (
    Feed,
    FewConfig,
    GemmConfig,
    Major,
    TensorCoreConfig,
    ThinConfig,
)
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.schedule import Library
from kernelwright.tune.plans import with_configs

FOLDER = Path(__file__).parent / "families"

POINTWISE_SIZES = [
    {"ROWS": rows, "COLUMNS": columns}
    for rows, columns in [(0, 5), (5, 0), (1, 1), (3, 17), (17, 3), (1, 4097), (1000, 3), (17, 64)]
]
GEMM_SIZES = [
    {"M": m, "K": k, "N": n}
    for m, k, n in [
        (0, 4, 5),
        (4, 5, 0),
        (4, 0, 5),
        (1, 1, 1),
        (3, 17, 5),
        (1, 1000, 3),
        (3, 4097, 2),
        (1000, 3, 1),
        (130, 33, 257),
        (16, 48, 32),
    ]
]

# 16 bits: three half units in the last place (PyTorch rounds after every operator, and so do we).
# 32 and 64 bits: sums of up to 4097 products.
ALLOWED = {"float32": 2e-6, "float16": 1.5e-3, "bfloat16": 1.2e-2, "float64": 1e-14}


# What the tuner chooses from, each for every product that its kernel takes.
PRODUCTS = [
    (TensorCoreConfig(block_n=128, feed=Feed.SPLIT, stages=3, cluster=2), "float32"),
    (TensorCoreConfig(block_n=64, feed=Feed.SPLIT, stages=4, cluster=1, slices=3), "float32"),
    (
        TensorCoreConfig(block_n=128, feed=Feed.AHEAD, stages=3, cluster=2, least_ahead=0),
        "float32",
    ),
    (TensorCoreConfig(block_n=128, feed=Feed.CONVERT, stages=3, cluster=2), "float32"),
    (
        TensorCoreConfig(
            block_n=64, feed=Feed.CONVERT, stages=4, cluster=1, slices=2, transposed=True
        ),
        "float32",
    ),
    (TensorCoreConfig(block_n=256, feed=Feed.DIRECT, stages=4, cluster=2), "float16"),
    (TensorCoreConfig(block_n=64, feed=Feed.DIRECT, stages=8, cluster=1), "bfloat16"),
    (TensorCoreConfig(block_n=192, feed=Feed.TURNS, stages=3, cluster=1), "bfloat16"),
    (TensorCoreConfig(block_n=128, feed=Feed.TURNS, stages=4, cluster=2), "float16"),
    (
        GemmConfig(
            block_m=64, block_n=64, block_k=16, thread_m=8, thread_n=4, stages=2, min_tiles=1
        ),
        "float32",
    ),
    (
        ThinConfig(
            rows=8, columns=4, step=8, threads=128, resident=3, multiprocessors=4, wide=Major.MN
        ),
        "float32",
    ),
]
# A tile and a bit, one row, rows that are not whole vectors, no products.
PRODUCT_SIZES = [
    {"M": m, "K": k, "N": n} for m, k, n in [(130, 40, 264), (1, 1000, 8), (5, 70, 3), (4, 0, 5)]
]


@pytest.mark.parametrize("dtype", ALLOWED)
@pytest.mark.parametrize(("name", "sizes"), [("pointwise", POINTWISE_SIZES), ("gemm", GEMM_SIZES)])
def test_family_on_the_emulator(
    name: str,
    sizes: list[dict[str, int]],
    dtype: str,
    tmp_path: Path,
    run_script: Callable[..., Any],
) -> None:
    compiled = _compiled(name, dtype, tmp_path)
    assert [kernel.family for kernel in compiled.plan.kernels] == [name]
    assert not compiled.plan.left_to_pytorch
    _expect_right(compiled, sizes, dtype, tmp_path, run_script)


@pytest.mark.parametrize(("config", "dtype"), PRODUCTS, ids=str)
def test_product_on_the_emulator(
    config: Config, dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("gemm", dtype, tmp_path)
    (kernel,) = compiled.plan.kernels
    plan = with_configs(compiled.plan, {kernel.name: config})
    _expect_right(replace(compiled, plan=plan), PRODUCT_SIZES, dtype, tmp_path, run_script)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (FewConfig(groups=1, loads=6, warps=16), "bfloat16"),
        (FewConfig(groups=4, loads=2, warps=2), "float16"),
        (TensorCoreConfig(block_n=192, feed=Feed.DIRECT, stages=3, cluster=1), "bfloat16"),
    ],
    ids=str,
)
def test_few_rows_on_the_emulator(
    config: Config, dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("few_rows", dtype, tmp_path)
    (kernel,) = compiled.plan.kernels
    plan = with_configs(compiled.plan, {kernel.name: config})
    # One row, all rows and one more, few columns, K of part of a run, none, and between vectors.
    sizes = [
        {"M": m, "K": k, "N": n}
        for m, k, n in [
            (1, 1096, 9),
            (16, 264, 33),
            (17, 40, 3),
            (9, 8, 130),
            (3, 0, 5),
            (2, 30, 8),
            (130, 72, 264),
        ]
    ]
    _expect_right(replace(compiled, plan=plan), sizes, dtype, tmp_path, run_script)


@pytest.mark.timeout(400)  # many kernels are compiled
def test_joint_products_on_the_emulator(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    compiled = _compiled("joint", "float16", tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families == ["joint", "joint"] and not compiled.plan.left_to_pytorch
    # No row, one, and more than a tile of them in several texts.
    sizes = [{"M": m, "TEXTS": texts} for m, texts in [(0, 1), (1, 1), (3, 7)]]
    _expect_right(compiled, sizes, "float16", tmp_path, run_script)


def test_turns_of_a_joint_product_on_the_emulator(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    # A block's turns, each of which sends for the next one; K of steps that warps have or have not.
    compiled = _compiled("joint", "float16", tmp_path)
    configs: dict[str, Config] = {
        it.name: replace(
            it.configured(JointConfig),
            loads=1,
            warps=4,
            row_warps=4,  # all warps of a block make a row
            held=1,
            resident=1,
            multiprocessors=3,
        )
        for it in compiled.plan.kernels
    }
    plan = with_configs(compiled.plan, configs)
    _expect_right(
        replace(compiled, plan=plan), [{"M": 3, "TEXTS": 7}], "float16", tmp_path, run_script
    )


@pytest.mark.parametrize("row_warps", [1, 8])
@pytest.mark.timeout(400)  # many kernels are compiled
def test_a_decode_step_on_the_emulator(
    row_warps: int, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("decode", "bfloat16", tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families == ["rows", "joint", "pointwise"] and not compiled.plan.left_to_pytorch
    kernel = compiled.plan.kernels[1]
    config = replace(kernel.configured(JointConfig), row_warps=row_warps)
    compiled = replace(compiled, plan=with_configs(compiled.plan, {kernel.name: config}))
    sizes = [{"TEXTS": texts, "LENGTH": length} for texts, length in [(1, 9), (16, 1), (18, 2)]]
    _expect_right(compiled, sizes, "bfloat16", tmp_path, run_script)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (TensorCoreConfig(block_n=128, feed=Feed.SPLIT, stages=3, cluster=2), "float32"),
        (TensorCoreConfig(block_n=64, feed=Feed.SPLIT, stages=4, cluster=1, slices=3), "float32"),
        (TensorCoreConfig(block_n=64, feed=Feed.SPLIT, stages=3, cluster=1), "float32"),
        (TensorCoreConfig(block_n=128, feed=Feed.DIRECT, stages=4, cluster=2), "bfloat16"),
        (TensorCoreConfig(block_n=192, feed=Feed.TURNS, stages=3, cluster=1), "bfloat16"),
    ],
    ids=str,
)
def test_products_together_on_the_emulator(
    config: TensorCoreConfig, dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("together", dtype, tmp_path)
    (kernel,) = (it for it in compiled.plan.kernels if it.family == "gemm")
    assert kernel.together == len(kernel.outputs) == 3
    plan = with_configs(compiled.plan, {kernel.name: replace(config, min_products=0)})
    compiled = replace(compiled, plan=plan)
    sizes = [{"M": m, "K": k, "N": n} for m, k, n in [(0, 4, 5), (130, 33, 96)]]
    _expect_right(compiled, sizes, dtype, tmp_path, run_script)
    seen = run_script(FOLDER / "run_together.py", tmp_path / "emitted.py", dtype)
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= ALLOWED[dtype], seen["worst"]


@pytest.mark.parametrize(
    "config",
    [
        TensorCoreConfig(block_n=128, feed=Feed.PAIRED, stages=2, cluster=1),
        TensorCoreConfig(block_n=64, feed=Feed.PAIRED, stages=3, cluster=2, slices=2),
    ],
    ids=str,
)
def test_products_of_shares_on_the_emulator(
    config: TensorCoreConfig, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("paired", "float32", tmp_path)
    rows, product = compiled.plan.kernels
    assert rows.pairs and product.pairs
    assert product.configured(TensorCoreConfig).feed is Feed.PAIRED
    plan = with_configs(compiled.plan, {product.name: config})
    compiled = replace(compiled, plan=plan)
    sizes = [
        {"BATCH": batch, "ROWS": rows, "KEYS": keys, "WIDTH": width}
        for batch, rows, keys, width in [(2, 130, 32, 40), (2, 3, 45, 5), (1, 5, 0, 2)]
    ]
    _expect_right(compiled, sizes, "float32", tmp_path, run_script)
    seen = run_script(FOLDER / "run_paired.py", tmp_path / "emitted.py")
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= ALLOWED["float32"], seen["worst"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_triangles_on_the_emulator(
    dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("triangles", dtype, tmp_path)
    assert [kernel.family for kernel in compiled.plan.kernels] == ["pointwise"]
    assert not compiled.plan.left_to_pytorch
    _expect_right(compiled, POINTWISE_SIZES, dtype, tmp_path, run_script)


def test_rows_apart_on_the_emulator(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    compiled = _compiled("rows_apart", "float32", tmp_path)
    (kernel,) = compiled.plan.kernels
    assert not compiled.plan.left_to_pytorch
    config = GemmConfig(block_m=32, block_n=64, block_k=16, thread_m=4, thread_n=4, stages=3)
    plan = with_configs(compiled.plan, {kernel.name: config})
    _expect_right(replace(compiled, plan=plan), PRODUCT_SIZES, "float32", tmp_path, run_script)


def test_triangle_of_a_product_on_the_emulator(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("triangle_of_product", "float32", tmp_path)
    (kernel,) = compiled.plan.kernels
    assert kernel.triangle == Triangle(kept=Side.UPPER, diagonal=-3)
    assert not compiled.plan.left_to_pytorch
    config = GemmConfig(block_m=32, block_n=64, block_k=16, thread_m=4, thread_n=4, stages=3)
    plan = with_configs(compiled.plan, {kernel.name: config})
    _expect_right(replace(compiled, plan=plan), PRODUCT_SIZES, "float32", tmp_path, run_script)


@pytest.mark.parametrize(
    ("feed", "block_n", "cluster"), [(Feed.TURNS, 256, 2), (Feed.DIRECT, 64, 1)]
)
def test_extremes_of_rows_on_the_emulator(
    feed: Feed, block_n: int, cluster: int, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    """Whole and begun tiles, and what the other variants compute: odd sizes, no products."""
    compiled = _with_extremes(feed, block_n, cluster, tmp_path)
    sizes = [
        {"BATCH": batch, "M": m, "K": k, "N": n, "WIDE": n}
        for batch, m, k, n in [(2, 66, 24, 264), (3, 5, 70, 3), (1, 4, 0, 5), (2, 0, 8, 8)]
    ]
    _expect_right(compiled, sizes, "bfloat16", tmp_path, run_script)


def test_extremes_of_nan_and_infinities_on_the_emulator(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _with_extremes(Feed.TURNS, 64, 1, tmp_path)
    emitted = tmp_path / "emitted.py"
    write_candidate(compiled, emitted)
    size = json.dumps({"BATCH": 1, "M": 18, "K": 8, "N": 72, "WIDE": 72})
    arguments = (compiled.problem.path, emitted, "bfloat16", size)
    seen = run_script(FOLDER / "special_values.py", *arguments)
    assert seen == {"differing": [], "findings": []}


def _with_extremes(feed: Feed, block_n: int, cluster: int, folder: Path) -> Compiled:
    compiled = _compiled("extremes", "bfloat16", folder)
    kept = [kernel.kept for kernel in compiled.plan.kernels]
    assert kept == [Reduction.MAXIMUM, Reduction.MINIMUM]
    config = TensorCoreConfig(block_n=block_n, feed=feed, stages=3, cluster=cluster)
    names = (kernel.name for kernel in compiled.plan.kernels)
    return replace(compiled, plan=with_configs(compiled.plan, dict.fromkeys(names, config)))


def test_one_text_for_several_sizes_on_the_emulator(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("several_sizes", "float32", tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert sorted(families) == ["pooling", "rows", "rows"]  # of six launches
    sizes = [{"ROWS": 6}, {"ROWS": 1}]
    _expect_right(compiled, sizes, "float32", tmp_path, run_script)


def test_recurrent_layers_on_the_emulator(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    compiled = _compiled("recurrent", "float32", tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families.count("recurrent") == 3 and not compiled.plan.left_to_pytorch
    sizes = [{"BATCH": 9, "STEPS": 5}, {"BATCH": 17, "STEPS": 1}, {"BATCH": 0}]
    _expect_right(compiled, sizes, "float32", tmp_path, run_script)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gathers_on_the_emulator(
    dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("gather", dtype, tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families.count("gather") == 3 and not compiled.plan.left_to_pytorch
    sizes = [{"COLUMNS": 17}, {"ROWS": 3, "PICKED": 1}, {"PICKED": 0}, {"COLUMNS": 600}]
    _expect_right(compiled, sizes, dtype, tmp_path, run_script)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rolls_on_the_emulator(dtype: str, tmp_path: Path, run_script: Callable[..., Any]) -> None:
    compiled = _compiled("rolls", dtype, tmp_path)
    assert not compiled.plan.left_to_pytorch
    sizes = [{"COLUMNS": 17}, {"ROWS": 1, "PLANES": 4}, {"ROWS": 0}, {"COLUMNS": 1}]
    _expect_right(compiled, sizes, dtype, tmp_path, run_script)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shifted_windows_on_the_emulator(
    dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("shifted_windows", dtype, tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families.count("attention") == 1 and not compiled.plan.left_to_pytorch
    _expect_right(compiled, [{"BATCH": 1}, {"BATCH": 2}], dtype, tmp_path, run_script)


def test_an_index_out_of_range_is_an_error(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    """As in PyTorch, and nothing is read there."""
    problem, emitted = tmp_path / "table.py", tmp_path / "table_new.py"
    problem.write_text(TABLE)
    write_candidate(compile_problem(load_problem(problem), H200, Library.NEVER), emitted)
    seen = run_script(FOLDER / "bad_index.py", emitted)
    assert seen == {"inside": "", "outside": "RuntimeError", "findings": []}


TABLE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, table, index):
        return table[index]


def get_inputs():
    return [torch.rand(10, 6), torch.randint(0, 10, (4,))]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_short_results_on_the_emulator(
    dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("short_results", dtype, tmp_path)
    _expect_right(compiled, [{"ROWS": 3}], dtype, tmp_path, run_script)
    arguments = (compiled.problem.path, tmp_path / "emitted.py", dtype, json.dumps({"ROWS": 2}))
    seen = run_script(FOLDER / "special_values.py", *arguments)
    assert seen == {"differing": [], "findings": []}


def test_loops_on_the_emulator(tmp_path: Path, run_script: Callable[..., Any]) -> None:
    compiled = _compiled("loops", "float32", tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    assert families.count("loop") == 3 and not compiled.plan.left_to_pytorch
    _expect_right(compiled, [{"BATCH": 0}, {"BATCH": 40}], "float32", tmp_path, run_script)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_attention_on_the_emulator(
    dtype: str, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    compiled = _compiled("attention", dtype, tmp_path)
    families = [kernel.family for kernel in compiled.plan.kernels]
    # What is written by hand in 16 bits rounds its scores, and stays as it is.
    assert families.count("attention") == (5 if dtype == "float32" else 4)
    sizes = [{"ROWS": 1, "KEYS": 1}, {"DEPTH": 300, "KEYS": 9}]
    _expect_right(compiled, sizes, dtype, tmp_path, run_script)


def _compiled(name: str, dtype: str, folder: Path) -> Compiled:
    problem = folder / f"{name}.py"
    text = (
        (FOLDER / f"{name}.py")
        .read_text()
        .replace("DTYPE = torch.float32", f"DTYPE = torch.{dtype}")
    )
    problem.write_text(_with_inputs_of(dtype, text))
    return compile_problem(load_problem(problem), H200, Library.NEVER)


def _expect_right(
    compiled: Compiled,
    sizes: list[dict[str, int]],
    dtype: str,
    folder: Path,
    run_script: Callable[..., Any],
) -> None:
    emitted = folder / "emitted.py"
    write_candidate(compiled, emitted)
    problem = compiled.problem.path
    seen = run_script(FOLDER / "run.py", problem, emitted, dtype, json.dumps(sizes))
    assert seen["findings"] == []
    assert len(seen["worst"]) == 4 * len(sizes)
    assert max(seen["worst"].values()) <= ALLOWED[dtype], seen["worst"]


def _with_inputs_of(dtype: str, text: str) -> str:
    """The same problem, its `torch.rand(...)` followed by a conversion."""
    return text.replace("),", f").{_CONVERSION[dtype]}(),").replace(
        ")]", f").{_CONVERSION[dtype]}()]"
    )


_CONVERSION = {"float32": "float", "float16": "half", "bfloat16": "bfloat16", "float64": "double"}
