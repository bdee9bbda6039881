"""Time a verified candidate against its baselines, each in a process of its own."""

import datetime
from collections.abc import Callable, Mapping
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
from kernelwright.verify.verification import Progress
from kernelwright.worker.card.lease import Lease
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.judging.answers import as_lost, trusted
from kernelwright.worker.judging.contest import CANDIDATE, Contest, Lost, losing, warm_up
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.judging.shared_race import Patient, SharedRace
from kernelwright.worker.judging.timed_inputs import NoTimerError
from kernelwright.worker.options import Baseline, JudgeOptions
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Replied
from kernelwright.worker.process.requests import EnvironmentReply, Role
from kernelwright.worker.roles.timed import CopyRequest, PrepareRequest, TakeRequest
from kernelwright.worker.timer.timed_calls import LEAST_CALLS

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
class Outcomes:
    """The rounds of those who ran, and why others did not."""

    rounds: Mapping[str, Rounds]
    lost: Mapping[str, str]
    checks: tuple[Check, ...] = ()
    written: int = 0
    """Bytes of the results of one call."""


def race(
    session: ChildSession,
    options: JudgeOptions,
    *,
    case: Case,
    floor: Callable[[], Floor | None],
    machine: Machine,
    progress: Progress,
    lease: Lease,
) -> Race:
    """Time all contestants in turns, sum up, and say whether the candidate's time is believed.

    The card is `lease`'s alone from the first time that is taken to the last one. `floor` is asked
    once everybody has been timed: whoever finds it out has that long. A baseline that
    fails is left out with its reason; ContestantLostError if the candidate cannot run.
    """
    contest = Contest(session=session, options=options, case=case, progress=progress, lease=lease)
    try:
        outcomes = _under_the_timer(contest)
    except NoTimerError as error:
        outcomes = _by_their_own_clocks(contest, str(error))
    least = floor()
    copy_bandwidth = None if least is None else _copy_bandwidth(session, least, options)
    lease.drop()  # what follows is arithmetic
    environment = _environment(session, options)
    return _summed_up(outcomes, least, machine, copy_bandwidth, environment)


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
    if CANDIDATE in rounds:
        work = Work(written=outcomes.written, floor=floor)
        own = rounds[CANDIDATE]
        checks += tuple(examine_times(own, trusted_reference, outside, work, machine))
    if trusted_reference is None and any(rounds[CANDIDATE].outside_ms):
        reason = f"{_NO_REFERENCE}: {reference.lost}" if reference else _NO_REFERENCE
        return Race(measurement=not_measured(reason, floor, machine), checks=checks)
    match outside:
        case Outside(standing=Standing.UNKNOWN):
            return Race(measurement=not_measured(_BUSY, floor, machine), checks=checks)
        case Outside():
            rounds[CANDIDATE] = corrected(rounds[CANDIDATE], outside)
    measurement = summarise(
        rounds,
        candidate=CANDIDATE,
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
    own, reference = rounds.get(CANDIDATE), rounds.get(Baseline.EAGER.value)
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
    warm_up(contest, shared, contestants, lost)
    if CANDIDATE in lost:
        raise lost[CANDIDATE]
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
    shared.inputs.rest()
    checks = (_timer_check(ungated), *threads)
    return Outcomes(rounds=rounds, lost=_told(lost), checks=checks, written=shared.inputs.written)


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
    if CANDIDATE not in ready:
        raise lost[CANDIDATE]

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
