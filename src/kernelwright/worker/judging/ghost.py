"""Ghost replay: the candidate once more with its own kernels silent, and a list of what ran.

A kernel on which nothing depends is a decoy. The silent runs come first, in a process where the
kernels have not run: there is no memory with their results in it.
"""

from dataclasses import dataclass

from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.observation import Fault
from kernelwright.verify.ran import Ran
from kernelwright.verify.ran_checks import check_decoys, check_what_ran
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.tolerance import Tolerance, rule
from kernelwright.verify.verdict import Check
from kernelwright.worker.judging.answers import candidate_run
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Replied
from kernelwright.worker.process.requests import CaseRequest, LaunchesReply

_NO_ANSWER = "the process in which kernels are watched gave no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was found out about a candidate that gives right values."""

    checks: tuple[Check, ...]
    ran: Ran


def gather(
    session: ChildSession,
    child: ChildProcess,
    sizes: Sizes,
    silent_sizes: Sizes,
    tolerance: Tolerance,
    source: str,
    seconds: float,
) -> Gathered:
    """Silence the kernels of `child`, at `silent_sizes`, then list what one call at `sizes` runs.

    `source` is the candidate's text, `seconds` the longest that one answer may take.
    """
    cases = (
        Case(sizes=silent_sizes),
        Case(seed=1, sizes=silent_sizes),
        Case(distribution=Distribution.NORMAL, sizes=silent_sizes),
    )
    decoys = _look_for_decoys(session, child, cases, tolerance, seconds)
    ran = _trace(session, child, Case(sizes=sizes), seconds)
    return Gathered(checks=(check_what_ran(ran, source), decoys), ran=ran)


def _look_for_decoys(
    session: ChildSession,
    child: ChildProcess,
    cases: tuple[Case, ...],
    tolerance: Tolerance,
    seconds: float,
) -> Check:
    if _switch(session, child, "silence", seconds) is None:
        return check_decoys({}, (), (), doubt=_NO_ANSWER)
    survivors = []
    for case in cases:
        if not _is_right(session, child, case, tolerance, seconds):
            break  # one case on which they matter is enough
        survivors.append(str(case))
    silenced = _switch(session, child, "unsilence", seconds)
    if silenced is None:
        # It ended for want of what its kernels should have computed: they matter.
        return check_decoys({"its own": 1}, (), [str(case) for case in cases])
    return check_decoys(silenced, survivors, [str(case) for case in cases])


def _switch(
    session: ChildSession, child: ChildProcess, operation: str, seconds: float
) -> dict[str, int] | None:
    """Launches of own kernels up to now; None if the child cannot be asked."""
    answer = child.ask(operation, {}, seconds, session.patience(child))
    if not isinstance(answer, Replied):
        return None
    try:
        return dict(from_plain(LaunchesReply, answer.body).counts)
    except RecordError:
        return None


def _is_right(
    session: ChildSession, child: ChildProcess, case: Case, tolerance: Tolerance, seconds: float
) -> bool:
    """Whether the child, as it is, gives what the reference gives."""
    reference, answer = session.call(case, child)
    expected, found = reference, candidate_run(answer)
    if isinstance(found.facts, Fault) or not isinstance(expected, Replied):
        return False
    compared = session.compare(case, found.files, child)
    return len(compared) == len(found.files) > 0 and all(
        rule(metrics, tolerance).accepted for metrics in compared
    )


def _trace(session: ChildSession, child: ChildProcess, case: Case, seconds: float) -> Ran:
    request = to_plain(CaseRequest(case=case))
    answer = child.ask("make", request, seconds, session.patience(child))
    if isinstance(answer, Replied):
        with session.using_card():
            answer = child.ask("trace", request, seconds, session.patience(child))
    if not isinstance(answer, Replied):
        return Ran(kernels=(), note=answer.message)
    try:
        return from_plain(Ran, answer.body)
    except RecordError as error:
        return Ran(kernels=(), note=f"the candidate process answered nonsense: {error}")
