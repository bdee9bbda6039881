"""Sessions for the tests: real children where death is the subject, otherwise hosts in here."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.bench.measurement import Measurement
from kernelwright.bench.roofline import Floor
from kernelwright.build.records import Target
from kernelwright.machine import H200
from kernelwright.problem import Problem, load_problem
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.verify.verdict import Verdict
from kernelwright.verify.verification import Brief, verify
from kernelwright.worker.client import Answer, Raised, Replied
from kernelwright.worker.judging import plan
from kernelwright.worker.options import JudgeOptions, Watch
from kernelwright.worker.racing import race
from kernelwright.worker.requests import StartRequest
from kernelwright.worker.roles import Host, make_host
from kernelwright.worker.session import ChildSession

HERE = Path(__file__).parent


class LocalChild:
    """Answers like a child process, through the same JSON, without a process."""

    def __init__(self, start: StartRequest) -> None:
        self._start = start
        self._host: Host | None = None
        self._answer: Answer | None = None

    def launch(self) -> None:
        """Nothing to start."""

    def post(self, operation: str, body: Any) -> None:
        self._host = self._host or make_host(to_plain(self._start))
        try:
            self._answer = Replied(body=to_plain(self._host.answer(operation, body)))
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            self._answer = Raised(message=message, location=None, next_step=None)

    def wait(self, seconds: float) -> Answer:
        assert self._answer is not None
        return self._answer

    def ask(self, operation: str, body: Any, seconds: float) -> Answer:
        self.post(operation, body)
        return self.wait(seconds)

    def close(self) -> None:
        self._host = None


class LocalSession(ChildSession):
    """A session whose children are in this process."""

    def spawn(self, start: StartRequest) -> LocalChild:  # type: ignore[override]
        return LocalChild(start)


@pytest.fixture
def affine() -> Problem:
    """relu(Linear(x)) / divisor, x of 33 x 48."""
    return load_problem(HERE / "problems" / "affine.py")


@pytest.fixture
def judge_here(tmp_path: Path) -> Callable[..., Verdict]:
    """Verifies a candidate in this process: for candidates that are wrong but harmless."""

    def judge(problem: Problem, candidate: Path, **changes: Any) -> Verdict:
        options = JudgeOptions(watch=Watch.NOTHING, seeds=2, **changes)
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        with LocalSession(problem, candidate, Target.CPU, options, folder) as session:
            brief: Brief = plan(session, Target.CPU, options, ())
            return verify(session, brief, lambda event: None)

    return judge


@pytest.fixture
def race_here(tmp_path: Path) -> Callable[..., Measurement]:
    """Times a candidate in this process."""

    def run(problem: Problem, candidate: Path, floor: Floor, options: JudgeOptions) -> Measurement:
        options = replace(options, watch=Watch.NOTHING)
        with LocalSession(problem, candidate, Target.CPU, options, tmp_path) as session:
            return race(
                session,
                options,
                case=Case(),
                floor=floor,
                machine=H200,
                progress=lambda event: None,
            )

    return run
