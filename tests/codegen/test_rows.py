"""Row programs: on the emulator over shapes and layouts, and under nvcc."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright.build.cuda import compile_check
from kernelwright.build.toolchain import find_nvcc
from kernelwright.ir.plan import RowConfig
from kernelwright.ir.types import DType

_FOLDER = Path(__file__).parent / "rows"
sys.path.insert(0, str(_FOLDER))

from row_programs import CASES  # noqa: E402
from run_rows import text_of  # noqa: E402

_RUN = _FOLDER / "run_rows.py"
_ANY = {"multiprocessors": 2}

# Lengths of 0, 1, less than a vector, and odd ones; rows that are cut in parts; few rows and many;
# reduced dimensions that are inner, outer, apart from each other, and all.
_RUNS: dict[str, list[dict[str, Any]]] = {
    "softmax": [
        {"dims": [1], "shapes": [[3, 17], [1, 1], [4, 0], [0, 4], [2, 9001], [300, 5]]},
        {"dims": [1], "shapes": [[3, 17]], "layouts": ["plain"], "special": "nan"},
        {"dims": [1], "shapes": [[2, 9001]], "layouts": ["plain"], "special": "-inf"},
        {"dims": [0], "shapes": [[17, 3], [900, 20], [4001, 3]], "dtype": "BF16"},
    ],
    "two_level_softmax": [{"dims": [1], "shapes": [[3, 17], [4, 0], [2, 9001]]}],
    "layer_norm": [
        {"dims": [0, 2, 3], "shapes": [[3, 5, 2, 2], [4, 5, 0, 6], [20, 3, 17, 11]]},
        {"dims": [1, 2], "shapes": [[3, 17, 2], [2, 101, 40]], "dtype": "F16"},
    ],
    "extremes": [
        {"dims": [1], "shapes": [[3, 17, 5], [2, 2099, 3]]},
        {"dims": [0, 2], "shapes": [[3, 4, 5], [2, 3, 1500]], "special": "nan"},
    ],
    "sums": [
        {"dims": [0, 1], "shapes": [[3, 17], [0, 3], [100, 41], [1, 1]]},
        {"dims": [0], "shapes": [[3000, 2], [0, 3]], "dtype": "F64"},
        {"dims": [1], "shapes": [[3, 17]], "dtype": "I64"},
    ],
    "cross_entropy": [{"dims": [1], "shapes": [[3, 17], [1, 1], [2, 5000]]}],
}

# Of values around 1: half a unit in the last place of the result, and what exp and rsqrt are off.
_ALLOWED = {"F32": 4e-7, "F16": 6e-4, "BF16": 5e-3, "F64": 1e-14, "I64": 0.0}


def _run(runs: list[dict[str, Any]]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, _RUN, json.dumps(runs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["findings"] == []
    worst: dict[str, float] = seen["worst"]
    return worst


@pytest.mark.parametrize("name", _RUNS)
def test_rows_on_the_emulator(name: str) -> None:
    runs = [{"case": name, "config": _ANY} | run for run in _RUNS[name]]
    worst = _run(runs)
    assert len(worst) == sum(len(run["shapes"]) * len(run.get("layouts", "four")) for run in runs)
    allowed = max(_ALLOWED[run.get("dtype", "F32")] for run in runs)
    assert max(worst.values()) <= allowed, worst


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
    assert len(report.kernels) == 2 + len(kernel.program.levels)
    assert [str(kernel) for kernel in report.kernels if kernel.stack_bytes or kernel.spills] == []
