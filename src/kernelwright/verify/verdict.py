"""What judging a candidate concludes: a status, and for every check the evidence behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kernelwright.errors import ExitCode
from kernelwright.verify.ran import Ran
from kernelwright.verify.records import to_plain

FILES = "MODEL MODEL_NEW"
"""What stands for the two files in a check's command."""
VALUES = "values"
"""Name of the check of the numbers."""
DROP_IN = "drop-in"
"""Name of the check that the module takes weights as the reference does."""


class Status(Enum):
    """The conclusion about a candidate."""

    VERIFIED_FASTER = "verified, faster"
    """Right, and faster than every baseline, with 95 % confidence."""
    VERIFIED_NOT_FASTER = "verified, not faster"
    """Right, but not faster than the best baseline."""
    VERIFIED = "verified, speed not measured"
    """Right; nobody asked for its speed, there is no GPU, or the machine is too busy to time."""
    NOT_DROP_IN_FASTER = "verified, not drop-in, faster"
    """Right and faster with the weights of its constructor; later it takes no other weights, or
    only by other keys than the reference's `load_state_dict`."""
    NOT_DROP_IN_NOT_FASTER = "verified, not drop-in, not faster"
    """As `NOT_DROP_IN_FASTER`, but not faster than the best baseline."""
    NOT_DROP_IN = "verified, not drop-in, speed not measured"
    """As `NOT_DROP_IN_FASTER`, but its speed was not measured."""
    WRONG_VALUES = "wrong values"
    """It is less accurate than the reference on some inputs, weights or sizes."""
    WRONG_SHAPE_OR_DTYPE = "wrong shape or dtype"
    """Its result has other containers, shapes or dtypes than the reference's."""
    WRONG_WHERE_NOT_FINITE = "right but for NaN or Inf"
    """Right on everything else; NaN or Inf in its inputs does not come out where the reference has
    it."""
    WRONG_STATE = "not drop-in"
    """Right with the weights of its constructor, but it does not take other weights as the
    reference does, and `drop-in` was demanded."""
    STATE_NOT_UPDATED = "state not updated"
    """It did not update state that the reference's call updates, such as running statistics."""
    INPUT_CHANGED = "input changed"
    """It wrote to its inputs, and the reference does not."""
    RESULT_SHARED = "result shares memory"
    """Its result lies in the memory of an input or a parameter, and the reference's does not."""
    RESULT_OVERWRITTEN = "result overwritten by the next call"
    """Its result lies in memory that a later call writes its own result to."""
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
    """One of its kernels writes or reads outside of its tensors."""
    MEMORY_ERROR = "memory error"
    """One of its kernels made a misaligned access, or read memory that was not written or not
    there."""
    OUT_OF_MEMORY = "out of memory"
    """It needs more device memory than the card has, and the reference does not."""
    SIDE_EFFECT = "side effect"
    """It changed parameters, the random state, or global flags of torch."""
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
    def is_drop_in(self) -> bool:
        """The candidate is right, and takes weights as the reference does."""
        return self in _TIMED[Status.VERIFIED] or self is Status.VERIFIED

    @property
    def exit_code(self) -> ExitCode:
        """What the command line exits with."""
        return _EXIT_CODES.get(self, ExitCode.WRONG)

    def when_faster(self) -> "Status":
        """Status of this candidate once it was timed and is faster."""
        return _TIMED[self][0]

    def when_not_faster(self) -> "Status":
        """Status of this candidate once it was timed and is not faster."""
        return _TIMED[self][1]


_TIMED: Mapping[Status, tuple[Status, Status]] = {
    Status.VERIFIED: (Status.VERIFIED_FASTER, Status.VERIFIED_NOT_FASTER),
    Status.NOT_DROP_IN: (Status.NOT_DROP_IN_FASTER, Status.NOT_DROP_IN_NOT_FASTER),
}
"""What becomes of a status without a speed when the candidate is faster, and when it is not."""

_VERIFIED = frozenset({*_TIMED, *(status for timed in _TIMED.values() for status in timed)})

_EXIT_CODES: Mapping[Status, ExitCode] = {
    Status.VERIFIED_FASTER: ExitCode.VERIFIED,
    Status.VERIFIED_NOT_FASTER: ExitCode.NOT_FASTER,
    Status.VERIFIED: ExitCode.VERIFIED,
    Status.NOT_DROP_IN_FASTER: ExitCode.VERIFIED,
    Status.NOT_DROP_IN_NOT_FASTER: ExitCode.NOT_FASTER,
    Status.NOT_DROP_IN: ExitCode.VERIFIED,
    Status.BUILD_FAILED: ExitCode.DOES_NOT_BUILD,
    Status.UNSUPPORTED: ExitCode.UNSUPPORTED,
}


class Outcome(Enum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    """Failed, but not demanded; or something worth knowing."""
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
        return f"kernelwright judge {FILES} --case '{self.case}'" if self.case else ""

    def demoted(self) -> "Check":
        """This check as a warning, for what was not demanded."""
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


def _lost_as_drop_in(checks: tuple[Check, ...]) -> str:
    """What a user of other weights loses, without the names; empty for nothing."""
    lost = (it for it in checks if it.name == DROP_IN and it.outcome is Outcome.WARNING)
    return "; ".join(dict.fromkeys(check.evidence.partition(": ")[0] for check in lost))


def conclude(
    checks: tuple[Check, ...], *, target: str, sizes: Mapping[str, int], build_seconds: float
) -> Verdict:
    """The verdict of `checks`: that of the first failure; VERIFIED if there is none."""
    failures = [check for check in checks if check.outcome is Outcome.FAILED]
    compared = [check for check in checks if check.name == VALUES]
    lost = _lost_as_drop_in(checks)
    if failures:
        status = failures[0].status or Status.WRONG_VALUES
        summary = failures[0].evidence
    elif compared or lost:
        passed = sum(check.outcome is Outcome.PASSED for check in compared)
        right = f"no less accurate than the reference on {passed} sets of inputs"
        status = Status.NOT_DROP_IN if lost else Status.VERIFIED
        summary = f"{lost}; otherwise {right}" if lost else right
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
