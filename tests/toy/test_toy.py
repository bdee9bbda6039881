"""A family of kernels is three files and two rows: one that only this test has runs everywhere."""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright import kernels
from kernelwright.codegen.families import WRITERS
from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.schedule import Library, cost_of_kernel, print_plan, ranked_configs
from kernelwright.schedule.families import FAMILIES

HERE = Path(__file__).parent


@pytest.fixture
def flip(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy family's rows and its device code, as if they were the package's."""
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setitem(FAMILIES, "flip", importlib.import_module("planning").FLIP)
    monkeypatch.setitem(WRITERS, "flip", importlib.import_module("writing").FLIP)
    files = {**kernels.paths(), "flip.cuh": HERE / "flip.cuh"}
    monkeypatch.setattr(kernels, "paths", lambda: files)
    _forget_texts()
    yield
    _forget_texts()


def _forget_texts() -> None:
    kernels.source.cache_clear()
    kernels.names.cache_clear()


@pytest.mark.usefixtures("flip")
def test_a_toy_family_goes_through_the_whole_line(
    tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    problem, emitted = HERE / "problem.py", tmp_path / "problem_new.py"
    compiled = compile_problem(load_problem(problem), H200, Library.NEVER)
    kernel, other = compiled.plan.kernels
    assert (kernel.family, other.family) == ("flip", "pointwise")
    assert not compiled.plan.left_to_pytorch
    assert f"kernel {kernel.name}: flip of a line" in print_plan(compiled.plan)
    assert len(ranked_configs(kernel, H200)) == 2
    assert cost_of_kernel(kernel).bytes == 2 * 4 * 300
    assert kernel.name in str(compiled.explanation)
    write_candidate(compiled, emitted)
    sizes = json.dumps([{"N": size} for size in (300, 1, 0, 1000)])
    run = HERE.parent / "families" / "run.py"
    seen = run_script(run, problem, emitted, "float32", sizes)
    assert seen["findings"] == []
    assert max(seen["worst"].values()) <= 2e-6


def test_without_its_rows_it_is_pytorchs() -> None:
    plan = compile_problem(load_problem(HERE / "problem.py"), H200, Library.NEVER).plan
    assert [kernel.family for kernel in plan.kernels] == ["pointwise"]
    assert [step.name for step in plan.left_to_pytorch] == ["aten.flip.default"]
