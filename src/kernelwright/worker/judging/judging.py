"""Judge a candidate from beginning to end: verify it, and if it is right, time it."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from kernelwright.bench.measurement import NO_GPU, Measurement, not_measured
from kernelwright.bench.roofline import Floor
from kernelwright.bench.timing import ContestantLostError
from kernelwright.bench.trust import lost_check
from kernelwright.machine import Machine, modelled_machine
from kernelwright.problem import Problem
from kernelwright.toolchain.records import Target
from kernelwright.verify.cases import (
    Case,
    Demands,
    Sizes,
)
from kernelwright.verify.observation import Observation, RunFacts
from kernelwright.verify.static.reading import read_candidate
from kernelwright.verify.verdict import VALUES, Check, Outcome, Status, Verdict, conclude
from kernelwright.verify.verification import (
    Brief,
    BuildFacts,
    Event,
    Progress,
    Session,
    leniency,
    verify,
)
from kernelwright.worker.card.lease import open_lease
from kernelwright.worker.card.seats import Seats, open_seats
from kernelwright.worker.errors import CandidateFileError
from kernelwright.worker.judging.briefing import plan
from kernelwright.worker.judging.children import watches
from kernelwright.worker.judging.ghost import gather
from kernelwright.worker.judging.racing import race
from kernelwright.worker.judging.session import ChildSession
from kernelwright.worker.options import Haste, JudgeOptions, Speed
from kernelwright.worker.process.tensors import make_exchange_folder


def default_target() -> Target:
    """The GPU if PyTorch sees one, otherwise the emulator."""
    return Target.CUDA if torch.cuda.is_available() else Target.CPU


def judge(
    problem: Problem,
    candidate_path: Path,
    *,
    target: Target | None,
    floor: Floor | None,
    options: JudgeOptions,
    progress: Progress,
) -> tuple[Verdict, Measurement]:
    """Verify the candidate against the problem, then time it.

    `target` None is the GPU where there is one, else the emulator. `floor` is the least work of
    the problem, for the shares of the ceilings. Children end with the call, also on Ctrl-C. Raises
    CandidateFileError, or ReferenceFailedError if the problem itself does not run.
    """
    return judge_while(
        lambda: (floor, options.demands),
        problem,
        candidate_path,
        target=target,
        options=options,
        progress=progress,
    )


Learn = Callable[[], tuple[Floor | None, Demands]]
"""Finds out the floor of a problem, and what is to be demanded of its candidates."""


def judge_while(
    learn: Learn,
    problem: Problem,
    candidate_path: Path,
    *,
    target: Target | None,
    options: JudgeOptions,
    progress: Progress,
) -> tuple[Verdict, Measurement]:
    """As `judge`, where `learn` finds out the floor and the demands while others are at work."""
    with judged(
        learn, problem, candidate_path, target=target, options=options, progress=progress
    ) as found:
        return found


@contextmanager
def judged(
    learn: Learn,
    problem: Problem,
    candidate_path: Path,
    *,
    target: Target | None,
    options: JudgeOptions,
    progress: Progress,
) -> Iterator[tuple[Verdict, Measurement]]:
    """As `judge_while`, for a block that has what was found while processes still have to end."""
    checks = _read(problem, candidate_path)
    chosen = target or default_target()
    if _refuses(checks):
        floor, _ = learn()
        yield _refused(checks, chosen, floor, modelled_machine())
        return
    with (
        ThreadPoolExecutor(max_workers=1) as learning,
        judgement(problem, target=chosen, options=options, candidate_path=candidate_path) as begun,
    ):
        learned = learning.submit(_giving_way, learn)
        yield begun.judge_read(candidate_path, checks, learned=learned.result, progress=progress)


def _giving_way(learn: Learn) -> tuple[Floor | None, Demands]:
    """What `learn` gives; whoever waits for children has the interpreter as soon as one speaks."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        return learn()
    finally:
        sys.setswitchinterval(usual)


_TURN = 2e-4
"""Seconds that a thread keeps the interpreter for which another one waits."""


class Judgement:
    """Processes that know a problem and wait for a candidate."""

    def __init__(
        self, session: ChildSession, target: Target, options: JudgeOptions, beside: Executor
    ) -> None:
        """`beside` has a thread that ends after the session's processes do."""
        self._session = session
        self._target = target
        self._options = options
        self._beside = beside
        self._hastened: list[Future[None]] = []
        self._admitted: Path | None = None

    def machine(self) -> Machine:
        """The card that it is judged on."""
        return self._session.machine()

    def admit(self, candidate_path: Path) -> None:
        """Start the process of a candidate whose text may still change."""
        self._session.admit(candidate_path)
        self._admitted = candidate_path

    def begin(self, candidate_path: Path) -> None:
        """Start on a file that is there, as far as that can be done without waiting."""
        if self._target is not Target.CUDA or self._options.haste is not Haste.AT_ONCE:
            return
        self._session.compile_unasked()
        self.admit(candidate_path)
        self._hastened = [
            self._submit(self._begin_build),
            self._submit(self._session.launch_who_waits_for_nothing),
        ]
        self._session.launch_watched_by(self._submit)

    def _submit(self, work: Callable[[], None]) -> Future[None]:
        """Let a thread beside do it, which starts processes where this one does."""
        return self._beside.submit(copy_context().run, work)

    def _begin_build(self) -> None:
        self._session.look_for_sizes()
        self._session.begin_build()

    def hasten(self, size: int) -> None:
        """Let all do what needs no finished candidate, while nobody else needs the cores.

        `size`: bytes of the arguments and results of one call. What fails, `judge` raises.
        """
        if self._target is Target.CUDA and self._options.haste is Haste.AT_ONCE:
            self._hastened = [self._submit(partial(self._hasten, size))]

    def _hasten(self, size: int) -> None:
        self._session.launch_the_rest()
        self._session.look_for_sizes()
        free, _ = torch.cuda.mem_get_info(self._options.device_index)
        self._session.compiling.begin(size, free // _CALLS_AT_A_TIME)

    def wait(self) -> None:
        """Until nobody is in a hurry any more.

        What none of them has waited for is the start of those that are needed later.
        """
        ledger = self._session.ledger
        accounted, since = ledger.total, time.monotonic()
        for done in self._hastened:
            done.result()
        rest = time.monotonic() - since - (ledger.total - accounted)
        ledger.add(_LAUNCHING, max(0.0, rest))

    def judge(
        self, candidate_path: Path, *, floor: Floor | None, demands: Demands, progress: Progress
    ) -> tuple[Verdict, Measurement]:
        """As the function, with `demands` in place of those of the options."""
        checks = _read(self._session.problem, candidate_path)
        if _refuses(checks):
            return _refused(checks, self._target, floor, self.machine())
        return self.judge_read(
            candidate_path, checks, learned=lambda: (floor, demands), progress=progress
        )

    def judge_read(
        self,
        candidate_path: Path,
        checks: tuple[Check, ...],
        *,
        learned: Learn,
        progress: Progress,
    ) -> tuple[Verdict, Measurement]:
        """Judge a file whose text has been read, with `checks` that refuse nothing.

        `learned` is asked when nothing more can be done without it: of a file that is right, the
        demands are part of the verdict's words, and the floor of the measurement's.
        """
        session, options = self._session, self._options

        def known() -> tuple[Floor | None, Demands]:
            with session.ledger.spending(_LEARNING):
                return learned()

        self.wait()
        if self._admitted != candidate_path:
            self.admit(candidate_path)
        session.look_for_sizes()
        if self._target is Target.CUDA:  # of the file's own sizes, whichever others there are
            session.begin_build()
        if options.haste is Haste.AT_ONCE:
            session.launch_the_rest()
        brief = plan(session, self._target, options, checks)
        brief = replace(brief, settled=lambda: known()[1])
        verdict, measurement = _judged(
            session, self._target, brief, lambda: known()[0], options, progress
        )
        verdict = replace(verdict, checks=(*verdict.checks, *leniency(known()[1])))
        return replace(verdict, spent=session.ledger.entries()), measurement


_BESIDE = 3
"""Threads that start processes, and ask those that have started, while others find out more."""
_CALLS_AT_A_TIME = 8
"""Whose arguments and results a card has room for, if one more call is to be made beside others."""


_LEARNING = "the problem's plan"
_BEGINNING = "launching the first"
_LAUNCHING = "launching the others"
"""Words of the ledger."""


@contextmanager
def judgement(
    problem: Problem,
    *,
    target: Target,
    options: JudgeOptions,
    candidate_path: Path | None = None,
) -> Iterator[Judgement]:
    """Begin with a problem whose candidate may still have to be made; processes end with the block.

    A process takes a second to have a card: here it does so while there is nothing to judge.
    """
    since = time.monotonic()
    folder = make_exchange_folder()
    try:
        with (
            ThreadPoolExecutor(max_workers=_BESIDE) as beside,
            ChildSession(problem, target, options, folder) as session,
        ):
            begun = Judgement(session, target, options, beside)
            if candidate_path is not None:
                begun.begin(candidate_path)
            elif options.haste is Haste.AT_ONCE:
                session.launch_who_times()
            session.ledger.add(_BEGINNING, time.monotonic() - since)
            try:
                yield begun
            finally:
                with suppress(Exception):  # it was raised where somebody asked
                    begun.wait()
                with suppress(Exception):
                    session.see_watched_launched()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(problem: Problem, candidate_path: Path) -> tuple[Check, ...]:
    """What the candidate's text says; CandidateFileError if there is none."""
    if not candidate_path.is_file():
        raise CandidateFileError(f"{candidate_path} does not exist", location=str(candidate_path))
    return read_candidate(candidate_path, problem.source)


def _refuses(checks: tuple[Check, ...]) -> bool:
    return any(check.outcome is Outcome.FAILED for check in checks)


def _refused(
    checks: tuple[Check, ...], target: Target, floor: Floor | None, machine: Machine
) -> tuple[Verdict, Measurement]:
    verdict = conclude(checks, target=target.value, sizes={}, build_seconds=0.0)
    return verdict, not_measured(f"not measured: {verdict.status.value}", floor, machine)


def _judged(
    session: ChildSession,
    target: Target,
    brief: Brief,
    floor: Callable[[], Floor | None],
    options: JudgeOptions,
    progress: Progress,
) -> tuple[Verdict, Measurement]:
    machine = session.machine()  # while the reference's process is sure to be there
    match target:
        case Target.CPU:
            verdict = _verify(session, brief, options, progress)
            return verdict, not_measured(NO_GPU, floor(), machine)
        case Target.CUDA:
            return _verify_and_race(session, brief, floor, machine, options, progress)


@dataclass(frozen=True, slots=True)
class Sharing:
    """A session that has its share of the card's memory while it needs it."""

    session: Session
    seats: Seats
    reduced: Sizes
    """Those at which most is asked of a problem of gigabytes; empty for any other."""

    def build(self) -> BuildFacts:
        """One module needs no share."""
        return self.session.build()

    def run(self, case: Case) -> Observation:
        """With all of it, but for cases at the reduced sizes of a large problem.

        The first of these gives the memory of those before back to the card.
        """
        if not self.reduced or not case.sizes:
            self.seats.take()
        observation = self.session.run(case)
        went_on = isinstance(observation.candidate, RunFacts)
        if self.reduced and case.sizes == self.reduced and went_on:
            self.seats.halve()
        return observation

    def probe(self, case: Case) -> tuple[str, ...] | None:
        """As small as the case before it."""
        return self.session.probe(case)


def _verify(
    session: ChildSession,
    brief: Brief,
    options: JudgeOptions,
    progress: Progress,
    seats: Seats | None = None,
) -> Verdict:
    """The verdict of all cases and, where they hold, of what the candidate's kernels do."""
    asked = session if seats is None else Sharing(session, seats, brief.reduced)
    verdict = verify(asked, brief, progress)
    verdict = replace(verdict, checks=(*verdict.checks, session.isolation()))
    if verdict.status not in _NOT_RUN:
        progress(Event(stage="verify", message="bytes outside of tensors", done=0, total=1))
        verdict = _explained(verdict, session.guarded())
        if not _is_timed(verdict, options, seats):
            verdict = _explained(verdict, session.sanitized())
    if not verdict.status.verified or not watches(options):
        return verdict
    progress(Event(stage="verify", message="silencing its own kernels", done=0, total=1))
    sizes = tuple(sorted(brief.sizes.items()))
    with session.witness() as child:
        child.ready()
        found = gather(
            session,
            child,
            sizes,
            _silent_sizes(verdict, brief),
            brief.tolerance,
            session.source(),
            options.timeouts.run,
        )
    return replace(_with_checks(verdict, found.checks), ran=found.ran)


def _is_timed(verdict: Verdict, options: JudgeOptions, seats: Seats | None) -> bool:
    """Whether a race follows, before which compute-sanitizer has to be done, and no earlier."""
    return verdict.status.verified and options.speed is Speed.MEASURED and seats is not None


def _silent_sizes(verdict: Verdict, brief: Brief) -> Sizes:
    """The reduced sizes of a large problem, where the candidate took them."""
    reduced = Case(sizes=brief.reduced)
    took = any(check.name == VALUES and check.case == str(reduced) for check in verdict.checks)
    return reduced.sizes if took else tuple(sorted(brief.sizes.items()))


_NOT_RUN = (Status.BUILD_FAILED, Status.UNSUPPORTED, Status.CHEATING)
"""Verdicts that no look inside kernels would explain."""


def _explained(verdict: Verdict, sanitized: tuple[Check, ...]) -> Verdict:
    """The verdict with the sanitizers' findings first: a race makes wrong values, never they it."""
    findings = tuple(check for check in sanitized if check.outcome is Outcome.FAILED)
    others = tuple(check for check in sanitized if check.outcome is not Outcome.FAILED)
    return _with_checks(replace(verdict, checks=(*findings, *verdict.checks)), others)


def _with_checks(verdict: Verdict, checks: tuple[Check, ...]) -> Verdict:
    """The verdict when these were looked at as well."""
    concluded = conclude(
        (*verdict.checks, *checks),
        target=verdict.target,
        sizes=verdict.sizes,
        build_seconds=verdict.build_seconds,
    )
    return replace(concluded, ran=verdict.ran)


def _verify_and_race(
    session: ChildSession,
    brief: Brief,
    floor: Callable[[], Floor | None],
    machine: Machine,
    options: JudgeOptions,
    progress: Progress,
) -> tuple[Verdict, Measurement]:
    def untimed(note: str) -> Measurement:
        return not_measured(note, floor(), machine)

    ledger, card, count = session.ledger, options.device_index, session.footprint.seats
    with open_lease(card, ledger) as lease, open_seats(card, count, ledger) as seats:
        session.using_card = lease.shared
        verdict = _verify(session, brief, options, progress, seats)
        if not verdict.status.verified:
            return verdict, untimed(f"not measured: {verdict.status.value}")
        if options.speed is Speed.SKIPPED:
            return verdict, untimed("not measured: not asked for")
        if not seats.has_all:
            session.compiling.finish()
            seats.take()
        try:
            raced = race(
                session,
                options,
                case=Case(),
                floor=floor,
                machine=machine,
                progress=progress,
                lease=lease,
            )
        except ContestantLostError as error:
            verdict = _with_checks(verdict, (lost_check(str(error), error.status),))
            return verdict, untimed(f"not measured: {error}")
    verdict = _explained(_with_checks(verdict, raced.checks), session.sanitized())
    measurement = raced.measurement
    if not verdict.status.verified:
        return verdict, untimed(f"not believed: {verdict.status.value}")
    if not measurement.speedups:
        return verdict, measurement
    untimed_status = verdict.status
    status = (
        untimed_status.when_faster() if measurement.faster else untimed_status.when_not_faster()
    )
    return replace(verdict, status=status), measurement
