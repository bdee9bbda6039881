"""Who asks the process with guard zones, and what the verdict says of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from kernelwright.emulator.findings import FindingKind
from kernelwright.toolchain.guards import Overrun
from kernelwright.verify.cases import Case
from kernelwright.verify.observation import Fault, FaultKind, KernelFinding
from kernelwright.verify.records import to_plain
from kernelwright.verify.verdict import Outcome, Status
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.judging.guarding import GuardWatch
from kernelwright.worker.process.client import Answer, Hung, Raised, Replied
from kernelwright.worker.process.hanging import patience_for
from kernelwright.worker.process.requests import CaseRequest, GuardReply
from kernelwright.worker.roles.guarded import _as_finding

FINDING = KernelFinding(kind=FindingKind.OUT_OF_BOUNDS, message="swish: write of 4 bytes")
QUIET = Replied(body=to_plain(GuardReply(findings=(), looked_at=3)))
LOUD = Replied(body=to_plain(GuardReply(findings=(FINDING,), looked_at=3)))
REFUSED = Raised(message="ValueError: no", location=None, next_step=None)
FIRST, SECOND = (CaseRequest(case=Case(seed=seed)) for seed in (0, 1))
FAULT = Fault(kind=FaultKind.REFUSED, message="ValueError: no")


class Child:
    """Has its answers ready."""

    def __init__(self, answers: Sequence[Answer], starts: Sequence[bool] = ()) -> None:
        self.asked = 0
        self._answers = iter(answers)
        self._starts = iter(starts)

    def has_started(self) -> bool:
        return next(self._starts, True)

    def ready(self) -> None:
        """It is."""

    def post(self, operation: str, body: Any) -> None:
        assert operation == "guard"
        self.asked += 1

    def wait(self, seconds: float, patience: object = None) -> Answer:
        return next(self._answers)


def watch(child: Child) -> GuardWatch:
    patience = patience_for(least=1.0, call=0.0, beside=0.0, compiles=lambda: False)
    return GuardWatch(child, lambda: patience, 1.0)  # type: ignore[arg-type]


def test_a_finding_fails_with_its_case_and_nothing_more_is_asked() -> None:
    child = Child([LOUD])
    guard = watch(child)
    for request in (FIRST, SECOND):
        guard.begin(request)
        guard.end(None)
    (check,) = guard.checks()
    assert child.asked == 1
    assert (check.outcome, check.status) == (Outcome.FAILED, Status.OUT_OF_BOUNDS)
    assert check.evidence == "out of bounds: swish: write of 4 bytes"
    assert check.case == str(FIRST.case)


def test_cases_from_before_it_was_there_are_run_at_the_end() -> None:
    child = Child([QUIET, LOUD], starts=[False])
    guard = watch(child)
    guard.begin(FIRST)
    guard.end(None)
    assert child.asked == 0
    guard.finish([SECOND])
    assert child.asked == 2
    assert guard.checks()[0].status is Status.OUT_OF_BOUNDS


@pytest.mark.parametrize(
    ("answers", "outcome", "said"),
    [
        ((QUIET, QUIET), Outcome.PASSED, "after 2 calls"),
        ((QUIET, REFUSED), Outcome.PASSED, "after 1 calls"),
        ((REFUSED, REFUSED), Outcome.SKIPPED, "ValueError: no"),
        ((QUIET, Hung(message="no answer")), Outcome.SKIPPED, "no answer"),
        ((QUIET, Replied(body={"strange": 1})), Outcome.SKIPPED, "nonsense"),
        ((), Outcome.SKIPPED, "no case was small enough"),
    ],
)
def test_what_nobody_looked_at_is_no_all_clear(
    answers: tuple[Answer, ...], outcome: Outcome, said: str
) -> None:
    guard = watch(Child(answers))
    for request, _ in zip((FIRST, SECOND), answers, strict=False):
        guard.begin(request)
        guard.end(FAULT)
    (check,) = guard.checks()
    assert check.outcome is outcome
    assert said in check.evidence


def test_a_process_that_does_not_start_is_said() -> None:
    child = Child([])

    def fail() -> None:
        raise ChildStartError("no compiler")

    child.ready = fail  # type: ignore[method-assign]
    guard = watch(child)
    guard.finish([FIRST])
    assert "no compiler" in guard.checks()[0].evidence


def test_findings_read_as_the_emulators() -> None:
    overrun = Overrun(
        side="behind", first=0, last=4, count=4, size=516, kernel="ns::swish_kernel<4>(float*)"
    )
    assert _as_finding(overrun).message == (
        "swish_kernel: write of 4 bytes at 0 bytes past the end of a tensor (516 bytes)"
    )
