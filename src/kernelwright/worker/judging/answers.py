"""What the answer of a child comes to: a record, an error, or a fault of a candidate's."""

from pathlib import Path
from typing import TypeVar

from kernelwright.bench.timing import ContestantHungError, ContestantLostError
from kernelwright.toolchain.extension import build_error
from kernelwright.verify.observation import Fault, FaultKind
from kernelwright.verify.records import RecordError, from_plain
from kernelwright.worker.errors import ReferenceFailedError
from kernelwright.worker.process.client import Answer, Died, Hung, Raised, Replied
from kernelwright.worker.roles.candidate import CandidateRun

Record = TypeVar("Record")


def trusted(record: type[Record], answer: Answer) -> Record:
    """The record in an answer of the reference's child; ReferenceFailedError if there is none."""
    match answer:
        case Replied(body=body):
            return from_plain(record, body)
        case Raised(message=message, location=location, next_step=next_step):
            raise ReferenceFailedError(message, location=location, next_step=next_step)
        case Died(message=message) | Hung(message=message):
            raise ReferenceFailedError(message)


def candidate_run(answer: Answer) -> CandidateRun:
    """The run in an answer of a stranger's child; a fault where there is none."""
    match answer:
        case Replied(body=body):
            try:
                return from_plain(CandidateRun, body)
            except RecordError as error:
                fault = nonsense(error)
        case failed:
            fault = as_fault(failed, FaultKind.REFUSED)
    return CandidateRun(facts=fault, state=None, files=(), repeat_files=None, findings=())


def seconds_of_call(answer: Answer | None) -> float | None:
    """What the reference's call took; None where it has not been called."""
    match answer:
        case Replied(body={"facts": {"seconds": float(seconds)}}):
            return seconds
    return None


def as_fault(answer: Raised | Died | Hung, raised: FaultKind) -> Fault:
    """What an answer without a body says of a candidate; `raised` is what an exception means."""
    match answer:
        case Raised(message=message, location=location):
            return Fault(kind=raised, message=message, location=location)
        case Died(message=message):
            return Fault(kind=FaultKind.CRASH, message=message)
        case Hung(message=message):
            return Fault(kind=FaultKind.HANG, message=message)


def as_lost(answer: Raised | Died | Hung) -> ContestantLostError:
    """What an answer without a body says of somebody who is timed."""
    lost = ContestantHungError if isinstance(answer, Hung) else ContestantLostError
    return lost(answer.message)


def readable(fault: Fault | None, candidate_path: Path) -> Fault | None:
    """The fault with a compiler's pages of output reduced to its first message."""
    if fault is None or "building extension" not in fault.message:
        return fault
    _, _, output = fault.message.partition(": ")
    error = build_error(output, candidate_path)
    return Fault(kind=fault.kind, message=error.message, location=error.location)


def nonsense(error: RecordError) -> Fault:
    """A body that is no record."""
    return Fault(kind=FaultKind.CRASH, message=f"the candidate process answered nonsense: {error}")
