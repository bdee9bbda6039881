"""Products with few rows or columns: on the emulator, and under nvcc."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.toolchain.compilers import find_nvcc
from kernelwright.toolchain.cuda import compile_check

_RUN = Path(__file__).parent / "thin" / "run.py"

# Batch sizes, m, k, n. Empty and single ones; less than a vector, and one more than some; one row
# or column beyond a tile's; K of many steps and chunks, which is cut in slices; batches that do not
# fold into rows; K = 333 carries infinity and NaN.
_CASES: tuple[tuple[list[int], int, int, int], ...] = (
    ([], 0, 4, 5),
    ([], 4, 0, 5),
    ([], 1, 1, 1),
    ([], 3, 17, 5),
    ([], 1, 20001, 1),
    ([], 2, 6000, 24),
    ([], 7, 333, 123),
    ([], 120, 333, 2),
    ([2, 3], 2, 40, 64),
    ([2, 3], 1, 48, 40),
    ([], 16, 1040, 24),
    ([], 70, 64, 16),
    ([], 20, 128, 40),
    ([2], 33, 97, 21),
    ([], 41, 2048, 24),
)

# Of sums of up to 20001 products, relative to the sum of their absolute values: half a unit in the
# last place of the result, and of fp32 sums a few more.
_ALLOWED = {"float": 2e-7, "double": 4e-15, "__half": 6e-4, "__nv_bfloat16": 5e-3}


@pytest.mark.parametrize(
    ("factor", "rows", "row_tiles", "columns", "step"),
    [
        ("float", 1, 1, 4, 16),
        ("float", 4, 1, 4, 8),
        ("float", 8, 3, 4, 8),
        ("float", 16, 1, 8, 8),
        ("double", 2, 1, 4, 4),
        ("__half", 8, 3, 8, 8),
        ("__nv_bfloat16", 1, 1, 8, 8),
    ],
)
def test_thin_products_on_the_emulator(
    factor: str,
    rows: int,
    row_tiles: int,
    columns: int,
    step: int,
    run_script: Callable[..., Any],
) -> None:
    sizes = {"rows": rows, "row_tiles": row_tiles, "columns": columns, "step": step}
    config = {"factor": factor, **sizes}
    cases = [case for case in _CASES if min(case[1], case[3]) <= rows * row_tiles]
    seen = run_script(_RUN, json.dumps(config), json.dumps(cases))
    assert seen["findings"] == []
    assert len(seen["worst"]) == 4 * len(cases)
    assert max(seen["worst"].values()) <= _ALLOWED[factor], seen["worst"]
    assert min(seen["slices"].values()) == 1 and max(seen["slices"].values()) > 1


_KERNEL = """
struct BiasRelu {
  __device__ %(sum)s operator()(%(sum)s sum, %(sum)s bias) const { return relu(sum + bias); }
};
using Problem = Gemm<%(factor)s, %(factor)s, BiasRelu, %(factor)s>;
template <Major MAJOR>
struct Thin {
  static constexpr int ROWS = %(rows)d, COLUMNS = %(columns)d, STEP = %(step)d;
  static constexpr int ROW_TILES = %(row_tiles)d;
  static constexpr int THREADS = 256, RESIDENT = %(resident)d, MULTIPROCESSORS = 132;
  static constexpr Major WIDE = MAJOR;
};
template <Major WIDE>
__global__ void __launch_bounds__((ThinVariant<Thin<WIDE>, Problem>::THREADS),
                                  (ThinVariant<Thin<WIDE>, Problem>::MIN_BLOCKS))
    thin_kernel(const __grid_constant__ ThinParameters<Problem> parameters) {
  gemm_thin<Thin<WIDE>>(parameters);
}
template <Major WIDE>
cudaError_t launch(const Problem& problem, void* workspace) {
  return launch_gemm(problem, nullptr, workspace,
                     ThinVariant<Thin<WIDE>, Problem>{thin_kernel<WIDE>});
}
template cudaError_t launch<Major::K>(const Problem&, void*);
template cudaError_t launch<Major::MN>(const Problem&, void*);
"""


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("factor", "rows", "columns", "step", "resident"),
    [
        ("float", 1, 4, 16, 2),
        ("float", 1, 4, 4, 4),
        ("float", 4, 4, 8, 2),
        ("float", 16, 8, 8, 1),
        ("double", 1, 2, 4, 3),
        ("float", 8, 8, 8, 1),
        ("__half", 1, 4, 8, 4),
        ("__nv_bfloat16", 1, 4, 8, 4),
    ],
)
def test_thin_products_spill_nothing(
    factor: str, rows: int, columns: int, step: int, resident: int
) -> None:
    config = {"factor": factor, "rows": rows, "columns": columns, "step": step}
    config |= {"row_tiles": 8 if rows >= 8 else 1}
    config |= {"resident": resident, "sum": "double" if factor == "double" else "float"}
    text = kernels.inline(
        "gemm_thin.cuh", "gemm_launch.cuh", "math.cuh", "half.cuh", "bfloat16.cuh"
    )
    report = compile_check(text + _KERNEL % config)
    thin = [kernel for kernel in report.kernels if "thin_kernel" in kernel.name]
    assert len(thin) == 2
    assert [str(kernel) for kernel in thin if kernel.stack_bytes or kernel.spills] == []
