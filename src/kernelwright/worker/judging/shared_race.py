"""A race under the timer: everybody on the same inputs, which nobody has seen before.

For each sample the timer draws inputs, the reference computes what they give, and then every
contestant is called once, in an order drawn for this sample, on those inputs at an address drawn
for this call, while the others are stopped. Whatever comes out is compared before the next call.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.bench.timing import ContestantLostError, Rounds, TimingPlan
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case
from kernelwright.verify.distributions import Distribution
from kernelwright.verify.records import to_plain
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.judging.timed_inputs import NoTimerError, TimerInputs, read
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Replied
from kernelwright.worker.process.hanging import Patience
from kernelwright.worker.timer.records import (
    AttachReply,
    AttachRequest,
    CallReply,
    CallRequest,
    Look,
    Take,
    Watched,
    WatchRequest,
)
from kernelwright.worker.timer.timed_calls import LEAST_CALLS
from kernelwright.worker.timer.words import Word, Words

_HOST_EVERY = 4
"""One host sample for so many device samples."""
_OTHER_EVERY = 5
"""One sample of so many is on zero-mean inputs."""
_ENOUGH_WRONG = 3
"""Wrong results after which there is nothing more to learn."""

Patient = Callable[[int, float], Patience | None]
"""From calls, and seconds for what is done besides, to how long a contestant may take for them;
None for as long as any answer may take."""


@dataclass(slots=True)
class Runner:
    """A contestant on its way through the race."""

    child: ChildProcess
    words: Path
    patient: Patient = lambda calls, besides: None
    rounds: Rounds = field(default_factory=Rounds)
    turn: int = 0
    gated: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)
    """What it says of how long it prepared what."""

    def next_turn(self) -> int:
        """A number above all before."""
        self.turn += 1
        return self.turn


@dataclass(slots=True)
class Batch:
    """The samples of one round, by contestant."""

    device_ms: list[float] = field(default_factory=list)
    host_ms: list[float] = field(default_factory=list)
    outside_ms: list[float] = field(default_factory=list)
    waited_ms: list[float] = field(default_factory=list)
    other_ms: list[float] = field(default_factory=list)


class SharedRace:
    """One problem, one timer, and who is timed."""

    def __init__(
        self,
        timer: ChildProcess,
        reference: ChildProcess,
        agreement: Agreement,
        case: Case,
        seconds: float,
    ) -> None:
        """`seconds` is the longest for one answer. NoTimerError if memory cannot be shared."""
        self._timer = timer
        self._reference = reference
        self._case = case
        self._seconds = seconds
        self._random = random.SystemRandom()
        self.inputs = TimerInputs(timer, reference, agreement, case, seconds)
        self._other = Distribution.NORMAL
        self.runners: dict[str, Runner] = {}

    def begin_attaching(self, runner: Runner, warm_up_seconds: float) -> None:
        """Let a contestant warm up on the inputs at 0; ContestantLostError if it cannot begin."""
        request = AttachRequest(
            case=self._case,
            lent=self.inputs.lent,
            words=str(runner.words),
            warm_up_seconds=warm_up_seconds,
        )
        try:
            runner.child.post("attach", to_plain(request))
        except ChildStartError as error:
            raise ContestantLostError(error.message) from error

    def attach(self, name: str, runner: Runner, warm_up_seconds: float, seconds: float) -> None:
        """Wait until a contestant has warmed up, `seconds` at most; ContestantLostError if not."""
        patience = runner.patient(LEAST_CALLS, warm_up_seconds)
        reply = read(AttachReply, runner.child.wait(seconds, patience))
        runner.gated, runner.spent = reply.gated, reply.spent
        self.runners[name] = runner

    def rehearse(self) -> None:
        """Draw inputs, and compare what the reference gives with itself; nobody is timed.

        What the timer needs for it is loaded then, and not while it has the card alone.
        """
        case = Case(seed=secrets.randbelow(1 << 31), sizes=self._case.sizes)
        place = self.inputs.place()
        if not self.inputs.draw(case, place):
            return
        with suppress(ContestantLostError):  # what fails now fails in the race
            expected = self.inputs.expect(case.seed, place)
            self.inputs.objections(case, [] if expected is None else [expected], Look.BOUNDED)

    def run(self, plan: TimingPlan, on_round: Callable[[int], None]) -> dict[str, Rounds]:
        """Rounds of samples until there are enough; one that fails falls out with its reason.

        But for the reference, each is stopped except in its own calls: nobody is at work while
        inputs are drawn, the reference computes what they give, or results are compared.
        """
        stopped = [it.child for it in self.runners.values() if it.child is not self._reference]
        for child in stopped:
            child.freeze()
        try:
            return self._run(plan, on_round)
        finally:
            for child in stopped:
                child.thaw()

    def _run(self, plan: TimingPlan, on_round: Callable[[int], None]) -> dict[str, Rounds]:
        start = time.perf_counter()
        taken = 0
        while taken < plan.most_samples:
            racing = self._racing()
            if not racing:
                break
            self._round(plan.batch)
            taken += plan.batch
            on_round(taken)
            spans = [it.rounds.device_ms for it in self._racing().values()]
            if plan.enough(taken, time.perf_counter() - start, spans):
                break
        return {name: runner.rounds for name, runner in self.runners.items()}

    def _racing(self) -> dict[str, Runner]:
        return {name: it for name, it in self.runners.items() if not it.rounds.lost}

    def _round(self, count: int) -> None:
        batches = {name: Batch() for name in self._racing()}
        for number in range(count):
            self._sample(Distribution.OWN, batches, with_host=number % _HOST_EVERY == 0)
            if number % _OTHER_EVERY == 0 and self._other is not Distribution.OWN:
                self._sample(self._other, batches, with_host=False)
        for name, runner in self._racing().items():
            runner.rounds.add(
                batches[name].device_ms,
                batches[name].host_ms,
                batches[name].outside_ms,
                batches[name].other_ms,
                batches[name].waited_ms,
            )

    def _sample(
        self, distribution: Distribution, batches: Mapping[str, Batch], *, with_host: bool
    ) -> None:
        case = Case(
            seed=secrets.randbelow(1 << 31), distribution=distribution, sizes=self._case.sizes
        )
        place = self.inputs.place()
        if not self.inputs.draw(case, place) or self.inputs.expect(case.seed, place) is None:
            # The problem makes other shapes now, or does not take such inputs.
            if distribution is Distribution.OWN:
                raise NoTimerError("the problem does not give the same form of inputs twice")
            self._other = Distribution.OWN
            return
        takes = [Take.DEVICE, Take.HOST] if with_host else [Take.DEVICE]
        turns = [(name, take) for name in self._racing() for take in takes]
        self._random.shuffle(turns)
        for name, take in turns:
            runner = self.runners[name]
            if runner.rounds.lost:
                continue
            try:
                self._turn(runner, take, case, batches[name])
            except ContestantLostError as error:
                runner.rounds.lose(error)

    def _turn(self, runner: Runner, take: Take, case: Case, batch: Batch) -> None:
        reply, watched = self._timed_call(runner, take, case.seed)
        self._examine(runner, case, reply)
        runner.rounds.persisting_l2 = max(runner.rounds.persisting_l2, reply.persisting_l2)
        match take, case.distribution:
            case Take.HOST, _:
                batch.host_ms.append(watched.outside_ms)
            case Take.DEVICE, Distribution.OWN:
                batch.device_ms.append(reply.span_ms)
                batch.outside_ms.append(watched.outside_ms)
                batch.waited_ms.append(watched.waited_ms)
                runner.rounds.late += watched.late
            case Take.DEVICE, _:
                batch.other_ms.append(reply.span_ms)

    def _timed_call(self, runner: Runner, take: Take, seed: int) -> tuple[CallReply, Watched]:
        turn, place = runner.next_turn(), self.inputs.place()
        watch = WatchRequest(
            words=str(runner.words),
            process=runner.child.number(),
            turn=turn,
            take=take,
            place=place,
            seconds=self._seconds,
        )
        call = CallRequest(turn=turn, take=take, place=place, seed=seed)
        with self._alone(runner.child):
            self._timer.post("watch", to_plain(watch))
            answer = runner.child.ask("call", to_plain(call), self._seconds, runner.patient(1, 0.0))
            if not isinstance(answer, Replied):
                _release(runner.words, turn)
            seen = self._timer.wait(self._seconds)
        return read(CallReply, answer), read(Watched, seen)

    @contextmanager
    def _alone(self, child: ChildProcess) -> Iterator[None]:
        """Only this one runs for the length of the block, beside the timer."""
        if child is self._reference:
            yield
            return
        self._reference.freeze()
        child.thaw()
        try:
            yield
        finally:
            child.freeze()
            self._reference.thaw()

    def _examine(self, runner: Runner, case: Case, reply: CallReply) -> None:
        """Compare results and what lay on the stream; note what is wrong."""
        results, words = [reply.tensors], [""]
        if reply.snapshot:
            results.append(reply.snapshot)
            words.append(_NOT_ON_STREAM)
        objections, stale = self.inputs.objections(case, results, Look.BOUNDED, reply.parts)
        if any(objections):
            objections, _ = self.inputs.objections(case, results, Look.EXACT)
        if reply.parts:
            objections.append(f"{stale[0]} was not there yet" if stale else "")
            words.append(_NOT_ON_STREAM)
        for objection, what in zip(objections, words, strict=True):
            runner.rounds.checked += 1
            if objection:
                text = f"{case.distribution.value} inputs of seed {case.seed}{what}: {objection}"
                runner.rounds.wrong.append(text)
                break
        if len(runner.rounds.wrong) >= _ENOUGH_WRONG:
            raise ContestantLostError(runner.rounds.wrong[0])


_NOT_ON_STREAM = " (not ready for whoever comes next on the stream)"


def _release(path: Path, turn: int) -> None:
    """Say in the place of a child that has failed that it is done; the timer waits for that."""
    words = Words(path)
    for word in (Word.READY, Word.QUEUED, Word.DONE):
        words.set(word, turn)
