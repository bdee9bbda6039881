"""The timer's inputs, what the reference gives for them, and the results of others against it."""

import random
from collections.abc import Sequence
from typing import TypeVar

from kernelwright.bench.timing import ContestantLostError
from kernelwright.verify.agreement import Agreement
from kernelwright.verify.cases import Case
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.worker.errors import ChildStartError
from kernelwright.worker.judging.answers import as_lost
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Answer, Raised, Replied
from kernelwright.worker.timer.memory import size_of
from kernelwright.worker.timer.records import (
    CallReply,
    CallRequest,
    CheckReply,
    CheckRequest,
    DrawRequest,
    ExpectRequest,
    FillRequest,
    LendRequest,
    Lent,
    Look,
    Part,
    SharedTensor,
    Take,
)

_PLACE = 512
"""Bytes: inputs begin at a multiple of this."""

Record = TypeVar("Record")


class NoTimerError(Exception):
    """Memory cannot be shared here; the message says why."""


class TimerInputs:
    """Inputs that the timer draws for one problem, and what they have to give."""

    def __init__(
        self,
        timer: ChildProcess,
        reference: ChildProcess,
        agreement: Agreement,
        case: Case,
        seconds: float,
    ) -> None:
        """`seconds` is the longest for one answer. NoTimerError if memory cannot be lent."""
        self._timer = timer
        self._reference = reference
        self._agreement = agreement
        self._seconds = seconds
        self._random = random.SystemRandom()
        self._tensors = 0
        self.lent = self._lend(case)
        self.written = 0
        """Bytes of the results of one call."""

    def place(self) -> int:
        """An address for inputs, in bytes from the beginning of their memory."""
        return self._random.randrange(0, self.lent.room // _PLACE) * _PLACE

    def refill(self) -> None:
        """Write the inputs at 0 once more, as they lie there from the beginning."""
        self._told(self._timer, "fill", FillRequest(place=0))

    def draw(self, case: Case, place: int) -> bool:
        """Draw inputs and write them there; whether they have the form of the first."""
        drawn = self._told(self._timer, "draw", DrawRequest(case=case, place=place))
        return drawn == {"same": True}

    def expect(self, seed: int, place: int) -> tuple[SharedTensor, ...] | None:
        """What the inputs at `place` give, by the reference; None if it refuses them."""
        request = CallRequest(turn=0, take=Take.HOST, place=place, seed=seed)
        answer = self._reference.ask("expect", to_plain(request), self._seconds)
        if isinstance(answer, Raised):
            return None
        tensors = read(CallReply, answer).tensors
        self._told(self._timer, "expect", ExpectRequest(tensors=tensors))
        self.written = sum(size_of(it) for it in tensors)
        self._tensors = len(tensors)
        return tensors

    def objections(
        self,
        case: Case,
        results: Sequence[tuple[SharedTensor, ...]],
        look: Look,
        parts: tuple[Part, ...] = (),
    ) -> tuple[list[str], tuple[str, ...]]:
        """For each of the results why it is wrong, or nothing; and which came too late."""
        request = CheckRequest(results=tuple(results), look=look, parts=parts)
        reply = read(CheckReply, self._timer.ask("check", to_plain(request), self._seconds))
        found = []
        for comparison in reply.comparisons:
            objections = [self._agreement.objection(case.distribution, it) for it in comparison]
            if len(comparison) != self._tensors:
                objections.append("it has another form than the reference's")
            found.append(next(filter(None, objections), ""))
        return found, reply.stale

    def rest(self) -> None:
        """Let the timer give memory back: nobody is timed any more.

        It ends later, with the others: a process that has a card takes a while to end.
        """
        self._timer.ask("rest", {}, self._seconds)

    def _lend(self, case: Case) -> Lent:
        try:
            answer = self._timer.ask("lend", to_plain(LendRequest(case=case)), self._seconds)
        except ChildStartError as error:
            raise NoTimerError(error.message) from error
        if not isinstance(answer, Replied):
            raise NoTimerError(answer.message)
        return from_plain(Lent, answer.body)

    def _told(self, child: ChildProcess, operation: str, request: object) -> object:
        answer = child.ask(operation, to_plain(request), self._seconds)
        if not isinstance(answer, Replied):
            raise NoTimerError(answer.message)
        return answer.body


def read(record: type[Record], answer: Answer) -> Record:
    """The record in a contestant's answer; ContestantLostError if there is none."""
    if not isinstance(answer, Replied):
        raise as_lost(answer)
    try:
        return from_plain(record, answer.body)
    except RecordError as error:
        raise ContestantLostError(f"answered nonsense: {error}") from error
