"""Random graphs of up to 12 operators, many to a module: their plans, and what is emitted of them.

Every graph is captured, rewritten and planned, and its program interpreted in float64. Of every
tenth module half of the graphs are also emitted and run on the emulator against float64: to compile
one takes ten times as long as all the rest. `make random` takes many more graphs.
"""

import importlib.util
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelwright.capture import capture_module
from kernelwright.compiling import compile_problem, write_candidate
from kernelwright.ir.program_interpreter import run_program
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.program import cutting, program_of
from kernelwright.schedule import Library, plan_graph

HERE = Path(__file__).parent
PROBLEM = HERE / "families" / "random_graphs.py"
GRAPHS_OF_A_MODULE = 50
GRAPHS_OF_AN_EMITTED_ONE = 25
MODULES_OF_AN_EMITTED_ONE = 10
MOST_STEPS = 12
ALLOWED_IN_FLOAT32 = 2e-5
"""Chains of twelve operators, some of which amplify what came before."""
ALLOWED_IN_FLOAT64 = 1e-12

Step = tuple[int, int, int, int]
"""Which operation, on which values, and how."""
Program = list[Step]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each module, by the seed of its programs."""
    modules = metafunc.config.getoption("--random-graphs") // GRAPHS_OF_A_MODULE
    if "planned_seed" in metafunc.fixturenames:
        metafunc.parametrize("planned_seed", range(modules))
    if "emitted_seed" in metafunc.fixturenames:
        metafunc.parametrize("emitted_seed", range(0, modules, MODULES_OF_AN_EMITTED_ONE))


def programs(seed: int) -> list[Program]:
    draw = random.Random(seed).randrange
    operations = len(_load(PROBLEM).OPERATIONS)
    return [
        [(draw(operations), draw(8), draw(8), draw(8)) for _ in range(1 + draw(MOST_STEPS))]
        for _ in range(GRAPHS_OF_A_MODULE)
    ]


def test_plans_of_random_graphs(planned_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if planned_seed % 2:  # Calls are cut where that saves one byte.
        monkeypatch.setattr(cutting, "_LEAST_SAVED", 1)
        monkeypatch.setattr(cutting, "_LEAST_SHARE", 1 << 40)
    bad = _misplanned(programs(planned_seed))
    assert not bad, f"{len(bad)} differ; the first, made smaller: {_smaller(bad[0])}"


def test_a_flip_that_a_rewrite_moved_is_made_by_pytorch() -> None:
    flipped_total_returned_with_its_flip: Program = [
        (20, 1, 6, 0),
        (1, 2, 2, 2),
        (9, 4, 2, 0),
        (10, 0, 2, 5),
        (6, 1, 5, 3),
        (14, 3, 6, 2),
        (15, 5, 4, 4),
    ]
    assert not _misplanned([flipped_total_returned_with_its_flip])


def test_random_graphs_on_the_emulator(
    emitted_seed: int, tmp_path: Path, run_script: Callable[..., Any]
) -> None:
    problem, emitted = tmp_path / "random_graphs.py", tmp_path / "random_graphs_new.py"
    wanted = programs(emitted_seed)[:GRAPHS_OF_AN_EMITTED_ONE]
    problem.write_text(PROBLEM.read_text().replace("PROGRAMS = []", f"PROGRAMS = {wanted}"))
    write_candidate(compile_problem(load_problem(problem), H200, Library.NEVER), emitted)
    found = run_script(PROBLEM.with_name("run_random.py"), problem, emitted)
    assert not found["findings"]
    assert len(found["worst"]) == len(wanted)
    errors = zip(found["worst"], wanted, strict=True)
    assert not [(error, program) for error, program in errors if not error < ALLOWED_IN_FLOAT32]


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _misplanned(wanted: Sequence[Program]) -> list[Program]:
    """Those whose plan computes something else than the module does."""
    graphs = _load(PROBLEM)
    graphs.PROGRAMS = wanted  # type: ignore[attr-defined]
    module = graphs.Model().double()
    torch.manual_seed(0)
    inputs = tuple(x.double() for x in graphs.get_inputs())
    plan = plan_graph(capture_module(module, inputs), H200, Library.NEVER).plan
    results = run_program(program_of(plan), module, inputs)
    expected = module(*inputs)
    return [
        program
        for program, mine, theirs in zip(wanted, results, expected, strict=True)
        if not all(map(_agree, mine, theirs))
    ]


def _agree(got: torch.Tensor, want: torch.Tensor) -> bool:
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    return bool(((got - want).abs() <= ALLOWED_IN_FLOAT64 * (1 + want.abs().max())).all())


def _smaller(program: Program) -> Program:
    """The program without the steps that it fails without."""
    for at in reversed(range(len(program))):
        shorter = program[:at] + program[at + 1 :]
        if shorter and _misplanned([shorter]):
            program = shorter
    return program
