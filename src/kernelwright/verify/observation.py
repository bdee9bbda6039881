"""What was seen when reference and candidate ran one case: facts, without judgement."""

from dataclasses import dataclass
from enum import Enum

from kernelwright.emulator.findings import FindingKind
from kernelwright.verify.cases import Case
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.verify.verdict import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """One tensor, without its values."""

    name: str
    """"output[0]", "input[1]", "weight"."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    place: str
    """"the device" that the case runs on, or another one's name."""
    fingerprint: str
    """Checksum of dtype, shape and values."""
    kind: str = "Tensor"
    """Its class; another one than torch's own may compute when it is looked at."""
    stored: bool = True
    """Whether there is memory behind every element."""


UNUSED = "unused"
"""What `RunFacts.random` is when no random number was drawn."""

REPLACED = "replaced"
"""How a function that is no longer torch's own reads in `RunFacts.settings`."""


NEXT_RESULT = "the result of the next call"
LATER_RESULT = "the result of a later call"
LATER_RESULTS = (NEXT_RESULT, LATER_RESULT)
"""What in `RunFacts.aliases` a result shares memory with when it is overwritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What one call of a module did."""

    structure: str
    """The containers of the result: "T", "(T, [T])"."""
    outputs: tuple[TensorFacts, ...]
    inputs: tuple[TensorFacts, ...]
    """The arguments before the call."""
    changed: tuple[str, ...]
    """Arguments, parameters and buffers whose values the call changed."""
    aliases: tuple[tuple[str, str], ...]
    """(output, argument or parameter) pairs that share memory."""
    seconds: float
    random: str = UNUSED
    """State of torch's random generators after the call, as a checksum."""
    replayed: tuple[str, ...] = ()
    """Results that are bit for bit those of an earlier call, on other inputs."""
    threads: tuple[str, ...] = ()
    """Threads that the file started and that were alive when the call returned."""
    settings: tuple[tuple[str, str], ...] = ()
    """(name, "before -> after") of what changed in this process since before the file was
    imported: flags of torch, and functions that were replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFinding:
    """One fault inside a kernel."""

    kind: FindingKind
    """What a checker of kernels (the emulator, later a sanitizer) can report."""
    message: str
    """Kernel, line, block, thread and what happened, in one sentence."""


class FaultKind(Enum):
    """How running the candidate can end other than with a result."""

    BUILD = "build"
    """Importing or constructing raised."""
    REFUSED = "refused"
    """`forward` or the constructor raised an exception; the process is well."""
    CRASH = "crash"
    """The process ended, or talked nonsense."""
    BAD_ACCESS = "bad access"
    """A kernel touched memory that is not there, and the device is lost."""
    OUT_OF_MEMORY = "out of memory"
    """There was no device memory left."""
    HANG = "hang"
    """It did not answer in time and was ended."""


DEVICE_LOST = (FaultKind.CRASH, FaultKind.BAD_ACCESS)
"""Faults after which the process is of no more use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The candidate gave no result."""

    kind: FaultKind
    message: str
    """What happened: exception and text, signal, or how long was waited."""
    location: str | None = None
    """"model_new.py:40", where the candidate's own code is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reference does not take the case (a logarithm of negative inputs, for example)."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """Parameters and buffers of a freshly constructed module, in `state_dict` order."""

    tensors: tuple[TensorFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLink:
    """One tensor of the candidate's that stands for one of the reference's."""

    reference: str
    """The reference's name for it."""
    candidate: str


Links = tuple[StateLink, ...]
"""Several may stand for one tensor: its copies. A tensor without a link stands for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Both runs of one case and how they compare."""

    case: Case
    reference: RunFacts | Refusal
    candidate: RunFacts | Fault
    reference_state: StateFacts | None
    candidate_state: StateFacts | None
    """Given with the first case of each size; None on the others."""
    comparisons: tuple[ErrorMetrics, ...]
    """One per tensor of the result and per tensor that the reference changes."""
    repeats: tuple[ErrorMetrics, ...] | None
    """Metrics of a second run; None when it was bit for bit the first."""
    findings: tuple[KernelFinding, ...]
    links: Links | None = None
    """What stands for the reference's tensors; None where all have their names and values."""


_STATUS_OF_FINDING = {
    FindingKind.OUT_OF_BOUNDS: Status.OUT_OF_BOUNDS,
    FindingKind.MISALIGNED: Status.MEMORY_ERROR,
    FindingKind.UNINITIALISED_READ: Status.MEMORY_ERROR,
    FindingKind.RACE: Status.RACE,
    FindingKind.BARRIER_DIVERGENCE: Status.RACE,
    FindingKind.DEADLOCK: Status.TIMED_OUT,
    FindingKind.UNSUPPORTED: Status.UNSUPPORTED,
}

_STATUS_OF_FAULT = {
    FaultKind.BUILD: Status.BUILD_FAILED,
    FaultKind.REFUSED: Status.CRASHED,
    FaultKind.CRASH: Status.CRASHED,
    FaultKind.BAD_ACCESS: Status.MEMORY_ERROR,
    FaultKind.OUT_OF_MEMORY: Status.OUT_OF_MEMORY,
    FaultKind.HANG: Status.TIMED_OUT,
}


def status_of(fault: Fault | KernelFinding) -> Status:
    """The verdict that a fault or a finding leads to."""
    match fault:
        case Fault(kind=kind):
            return _STATUS_OF_FAULT[kind]
        case KernelFinding(kind=finding_kind):
            return _STATUS_OF_FINDING[finding_kind]
