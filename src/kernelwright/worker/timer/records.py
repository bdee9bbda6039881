"""What the timer and those that are timed tell each other, through the judge."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kernelwright.verify.cases import Case
from kernelwright.verify.tolerance import ErrorMetrics


class Take(Enum):
    """What a timed call is taken for."""

    DEVICE = "device"
    """Everything is launched behind a closed gate; the time begins when it opens."""
    HOST = "host"
    """The device is idle; the time begins before the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorForm:
    """One tensor of the arguments in the timer's memory."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    place: int
    """Bytes from the start of the inputs; they begin somewhere else in every call."""
    extent: int
    """Bytes from its first to the end of its last element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """Reply to "lend": memory of the timer's that others read their arguments from."""

    handle: str
    """For `Driver.open`."""
    bytes: int
    """Bytes of one set of inputs."""
    room: int
    """Bytes that a set may be moved by."""
    forms: tuple[TensorForm, ...]
    template: str
    """The arguments as JSON, a tensor as its number in `forms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LendRequest:
    """Body of "lend"."""

    case: Case


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRequest:
    """Body of "draw": draw the inputs of a case and write them, `place` bytes into the memory."""

    case: Case
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FillRequest:
    """Body of "fill": write the inputs that were drawn, `place` bytes into the memory."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """Body of "attach": make the module, and warm up on the inputs that lie at 0."""

    case: Case
    lent: Lent
    words: str
    """File of the words shared with the timer."""
    warm_up_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachReply:
    """Reply to "attach"."""

    gated: bool
    """Whether the device can be held until the timer lets it go."""
    spent: Mapping[str, float]
    """Seconds by what they went to, as far as the child says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """Body of "call" and "expect"."""

    turn: int
    """Above that of the call before."""
    take: Take
    place: int
    seed: int
    """Seed of torch's generators, set before the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTensor:
    """A result in the memory of the process that computed it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    handle: str
    place: int
    """Bytes from the start of the allocation to the first element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some bytes of a large result as they were on the stream right after the call."""

    copy: SharedTensor
    """Where they are; its name is the result's."""
    at: int
    """Bytes from the result's first element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReply:
    """What a call gave, by its own account."""

    span_ms: float
    """Between two events around the call; 0 when taken for the host."""
    tensors: tuple[SharedTensor, ...]
    snapshot: tuple[SharedTensor, ...]
    """The results as they were on the stream right after the call; empty for large ones."""
    parts: tuple[Part, ...]
    """Parts of large ones, here and there."""
    persisting_l2: int
    """Bytes of the L2 that were set aside before the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """Body of "watch"."""

    words: str
    process: int
    """Number of the process that makes the call; 0 where it is this one."""
    turn: int
    take: Take
    place: int
    seconds: float
    """Longest that the call may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Reply to "watch": one call as seen from outside."""

    outside_ms: float
    """From the opening of the gate, or "go", until the device had nothing left to do."""
    late: bool
    """It was not all launched before the gate: the call waits for the device itself."""
    waited_ms: float
    """Part of that time in which the first threads of both processes waited for a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectRequest:
    """Body of the timer's "expect"."""

    tensors: tuple[SharedTensor, ...]
    """What the reference gave for the inputs that were drawn; it keeps them until the next."""


class Look(Enum):
    """How closely results are compared with what is expected."""

    BOUNDED = "bounded"
    """Errors may come out larger than they are: a few passes over memory."""
    EXACT = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Body of "check"."""

    results: tuple[tuple[SharedTensor, ...], ...]
    """Each holds all that one call gave."""
    look: Look
    parts: tuple[Part, ...] = ()
    """Parts of the first of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReply:
    """Reply to "check"."""

    comparisons: tuple[tuple[ErrorMetrics, ...], ...]
    """For each of the results; tensors of another form than expected are left out."""
    stale: tuple[str, ...]
    """Results with a part that is not what is there now."""
