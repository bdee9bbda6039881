"""Random graphs end to end: captured, fused, emitted, and run on the emulator against float64."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.machine import H200
from kernelwright.pipeline import compile_problem, write_candidate
from kernelwright.problem import load_problem
from kernelwright.schedule import Library

FOLDER = Path(__file__).parent / "families"
GRAPHS_OF_A_MODULE = 10
MOST_STEPS = 12
ALLOWED = 2e-5
"""Chains of twelve operators in float32, some of which amplify what came before."""


def programs(seed: int) -> list[list[tuple[int, int, int, int]]]:
    draw = random.Random(seed).randrange
    return [
        [(draw(23), draw(8), draw(8), draw(8)) for _ in range(1 + draw(MOST_STEPS))]
        for _ in range(GRAPHS_OF_A_MODULE)
    ]


@pytest.mark.parametrize("seed", range(2))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    template = (FOLDER / "random_graphs.py").read_text()
    problem = tmp_path / "random_graphs.py"
    wanted = programs(seed)
    problem.write_text(template.replace("PROGRAMS = []", f"PROGRAMS = {wanted}"))
    emitted = tmp_path / "random_graphs_new.py"
    write_candidate(compile_problem(load_problem(problem), H200, Library.NEVER), emitted)
    command = [sys.executable, str(FOLDER / "run_random.py"), str(problem), str(emitted)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert not found["findings"]
    bad = {n: (error, wanted[n]) for n, error in enumerate(found["worst"]) if not error < ALLOWED}
    assert not bad
