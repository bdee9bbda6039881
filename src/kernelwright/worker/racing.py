"""Time a verified candidate against its baselines, each in a process of its own."""

import datetime
from dataclasses import dataclass

from kernelwright.bench.measurement import Environment, Measurement, summarise
from kernelwright.bench.roofline import Floor
from kernelwright.bench.statistics import median
from kernelwright.bench.timing import ContestantLostError, Samples, interleave
from kernelwright.machine import Machine
from kernelwright.verify.cases import Case
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.verification import Event, Progress
from kernelwright.worker.child_process import ChildProcess
from kernelwright.worker.client import Replied
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.options import Baseline, JudgeOptions
from kernelwright.worker.requests import EnvironmentReply, Role
from kernelwright.worker.session import ChildSession, trusted
from kernelwright.worker.timed import CopyRequest, PrepareRequest, TakeRequest

_CANDIDATE = "candidate"
_COPY_SAMPLES = 30
_LEAST_COPY, _MOST_COPY = 64 << 20, 4 << 30
"""Bytes of the copy that is the ceiling: a smaller one measures its launch."""


@dataclass(frozen=True, slots=True)
class ChildContestant:
    """A child that is asked for batches."""

    child: ChildProcess
    seconds: float
    """Longest that one batch may take."""

    def take(self, count: int) -> Samples:
        """The next `count` device samples."""
        answer = self.child.ask("time", to_plain(TakeRequest(count=count)), self.seconds)
        if not isinstance(answer, Replied):
            raise ContestantLostError(answer.message)
        try:
            samples = from_plain(Samples, answer.body)
        except RecordError as error:
            raise ContestantLostError(f"answered nonsense: {error}") from error
        if len(samples.device_ms) != count or not samples.host_ms:
            raise ContestantLostError(f"gave {len(samples.device_ms)} samples of {count}")
        return samples


def race(
    session: ChildSession,
    options: JudgeOptions,
    *,
    case: Case,
    floor: Floor | None,
    machine: Machine,
    progress: Progress,
) -> Measurement:
    """Prepare all contestants, time them in turns, and sum up.

    The caller holds the card alone. A baseline that fails is left out with its reason.
    """
    contestants = {_CANDIDATE: session.candidate}
    contestants |= {baseline.value: _child_of(session, baseline) for baseline in options.baselines}
    ready: dict[str, ChildContestant] = {}
    lost: dict[str, str] = {}
    for done, (name, child) in enumerate(contestants.items()):
        progress(
            Event(stage="time", message=f"preparing {name}", done=done, total=len(contestants))
        )
        failure = _prepare(child, case, options)
        if failure:
            lost[name] = failure
        else:
            ready[name] = ChildContestant(child, options.timeouts.run)

    def on_round(taken: int) -> None:
        message = f"timing {', '.join(ready)} in turns"
        progress(Event(stage="time", message=message, done=taken, total=options.timing.samples))

    if _CANDIDATE not in ready:
        raise ContestantLostError(lost[_CANDIDATE])
    rounds = interleave(ready, options.timing, on_round)
    return summarise(
        rounds,
        candidate=_CANDIDATE,
        lost=lost,
        floor=floor,
        machine=machine,
        copy_bandwidth=None if floor is None else _copy_bandwidth(session, floor, options),
        environment=_environment(session, options),
    )


def _prepare(child: ChildProcess, case: Case, options: JudgeOptions) -> str:
    """Make the child ready to be timed; why that failed, or nothing."""
    request = to_plain(PrepareRequest(case=case, plan=options.timing))
    try:
        answer = child.ask("prepare", request, options.timeouts.compile)
    except ChildStartError as error:
        return error.message
    return "" if isinstance(answer, Replied) else answer.message


def _child_of(session: ChildSession, baseline: Baseline) -> ChildProcess:
    match baseline:
        case Baseline.EAGER:
            return session.reference
        case Baseline.COMPILED:
            return session.child(Role.COMPILED)
        case Baseline.COMPILED_MAX:
            return session.child(Role.COMPILED_MAX)


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
