"""Children that die, hang, flood or lie, forked as in suites; test_processes.py starts some."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.errors import ExitCode
from kernelwright.problem import Problem, load_problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import Case
from kernelwright.verify.verdict import Status, Verdict
from kernelwright.worker import JudgeOptions, Timeouts, judge
from kernelwright.worker.errors import ReferenceFailedError
from kernelwright.worker.options import Watch
from kernelwright.worker.process.nursery import Nursery, employed

HERE = Path(__file__).parent
CANDIDATES = HERE / "candidates"
ONE_CASE = (Case(),)
VerdictOf = Callable[..., Verdict]


@pytest.fixture(scope="module", autouse=True)
def fork_server() -> Iterator[None]:
    """Children are forked: to start one and import PyTorch takes two seconds of a core."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with employed(Nursery.started(["kernelwright.worker.roles.table"], environment)):
        yield


@pytest.mark.parametrize(
    ("name", "status", "evidence"),
    [
        ("aborts", Status.CRASHED, "SIGABRT"),
        ("exits", Status.CRASHED, "exited with code 0"),
        ("garbage_on_socket", Status.CRASHED, "nonsense"),
        ("floods", Status.VERIFIED, "no less accurate"),
        ("compiles", Status.VERIFIED, "no less accurate"),
    ],
)
def test_what_a_process_can_do(
    affine: Problem, name: str, status: Status, evidence: str, verdict_of: VerdictOf
) -> None:
    verdict = verdict_of(affine, name)
    assert verdict.status is status
    assert evidence in verdict.summary


@pytest.mark.parametrize("name", ["hangs", "spins"])
def test_a_hanging_candidate_is_ended_in_time(
    affine: Problem, name: str, verdict_of: VerdictOf
) -> None:
    start = time.monotonic()
    verdict = verdict_of(affine, name, timeouts=Timeouts(hang=1.5))
    assert verdict.status is Status.TIMED_OUT
    assert "the reference's call takes" in verdict.summary
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("name", ["correct", "exits"])
def test_the_card_is_known_from_a_process_that_has_it(
    affine: Problem, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that judges may be where none is seen."""

    def ask() -> None:
        raise RuntimeError("No CUDA GPUs are available")

    monkeypatch.setattr("kernelwright.worker.judging.judging.modelled_machine", ask)
    _, measurement = judge(
        affine,
        CANDIDATES / f"{name}.py",
        target=Target.CPU,
        floor=None,
        options=JudgeOptions(watch=Watch.NOTHING, cases=ONE_CASE),
        progress=lambda event: None,
    )
    assert measurement.machine == "NVIDIA H200"


def test_a_problem_that_raises_is_named_with_its_line(
    tmp_path: Path, verdict_of: VerdictOf
) -> None:
    text = (HERE / "problems" / "affine.py").read_text()
    path = tmp_path / "broken.py"
    path.write_text(text.replace("torch.rand(BATCH, FEATURES)", "torch.rand(BATCH) @ None"))
    with pytest.raises(ReferenceFailedError) as caught:
        verdict_of(load_problem(path), "correct")
    line = text.splitlines().index("    return [torch.rand(BATCH, FEATURES)]") + 1
    assert caught.value.location == f"{path}:{line}"
    assert caught.value.exit_code is ExitCode.USAGE
