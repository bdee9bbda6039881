"""nvcc takes the CUDA text of every example for an H200, and no kernel spills registers."""

from pathlib import Path

import pytest

from kernelwright.build.cuda import compile_check
from kernelwright.build.toolchain import find_nvcc
from kernelwright.capture import capture
from kernelwright.codegen.cuda import cuda_source
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import schedule

_EXAMPLES = sorted(
    path
    for path in (Path(__file__).parents[2] / "examples").glob("*.py")
    if not path.stem.endswith("_new")
)


def test_there_are_examples() -> None:
    assert len(_EXAMPLES) >= 5


@pytest.mark.skipif(find_nvcc() is None, reason="needs nvcc")
@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda path: path.stem)
def test_compiles_without_spills(path: Path) -> None:
    graph = rewrite(capture(load_problem(path))).graph
    report = compile_check(cuda_source(schedule(graph, H200)), arch="sm_90a")
    assert len(report.kernels) >= 1
    assert [str(kernel) for kernel in report.spilling] == []
