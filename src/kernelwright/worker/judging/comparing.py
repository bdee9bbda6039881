"""Results that a child hands over, compared by the reference's process where they lie."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernelwright.verify.cases import Case
from kernelwright.verify.records import RecordError, from_plain, to_plain
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.card.ledger import Ledger
from kernelwright.worker.judging.answers import trusted
from kernelwright.worker.process.child_process import ChildProcess
from kernelwright.worker.process.client import Answer, Raised, Replied
from kernelwright.worker.process.handover import Handed, WriteReply, WriteRequest
from kernelwright.worker.process.requests import CompareRequest, ComparisonReply
from kernelwright.worker.process.tensors import TensorHeader
from kernelwright.worker.timer.records import SharedTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """Asks the reference's process what errors tensors of another process have."""

    reference: ChildProcess
    exchange: Path
    """Folder of results that are handed over in files."""
    using_card: Callable[[], AbstractContextManager[None]]
    seconds: float
    """For one answer."""
    ledger: Ledger

    def errors_of(
        self, case: Case, handed: tuple[Handed, ...], owner: ChildProcess, kept: tuple[str, ...]
    ) -> tuple[ErrorMetrics, ...]:
        """Errors of what `owner` handed over or `kept`, after the reference ran `case`; files go.

        The owner stands still meanwhile: what is compared is what it had when it answered.
        """
        answer = self._ask(case, handed, owner, kept)
        if isinstance(answer, Raised) and any(isinstance(it, SharedTensor) for it in handed):
            # Processes that do not see each other's memory, for example in containers.
            handed = self._in_files(handed, owner)
            answer = self._ask(case, handed, owner, kept)
        for it in handed:
            if isinstance(it, TensorHeader):
                (self.exchange / Path(it.file).name).unlink(missing_ok=True)
        reply = trusted(ComparisonReply, answer)
        self.ledger.include("reference: compare", reply.spent)
        return reply.metrics

    def _ask(
        self, case: Case, handed: tuple[Handed, ...], owner: ChildProcess, kept: tuple[str, ...]
    ) -> Answer:
        request = to_plain(CompareRequest(case=case, files=handed, kept=kept))
        owner.freeze()
        try:
            with self.using_card():
                return self.reference.ask("compare", request, self.seconds)
        finally:
            owner.thaw()

    def _in_files(self, handed: tuple[Handed, ...], owner: ChildProcess) -> tuple[Handed, ...]:
        """What was handed, with what lies on the device written by its owner, if that does so."""
        shared = tuple(it for it in handed if isinstance(it, SharedTensor))
        answer = owner.ask("write", to_plain(WriteRequest(shared=shared)), self.seconds)
        written: tuple[TensorHeader, ...] = ()
        if isinstance(answer, Replied):
            with suppress(RecordError):
                written = from_plain(WriteReply, answer.body).files
        return (*(it for it in handed if isinstance(it, TensorHeader)), *written)
