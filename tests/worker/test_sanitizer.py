"""compute-sanitizer's processes beside a judgement, with a program that stands in for it."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from kernelwright.verify.cases import Case
from kernelwright.verify.sanitizer_report import Tool
from kernelwright.verify.verdict import Outcome, Status
from kernelwright.worker.judging.sanitizer import Sanitizing
from kernelwright.worker.process.requests import Role, StartRequest
from kernelwright.worker.sandbox.confining import Confinement
from kernelwright.worker.sandbox.folders import Quarters

HERE = Path(__file__).parent
_CLEAN = "========= ERROR SUMMARY: 0 errors"
_READ = """========= Invalid __global__ read of size 4 bytes
=========     at gemm_of_mine(const float *)+0x90 in cuda.cu:7
========= ERROR SUMMARY: 1 error"""
_PROGRAM = """#!/bin/sh
while [ "$1" != "--log-file" ]; do shift; done
log=$2; shift 2
"$@"; code=$?
cat > "$log" <<'END'
{report}
END
exit $code
"""


@pytest.mark.parametrize(
    ("name", "report", "outcome", "said"),
    [
        ("correct", _CLEAN, Outcome.PASSED, "found nothing in its kernels, on seed=3"),
        ("correct", _READ, Outcome.FAILED, "out of bounds: memcheck: Invalid __global__ read"),
        ("raises", _CLEAN, Outcome.SKIPPED, "no call came back"),
    ],
)
def test_what_a_tool_says(
    name: str, report: str, outcome: Outcome, said: str, tmp_path: Path
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(_PROGRAM.format(report=report))
    program.chmod(0o755)
    candidate = tmp_path / "candidate.py"
    text = (HERE / "candidates" / f"{name}.py").read_text()
    candidate.write_text(f"{text}\nKERNEL = 'gemm_of_mine'\n")
    problem = HERE / "problems" / "affine.py"
    start = StartRequest(
        role=Role.CANDIDATE,
        problem_path=str(problem),
        problem_source=problem.read_text(),
        candidate_path=str(candidate),
        folder=str(tmp_path),
        device="cpu",
        emulate=False,
        order_seed=0,
        threads=1,
    )
    quarters = Quarters(environment=os.environ, confinement=Confinement())
    tools = Sanitizing(program, (Tool.MEMCHECK,), start, quarters)
    assert tools.checks() == ()
    tools.begin((Case(seed=3),), nullcontext, 120.0)
    (check,) = tools.checks()
    tools.close()
    assert check.outcome is outcome
    assert said in check.evidence
    assert check.status is (Status.OUT_OF_BOUNDS if outcome is Outcome.FAILED else None)
