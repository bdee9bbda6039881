"""What the compiler makes of the five examples, as text."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kernelwright.capture import capture
from kernelwright.codegen import Candidate, emit
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import print_plan, schedule

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("diag_matmul", "linear_relu_div", "matmul", "matmul_transposed_both", "scalar_mul")

Golden = Callable[[str, str], None]


@cache
def stages(name: str) -> tuple[str, Candidate]:
    """The rewritten graph as text, and the file with its plan."""
    problem = load_problem(EXAMPLES / f"{name}.py")
    result = rewrite(capture(problem))
    return str(result.graph), emit(problem, schedule(result.graph, H200), result.applied)


@pytest.mark.parametrize("name", NAMES)
def test_graph_and_plan(name: str, golden: Golden) -> None:
    graph, candidate = stages(name)
    golden(f"{graph}\n{print_plan(candidate.plan)}", f"{name}.txt")


@pytest.mark.parametrize("name", NAMES)
def test_kernels(name: str, golden: Golden) -> None:
    _, candidate = stages(name)
    (kernel,) = candidate.plan.kernels
    golden(
        candidate.cuda_source[candidate.cuda_source.index(f"// ---- {kernel.name} ----") :],
        f"{name}.cu",
    )


@pytest.mark.parametrize("name", NAMES)
def test_module(name: str, golden: Golden) -> None:
    source = stages(name)[1].source
    start, end = source.index("class ModelNew"), source.index("# ---- This problem's kernels")
    golden(source[start:end].rstrip() + "\n", f"{name}.py")


@pytest.mark.parametrize("name", NAMES)
def test_file_compiles_and_passes_static_rules(name: str) -> None:
    source = stages(name)[1].source
    compile(source, name, "exec")
    parts = ("class ModelNew", "def get_inputs", "KERNELS = ", "def _launch", "DEVICE_LIBRARY = ")
    places = [source.index(part) for part in parts]
    assert places == sorted(places), "a file reads from the top: the module, its kernels, the rest"
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in source).split())
    assert not words & {"try", "except", "pass"}
