"""The short product on the CUDA cores: on the emulator, and under nvcc."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_HERE = Path(__file__).parent / "plain"

# Batch sizes, m, k, n. Empty and single ones; a tile of 32 x 64, less than one, and some more; a
# step of K, and one more; K = 45 carries infinity and NaN; K = 1041 takes three sums.
_CASES: tuple[tuple[list[int], int, int, int], ...] = (
    ([2], 4, 0, 5),
    ([2], 0, 3, 5),
    ([], 1, 1, 1),
    ([2], 32, 16, 64),
    ([2, 3], 33, 17, 65),
    ([3], 40, 45, 70),
    ([], 5, 1041, 8),
)
# Of sums of up to 512 products and their sum, relative to the sum of their absolute values.
_ALLOWED = 3e-6


@pytest.mark.parametrize("type_", ["float", "__half", "__nv_bfloat16"])
def test_all_layouts_on_the_emulator(type_: str, run_script: Callable[..., Any]) -> None:
    seen = run_script(_HERE / "run.py", type_, json.dumps(_CASES))
    assert seen["findings"] == []
    assert len(seen["worst"]) == len(_CASES)
    assert max(seen["worst"].values()) <= _ALLOWED, seen["worst"]


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("type_", ["float", "__half", "__nv_bfloat16"])
def test_nothing_spills(type_: str) -> None:
    text = (_HERE / "plain.cu").read_text().replace("TYPE", type_)
    library = kernels.inline("gemm_plain.cuh", "gemm_launch.cuh", "half.cuh", "bfloat16.cuh")
    (kernel,) = compile_check(library + text).kernels
    assert kernel.stack_bytes == 0 and not kernel.spills
