"""The bodies of requests and replies: what parent and child agree on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kernelwright.machine import Machine
from kernelwright.verify.cases import Case, Sizes
from kernelwright.verify.observation import KernelFinding, Links, RunFacts, StateFacts
from kernelwright.verify.tolerance import ErrorMetrics
from kernelwright.worker.process.handover import Handed

LARGE = 1 << 30
"""Bytes of one call above which only a few inputs are tried at full size."""


class Role(Enum):
    """What a child is for."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"
    WITNESS = "candidate, watched"
    """The candidate once more, where its kernels can be counted and silenced."""
    GUARDED = "candidate, guarded"
    """The candidate once more, with guard zones around its tensors."""
    COMPILED = "torch.compile"
    COMPILED_MAX = "torch.compile max-autotune"
    TIMER = "timer"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """Body of the first request to a child."""

    role: Role
    problem_path: str
    problem_source: str
    """The text itself: the file may have been resized in memory."""
    candidate_path: str
    folder: str
    """Where tensors are exchanged."""
    device: str
    """"cuda:0" or "cpu"."""
    emulate: bool
    """Whether the candidate's kernels run on the emulator."""
    order_seed: int
    threads: int
    starts: tuple[str, ...] = ()
    """Files of which it holds one while it takes its card into use."""
    guards: str = ""
    """Library with the allocator of a guarded candidate; "" for any other role."""
    compiles_up_to: int = 0
    """Bytes of a call up to which the compiled baseline compiles as soon as it has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """Body of "build", "make" and "run"."""

    case: Case
    links: Links | None = None
    """What of the candidate's parameters and buffers stands for the reference's; None where they
    have the same names, or nobody knows yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """The reference's reply to "run"."""

    facts: RunFacts
    state: StateFacts
    spent: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what they went to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Body of "compare"."""

    case: Case
    files: tuple[Handed, ...]
    kept: tuple[str, ...] = ()
    """State that the reference's call changed and the candidate's left as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReply:
    """Reply to "compare"; tensors of another form than expected are left out."""

    metrics: tuple[ErrorMetrics, ...]
    spent: Mapping[str, float]
    """Seconds by what they went to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReply:
    """Reply to "probe"."""

    undecided: tuple[str, ...] | None
    """Wrong answers that no case so far has refused, in words; None if none was tried."""
    spent: Mapping[str, float]
    """Seconds by what they went to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesRequest:
    """Body of "sizes": the budget of one call."""

    bytes: int
    flops: int
    shrink: bool
    """Whether the sizes under judgement have to fit the budget as well."""
    large: int = LARGE
    """Bytes of one call above which most is asked at smaller sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesReply:
    """Constants to replace in the problem."""

    own: Sizes
    """For the sizes under judgement; empty for the file's own."""
    others: tuple[Sizes, ...]
    """For further sizes, each; of a large problem those first that change nothing which its
    constructor is given, where such sizes are much smaller."""
    ragged: tuple[Sizes, ...]
    """Those of `others` that do not divide as the file's own do, by powers of two up to 32."""
    bytes: int
    """Bytes of one call at the sizes under judgement: inputs, parameters, buffers and outputs."""
    largest: int = 0
    """Bytes of the largest result of one operator in that call."""
    memory: int = 0
    """Bytes of the device; 0 for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentReply:
    """Reply to "environment": what the children run on."""

    card: str
    torch: str
    cuda: str
    driver: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReply:
    """Reply to "machine": what the card can do, of a process that has it."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchesReply:
    """Reply to "silence" and "unsilence": launches of own kernels before it."""

    counts: tuple[tuple[str, int], ...]
    """By the kernel's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReply:
    """Reply to "guard"."""

    findings: tuple[KernelFinding, ...]
    looked_at: int
    """Guard zones since the process began, each as often as it was looked at."""
