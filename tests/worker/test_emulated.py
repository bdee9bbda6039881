"""Candidates with CUDA kernels, judged where there is no GPU; mutants must be caught as such."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.problem import load_problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.verdict import Status, Verdict
from kernelwright.worker import JudgeOptions, judge
from kernelwright.worker.process.nursery import Nursery, employed

HERE = Path(__file__).parent
Mutate = Callable[[str], str]


@pytest.fixture(scope="module")
def nursery() -> Iterator[None]:
    """Children are forked, as in suites, from a process that has imported PyTorch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with employed(Nursery.started(["kernelwright.worker.roles.table"], environment)):
        yield


def emulated(name: str, folder: Path, mutate: Mutate, options: JudgeOptions) -> Verdict:
    """The verdict on the CUDA candidate `name`, changed by `mutate`, for the problem `name`."""
    text = (HERE / "candidates" / "cuda" / f"{name}.py").read_text()
    candidate = folder / f"{name}_new.py"
    candidate.write_text(mutate(text))
    verdict, measurement = judge(
        load_problem(HERE / "problems" / f"{name}.py"),
        candidate,
        target=Target.CPU,
        floor=None,
        options=options,
        progress=lambda event: None,
    )
    assert measurement.note == "not measured: no GPU"
    return verdict


@pytest.mark.usefixtures("nursery")
@pytest.mark.parametrize("name", ["scale", "product"])
def test_a_right_kernel_is_verified_on_the_emulator(name: str, tmp_path: Path) -> None:
    verdict = emulated(name, tmp_path, lambda text: text, JudgeOptions(seeds=1))
    assert verdict.status is Status.VERIFIED, verdict.summary
    assert verdict.target == "cpu"


def replacing(old: str, new: str) -> Mutate:
    def mutate(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return mutate


@pytest.mark.usefixtures("nursery")
@pytest.mark.parametrize(
    ("name", "mutate", "status", "evidence"),
    [
        (
            "product",
            replacing("    __syncthreads();  // the second barrier\n", ""),
            Status.RACE,
            "product_kernel",
        ),
        ("scale", replacing("i < count;", "i <= count;"), Status.OUT_OF_BOUNDS, "scale_kernel"),
        ("scale", replacing("= x[i] * s", "= x[i] + s"), Status.WRONG_VALUES, "RMSE"),
        (
            "scale",
            replacing("y[i] = x[i] * s;", "if (i) y[i] = s * x[i];"),
            Status.WRONG_VALUES,
            "first at [0, 0]",
        ),
        ("scale", replacing("x[i] * s;", "x[i] * t;"), Status.BUILD_FAILED, "t"),
    ],
    ids=["race", "out of bounds", "wrong values", "first element unwritten", "does not compile"],
)
def test_a_mutant_is_caught(
    tmp_path: Path, name: str, mutate: Mutate, status: Status, evidence: str
) -> None:
    options = JudgeOptions(cases=(Case(),), order_seeds=1)
    verdict = emulated(name, tmp_path, mutate, options)
    assert verdict.status is status, verdict.summary
    assert evidence in verdict.summary
