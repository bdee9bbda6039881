"""Who is timed, and how they are made ready: modules, the timer's inputs, warm calls."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from kernelwright.bench.timing import ContestantLostError
from kernelwright.verify.cases import Case
from kernelwright.verify.records import to_plain
from kernelwright.verify.verification import Event, Progress
from kernelwright.worker.card.lease import Lease
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.judging.answers import as_lost
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.judging.shared_race import Patient, Runner, SharedRace
from kernelwright.worker.options import Baseline, JudgeOptions
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Replied
from kernelwright.worker.process.requests import CaseRequest, Role

CANDIDATE = "candidate"
"""Its name among the contestants."""
_ROLES = {
    Baseline.EAGER: Role.REFERENCE,
    Baseline.COMPILED: Role.COMPILED,
    Baseline.COMPILED_MAX: Role.COMPILED_MAX,
}

COMPILED = (Role.COMPILED, Role.COMPILED_MAX)

Lost = dict[str, ContestantLostError]
"""Why contestants fell out before anybody was timed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Who takes part, and how."""

    session: ChildSession
    options: JudgeOptions
    case: Case
    progress: Progress
    lease: Lease

    def contestants(self) -> dict[str, Role]:
        """The candidate and the baselines that were asked for."""
        return {CANDIDATE: Role.CANDIDATE} | {
            baseline.value: _ROLES[baseline] for baseline in self.options.baselines
        }

    def child_of(self, role: Role) -> ChildProcess:
        """The process of a contestant."""
        match role:
            case Role.CANDIDATE:
                return self.session.candidate
            case Role.REFERENCE:
                return self.session.reference
        return self.session.child(role)

    def patient_with(self, role: Role) -> Patient:
        """How long to wait for a contestant's calls: a stranger's may hang."""
        if role is Role.CANDIDATE:
            return self.session.patience_with_calls
        return lambda calls, besides: None

    def seconds_to_prepare(self, role: Role) -> float:
        """The longest that a contestant may take to make its module and to warm up.

        A candidate that says that it compiles is believed for as long as in a case.
        """
        timeouts = self.options.timeouts
        return timeouts.run if role is Role.CANDIDATE else timeouts.compile

    def make(self, contestants: Mapping[str, Role]) -> Lost:
        """Let all make their modules at the same time, without the card; why those failed that did.

        Those that have the card as they need it make theirs by themselves.
        """
        request = to_plain(CaseRequest(case=self.case))
        asked: dict[str, ChildProcess] = {}
        lost: Lost = {}
        for name, role in contestants.items():
            if role in COMPILED:
                continue
            child = self.child_of(role)
            try:
                child.post("make", request)
                asked[name] = child
            except ChildStartError as error:
                lost[name] = ContestantLostError(error.message)
        began = time.monotonic()
        for name, child in sorted(asked.items(), key=lambda it: it[0] == CANDIDATE):
            strange = child is self.session.candidate
            beside = time.monotonic() - began
            patience = self.session.patience(child, beside=beside) if strange else None
            answer = child.wait(self.seconds_to_prepare(contestants[name]), patience)
            if not isinstance(answer, Replied):
                lost[name] = as_lost(answer)
        return lost

    def preparing(self, role: Role) -> AbstractContextManager[None]:
        """Share the card, but for those that do so by themselves: their compilers take long."""
        return nullcontext() if role in COMPILED else self.lease.shared()

    def claim(self) -> None:
        """Have the card alone from now on."""
        self.session.see_them_end()
        self.session.see_sanitized()
        self.lease.claim(lambda: self.tell("another process uses the card", 0, 1))

    def tell(self, message: str, done: int, total: int) -> None:
        """Show that something goes on."""
        self.progress(Event(stage="time", message=message, done=done, total=total))


def warm_up(
    contest: Contest, shared: SharedRace, contestants: Mapping[str, Role], lost: Lost
) -> None:
    """Let the baselines warm up side by side, and then the candidate; `lost` gets who fails.

    Baselines need not wait for each other. But a stranger could write to the inputs that they read,
    and so be rid of one, or of the timer: it gets them when everybody else is done.
    """
    baselines = {n: role for n, role in contestants.items() if n != CANDIDATE and n not in lost}
    _attach(contest, shared, baselines, lost)
    if CANDIDATE in lost or Baseline.EAGER.value in lost:
        return
    shared.inputs.refill()
    _attach(contest, shared, {CANDIDATE: Role.CANDIDATE}, lost)
    if CANDIDATE not in lost:
        with contest.lease.shared():
            shared.rehearse()


def _attach(
    contest: Contest, shared: SharedRace, contestants: Mapping[str, Role], lost: Lost
) -> None:
    """Give these the inputs, all at the same time, and wait until they have warmed up.

    Those that share the card by themselves begin first, if they do not compile still, and are
    waited for last, without a share: they may wait for somebody who waits for ours.
    """
    session, timing = contest.session, contest.options.timing
    contest.tell(f"preparing {', '.join(contestants)}", 0, 1)
    runners = {
        name: Runner(
            child=contest.child_of(role),
            words=session.words(role),
            patient=contest.patient_with(role),
        )
        for name, role in contestants.items()
    }

    def begin(names: list[str]) -> list[str]:
        for name in names:
            with losing(name, lost):
                shared.begin_attaching(runners[name], timing.warm_up_seconds)
        return [name for name in names if name not in lost]

    def end(names: list[str]) -> None:
        for name in names:
            seconds = contest.seconds_to_prepare(contestants[name])
            with losing(name, lost):
                shared.attach(name, runners[name], timing.warm_up_seconds, seconds)

    compiled = [name for name, role in contestants.items() if role in COMPILED]
    free = begin([name for name in compiled if not runners[name].child.is_busy()])
    if others := [name for name in contestants if name not in compiled]:
        with contest.lease.shared():
            end(begin(others))
    end([*free, *begin([name for name in compiled if name not in free and name not in lost])])
    for name in compiled:
        session.ledger.include(f"{contestants[name].value}: attach", runners[name].spent)


@contextmanager
def losing(name: str, lost: Lost) -> Iterator[None]:
    """What the block loses is in `lost`."""
    try:
        yield
    except ContestantLostError as error:
        lost[name] = error
