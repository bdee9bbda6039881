"""Time a verified candidate against its baselines, each in a process of its own."""

import datetime
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from kernelwright.bench.measurement import Environment, Measurement, not_measured, summarise
from kernelwright.bench.outside import Outside, Standing, corrected, look_outside
from kernelwright.bench.roofline import Floor
from kernelwright.bench.statistics import median
from kernelwright.bench.timing import ContestantLostError, Rounds, Samples, interleave
from kernelwright.bench.trust import Work, examine_times
from kernelwright.machine import Machine
from kernelwright.verify.cases import Case
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.verdict import Check, Outcome
from kernelwright.verify.verification import Event, Progress
from kernelwright.worker.answers import as_lost, trusted
from kernelwright.worker.child_process import ChildProcess
from kernelwright.worker.client import Replied
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.lease import Lease
from kernelwright.worker.options import Baseline, JudgeOptions
from kernelwright.worker.requests import CaseRequest, EnvironmentReply, Role
from kernelwright.worker.session import ChildSession
from kernelwright.worker.shared_race import NoTimerError, Patient, Runner, SharedRace
from kernelwright.worker.timed import CopyRequest, PrepareRequest, TakeRequest
from kernelwright.worker.timed_calls import LEAST_CALLS

_CANDIDATE = "candidate"
_COPY_SAMPLES = 30
_MORE_TRIES = 2
"""Times that as many samples again are taken where the machine was too busy."""
_LEAST_COPY, _MOST_COPY = 64 << 20, 4 << 30
"""Bytes of the copy that is the ceiling: a smaller one measures its launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """What a race gave."""

    measurement: Measurement
    checks: tuple[Check, ...]
    """Whether the times can be believed."""


@dataclass(frozen=True, slots=True)
class ChildContestant:
    """A child that is asked for batches, on inputs and by the clock of its own."""

    child: ChildProcess
    seconds: float
    """Longest that one batch may take."""
    patient: Patient = lambda calls, besides: None

    def take(self, count: int) -> Samples:
        """The next `count` device samples."""
        request, patience = to_plain(TakeRequest(count=count)), self.patient(2 * count, 0.0)
        answer = self.child.ask("time", request, self.seconds, patience)
        if not isinstance(answer, Replied):
            raise as_lost(answer)
        try:
            samples = from_plain(Samples, answer.body)
        except RecordError as error:
            raise ContestantLostError(f"answered nonsense: {error}") from error
        if len(samples.device_ms) != count or not samples.host_ms:
            raise ContestantLostError(f"gave {len(samples.device_ms)} samples of {count}")
        return samples


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
        return {_CANDIDATE: Role.CANDIDATE} | {
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

    def make(self, contestants: Mapping[str, Role]) -> "Lost":
        """Let all make their modules at the same time, without the card; why those failed that did.

        Those that have the card as they need it make theirs by themselves.
        """
        request = to_plain(CaseRequest(case=self.case))
        asked: dict[str, ChildProcess] = {}
        lost: Lost = {}
        for name, role in contestants.items():
            if role in _COMPILED:
                continue
            child = self.child_of(role)
            try:
                child.post("make", request)
                asked[name] = child
            except ChildStartError as error:
                lost[name] = ContestantLostError(error.message)
        began = time.monotonic()
        for name, child in sorted(asked.items(), key=lambda it: it[0] == _CANDIDATE):
            strange = child is self.session.candidate
            beside = time.monotonic() - began
            patience = self.session.patience(child, beside=beside) if strange else None
            answer = child.wait(self.seconds_to_prepare(contestants[name]), patience)
            if not isinstance(answer, Replied):
                lost[name] = as_lost(answer)
        return lost

    def preparing(self, role: Role) -> AbstractContextManager[None]:
        """Share the card, but for those that do so by themselves: their compilers take long."""
        return nullcontext() if role in _COMPILED else self.lease.shared()

    def claim(self) -> None:
        """Have the card alone from now on."""
        self.session.see_them_end()
        self.session.see_sanitized()
        self.lease.claim(lambda: self.tell("another process uses the card", 0, 1))

    def tell(self, message: str, done: int, total: int) -> None:
        """Show that something goes on."""
        self.progress(Event(stage="time", message=message, done=done, total=total))


Lost = dict[str, ContestantLostError]
"""Why contestants fell out before anybody was timed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """The rounds of those who ran, and why others did not."""

    rounds: Mapping[str, Rounds]
    lost: Mapping[str, str]
    checks: tuple[Check, ...] = ()
    written: int = 0
    """Bytes of the results of one call."""


_ROLES = {
    Baseline.EAGER: Role.REFERENCE,
    Baseline.COMPILED: Role.COMPILED,
    Baseline.COMPILED_MAX: Role.COMPILED_MAX,
}

_COMPILED = (Role.COMPILED, Role.COMPILED_MAX)


def race(
    session: ChildSession,
    options: JudgeOptions,
    *,
    case: Case,
    floor: Floor | None,
    machine: Machine,
    progress: Progress,
    lease: Lease,
) -> Race:
    """Time all contestants in turns, sum up, and say whether the candidate's time is believed.

    The card is `lease`'s alone from the first time that is taken to the last one. A baseline that
    fails is left out with its reason; ContestantLostError if the candidate cannot run.
    """
    contest = Contest(session=session, options=options, case=case, progress=progress, lease=lease)
    try:
        outcomes = _under_the_timer(contest)
    except NoTimerError as error:
        outcomes = _by_their_own_clocks(contest, str(error))
    copy_bandwidth = None if floor is None else _copy_bandwidth(session, floor, options)
    lease.drop()  # what follows is arithmetic
    environment = _environment(session, options)
    return _summed_up(outcomes, floor, machine, copy_bandwidth, environment)


def _summed_up(
    outcomes: Outcomes,
    floor: Floor | None,
    machine: Machine,
    copy_bandwidth: float | None,
    environment: Environment,
) -> Race:
    rounds = dict(outcomes.rounds)
    reference = rounds.get(Baseline.EAGER.value)
    trusted_reference = reference if reference and not reference.lost else None
    checks = outcomes.checks
    outside = _outside(rounds)
    if _CANDIDATE in rounds:
        work = Work(written=outcomes.written, floor=floor)
        own = rounds[_CANDIDATE]
        checks += tuple(examine_times(own, trusted_reference, outside, work, machine))
    if trusted_reference is None and any(rounds[_CANDIDATE].outside_ms):
        reason = f"{_NO_REFERENCE}: {reference.lost}" if reference else _NO_REFERENCE
        return Race(measurement=not_measured(reason, floor, machine), checks=checks)
    match outside:
        case Outside(standing=Standing.UNKNOWN):
            return Race(measurement=not_measured(_BUSY, floor, machine), checks=checks)
        case Outside():
            rounds[_CANDIDATE] = corrected(rounds[_CANDIDATE], outside)
    measurement = summarise(
        rounds,
        candidate=_CANDIDATE,
        lost=outcomes.lost,
        floor=floor,
        machine=machine,
        copy_bandwidth=copy_bandwidth,
        environment=environment,
    )
    return Race(measurement=measurement, checks=checks)


_NO_REFERENCE = "not measured: the reference, against which a clock is checked, fell out"
_BUSY = "not measured: the machine is too busy for a clock that nobody else has a hand in"


def _outside(rounds: Mapping[str, Rounds]) -> Outside | None:
    """What the timer's clock says of the candidate, where both it and the reference were timed."""
    own, reference = rounds.get(_CANDIDATE), rounds.get(Baseline.EAGER.value)
    if own is None or reference is None or own.lost or reference.lost:
        return None
    return look_outside(own, reference)


def _under_the_timer(contest: Contest) -> Outcomes:
    """Everybody on the timer's inputs; NoTimerError where memory cannot be shared."""
    session, options = contest.session, contest.options
    shared = _begun(contest)
    contestants = contest.contestants()
    if Role.REFERENCE not in contestants.values():
        # It computes what is expected, whether it is timed or not.
        contestants[Baseline.EAGER.value] = Role.REFERENCE
    lost = contest.make(contestants)
    _warm_up(contest, shared, contestants, lost)
    if _CANDIDATE in lost:
        raise lost[_CANDIDATE]
    if Baseline.EAGER.value in lost:
        raise NoTimerError(f"the reference could not be prepared: {lost[Baseline.EAGER.value]}")
    ungated = [name for name, runner in shared.runners.items() if not runner.gated]

    def on_round(taken: int) -> None:
        message = f"timing {', '.join(shared.runners)} in turns"
        contest.tell(message, taken, options.timing.samples)

    contest.claim()
    on_round(0)
    threads_before = session.candidate.threads()
    rounds = shared.run(options.timing, on_round)
    for _ in range(_MORE_TRIES):
        outside = _outside(rounds)
        if outside is None or outside.standing is not Standing.UNKNOWN:
            break
        rounds = shared.run(options.timing, on_round)
    threads = _threads_check(threads_before, session.candidate.threads())
    shared.rest()
    checks = (_timer_check(ungated), *threads)
    return Outcomes(rounds=rounds, lost=_told(lost), checks=checks, written=shared.written)


def _warm_up(
    contest: Contest, shared: SharedRace, contestants: Mapping[str, Role], lost: Lost
) -> None:
    """Let the baselines warm up side by side, and then the candidate; `lost` gets who fails.

    Baselines need not wait for each other. But a stranger could write to the inputs that they read,
    and so be rid of one, or of the timer: it gets them when everybody else is done.
    """
    baselines = {n: role for n, role in contestants.items() if n != _CANDIDATE and n not in lost}
    _attach(contest, shared, baselines, lost)
    if _CANDIDATE in lost or Baseline.EAGER.value in lost:
        return
    shared.refill()
    _attach(contest, shared, {_CANDIDATE: Role.CANDIDATE}, lost)
    if _CANDIDATE not in lost:
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

    compiled = [name for name, role in contestants.items() if role in _COMPILED]
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


def _begun(contest: Contest) -> SharedRace:
    """A race with the timer's inputs, and nobody in it yet."""
    session = contest.session
    try:
        session.timer.ready()  # which may take seconds, and needs no share of the card
    except ChildStartError as error:
        raise NoTimerError(error.message) from error
    with contest.lease.shared():
        try:
            return _lent(contest)
        except NoTimerError:  # others may keep what it lacks
            session.give_back()
            return _lent(contest)


def _lent(contest: Contest) -> SharedRace:
    session = contest.session
    seconds = contest.options.timeouts.run
    return SharedRace(session.timer, session.reference, session.agreement, contest.case, seconds)


def _threads_check(before: int, after: int) -> tuple[Check, ...]:
    """A word where the candidate's process has more threads after the timed calls than before."""
    if after <= before:
        return ()
    text = f"{after} threads in its process after the timed calls, {before} before"
    return (Check(name="threads", outcome=Outcome.WARNING, evidence=text),)


def _timer_check(ungated: list[str]) -> Check:
    if ungated:
        names = ", ".join(ungated)
        text = f"no gate on the device for {names}: the launches lie within the outside time"
        return Check(name=_TIMER, outcome=Outcome.WARNING, evidence=text)
    return Check(
        name=_TIMER,
        outcome=Outcome.PASSED,
        evidence="a process of its own wrote the inputs after each call was launched, opened a "
        "gate on the device, took the time and compared the results",
    )


_TIMER = "timer"
"""Name of the check of how time was taken."""


def _by_their_own_clocks(contest: Contest, reason: str) -> Outcomes:
    """Every child times itself: what is left where processes cannot share memory."""
    options = contest.options
    ready: dict[str, ChildContestant] = {}
    contestants = contest.contestants()
    lost = contest.make(contestants)
    for done, (name, role) in enumerate(contestants.items()):
        contest.tell(f"preparing {name}", done, len(contestants))
        child = contest.child_of(role)
        if name in lost:
            continue
        patient = contest.patient_with(role)
        with contest.preparing(role), losing(name, lost):
            _prepare(child, contest, contest.seconds_to_prepare(role), patient)
            ready[name] = ChildContestant(child, options.timeouts.run, patient)
    if _CANDIDATE not in ready:
        raise lost[_CANDIDATE]

    def on_round(taken: int) -> None:
        contest.tell(f"timing {', '.join(ready)} in turns", taken, options.timing.samples)

    contest.claim()
    on_round(0)
    rounds = interleave(ready, options.timing, on_round)
    text = f"no timer outside ({reason}): the candidate's process took its own time"
    check = Check(name=_TIMER, outcome=Outcome.WARNING, evidence=text)
    return Outcomes(rounds=rounds, lost=_told(lost), checks=(check,))


def _prepare(child: ChildProcess, contest: Contest, seconds: float, patient: Patient) -> None:
    """Make the child ready to time itself; ContestantLostError if that fails."""
    timing = contest.options.timing
    request = to_plain(PrepareRequest(case=contest.case, plan=timing))
    patience = patient(LEAST_CALLS, timing.warm_up_seconds)
    try:
        answer = child.ask("prepare", request, seconds, patience)
    except ChildStartError as error:
        raise ContestantLostError(error.message) from error
    if not isinstance(answer, Replied):
        raise as_lost(answer)


def _told(lost: Lost) -> dict[str, str]:
    return {name: str(error) for name, error in lost.items()}


def _copy_bandwidth(session: ChildSession, floor: Floor, options: JudgeOptions) -> float:
    """Bytes a second of a copy of the floor's size, in the trusted child."""
    size = min(max(floor.bytes, _LEAST_COPY), _MOST_COPY) // 2 * 2
    request = to_plain(CopyRequest(bytes=size, count=_COPY_SAMPLES))
    samples = trusted(Samples, session.reference.ask("copy", request, options.timeouts.run))
    return size / median([samples.device_ms]) * 1e3


def _environment(session: ChildSession, options: JudgeOptions) -> Environment:
    answer = session.reference.ask("environment", {}, options.timeouts.run)
    reply = trusted(EnvironmentReply, answer)
    now = datetime.datetime.now(datetime.UTC)
    return Environment(
        card=reply.card,
        torch=reply.torch,
        cuda=reply.cuda,
        driver=reply.driver,
        date=now.isoformat(timespec="seconds"),
    )
