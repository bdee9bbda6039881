"""What judging a candidate concludes: a status, and for every check the evidence behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kernelwright.errors import ExitCode
from kernelwright.verify.ran import Ran
from kernelwright.verify.records import to_plain

VALUES = "values"
"""Name of the check of the numbers."""


class Status(Enum):
    """The conclusion about a candidate."""

    VERIFIED_FASTER = "verified, faster"
    """Right, and faster than every baseline, with 95 % confidence."""
    VERIFIED_NOT_FASTER = "verified, not faster"
    """Right, but not faster than the best baseline."""
    VERIFIED = "verified, speed not measured"
    """Right; there is no GPU, the machine is too busy to time on, or nobody asked for its speed."""
    WRONG_VALUES = "wrong values"
    """It is less accurate than the reference on some inputs, weights or sizes."""
    WRONG_SHAPE_OR_DTYPE = "wrong shape or dtype"
    """Its result, or its parameters and buffers, have another form than the reference's."""
    INPUT_CHANGED = "input changed"
    """It wrote to its inputs, or its output shares their memory, and the reference does not."""
    NOT_DETERMINISTIC = "not deterministic"
    """A second run on the same inputs is wrong or differs by more than rounding."""
    BUILD_FAILED = "build failed"
    """Importing the file, compiling its kernels or constructing `ModelNew` failed."""
    CRASHED = "crashed"
    """`forward` raised, or the process died."""
    TIMED_OUT = "timed out"
    """It did not answer in time, or its kernel never ends."""
    RACE = "race"
    """The emulator saw two threads touch one address between barriers, or a divergent barrier."""
    OUT_OF_BOUNDS = "out of bounds"
    """A kernel of it writes or reads outside of its tensors."""
    MEMORY_ERROR = "memory error"
    """Misaligned, read before it was written, or of memory that is not there."""
    OUT_OF_MEMORY = "out of memory"
    """It needs more device memory than there is where the reference does not."""
    SIDE_EFFECT = "side effect"
    """It changed what is not its own: parameters, the random state, global flags of torch."""
    CHEATING = "cheating"
    """It does what no honest file does: late or skipped work, a decoy, a tampered clock or judge,
    less time than the bytes alone take."""
    UNSUPPORTED = "unsupported"
    """It uses something that this target cannot run."""

    @property
    def verified(self) -> bool:
        """The candidate is right; nothing about its speed."""
        return self in _VERIFIED

    @property
    def exit_code(self) -> ExitCode:
        """What the command line exits with."""
        return _EXIT_CODES.get(self, ExitCode.WRONG)


_VERIFIED = frozenset({Status.VERIFIED_FASTER, Status.VERIFIED_NOT_FASTER, Status.VERIFIED})

_EXIT_CODES: Mapping[Status, ExitCode] = {
    Status.VERIFIED_FASTER: ExitCode.VERIFIED,
    Status.VERIFIED_NOT_FASTER: ExitCode.NOT_FASTER,
    Status.VERIFIED: ExitCode.VERIFIED,
    Status.BUILD_FAILED: ExitCode.DOES_NOT_BUILD,
    Status.UNSUPPORTED: ExitCode.UNSUPPORTED,
}


class Outcome(Enum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    """Failed, but nobody demanded it; or something worth knowing."""
    SKIPPED = "skipped"
    """Could not be asked: `evidence` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """How far one result lies from the oracle: RMSE over the oracle's root mean square."""

    name: str
    """Which tensor: "output[0]"."""
    candidate: float
    reference: float
    """The reference's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    """What was checked: "values", "inputs unchanged"."""
    outcome: Outcome
    evidence: str
    """What was seen, in a sentence or two, with numbers."""
    status: Status | None = None
    """What the verdict is when this check fails; None for checks that only inform."""
    case: str = ""
    """The input case, in the words that `--case` takes; empty when no case was involved."""
    errors: tuple[Errors, ...] = ()
    """The numbers behind the evidence, where values were compared."""

    @property
    def reproduce(self) -> str:
        """The command, but for the files, that runs this case alone; empty without a case."""
        return f"kernelwright judge MODEL MODEL_NEW --case '{self.case}'" if self.case else ""

    def demoted(self) -> "Check":
        """The same check as a warning, for what was not demanded."""
        return (
            self if self.outcome is not Outcome.FAILED else replace(self, outcome=Outcome.WARNING)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion and all that led to it."""

    status: Status
    summary: str
    """The conclusion in one sentence."""
    checks: tuple[Check, ...]
    target: str
    """What the candidate ran on: "cuda" or "cpu" (the emulator)."""
    sizes: Mapping[str, int]
    """Constants of the problem that had another value than the file's while it was verified."""
    build_seconds: float
    """Importing the file and constructing `ModelNew`, compilation included."""
    ran: Ran | None = None
    """What one call ran on the device; None where nobody looked."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Wall seconds by what was waited for: "card: ..." is for others to let go of the card,
    "reference: run" for a process and an operation. They add up to the judgement's time; less than
    0.05 s is left out."""

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that decided against the candidate."""
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)

    @property
    def warnings(self) -> tuple[Check, ...]:
        """What a user should know though it decided nothing."""
        return tuple(check for check in self.checks if check.outcome is Outcome.WARNING)

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON values, with the exit code and how to reproduce each check."""
        checks = [{**to_plain(check), "reproduce": check.reproduce} for check in self.checks]
        return {**to_plain(self), "checks": checks, "exit_code": int(self.status.exit_code)}


def conclude(
    checks: tuple[Check, ...], *, target: str, sizes: Mapping[str, int], build_seconds: float
) -> Verdict:
    """The verdict of `checks`: that of the first failure; VERIFIED if there is none."""
    failures = [check for check in checks if check.outcome is Outcome.FAILED]
    if failures:
        status = failures[0].status or Status.WRONG_VALUES
        summary = failures[0].evidence
    elif compared := [check for check in checks if check.name == VALUES]:
        status = Status.VERIFIED
        passed = sum(check.outcome is Outcome.PASSED for check in compared)
        summary = f"no less accurate than the reference on {passed} sets of inputs"
    else:
        status = Status.UNSUPPORTED
        summary = "there was nothing to compare: " + "; ".join(
            check.evidence for check in checks if check.outcome is Outcome.SKIPPED
        )
    return Verdict(
        status=status,
        summary=summary,
        checks=checks,
        target=target,
        sizes=sizes,
        build_seconds=build_seconds,
    )
