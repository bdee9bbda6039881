"""What a suite found out about one problem: a line of its journal, a row of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kernelwright.bench.measurement import Measurement, Series, Speedup
from kernelwright.bench.statistics import Interval
from kernelwright.errors import KernelwrightError
from kernelwright.verify.records import from_plain, to_plain
from kernelwright.verify.verdict import Status, Verdict

BEST = "the best"
"""Stands for whichever baseline was the fastest, in tables over several problems."""


_NOT_DROP_IN = frozenset(it.value for it in Status if it.verified and not it.is_drop_in)


class Ending(Enum):
    """How the work on a problem ended."""

    JUDGED = "judged"
    """There is a verdict; `Row.status` is its status."""
    REFUSED = "refused"
    """An error that a user can act on: the file, or what it asks for."""
    TIMED_OUT = "no result in time"
    CRASHED = "process died"
    """The process that worked on the problem died, and took nothing else with it."""
    DEFECT = "defect of kernelwright"
    """An exception that nobody foresaw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why there is no verified file, or what to do first about a wrong one."""

    kind: str
    """Class of the error, or the name of the check that failed."""
    message: str
    location: str | None
    """Where in the user's text: "model.py:12"."""
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftCall:
    """An operator that stays PyTorch's."""

    operator: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One problem of a run."""

    problem: str
    """Its path below the folder of the suite, without the ending: "level1/19_ReLU"."""
    level: str
    """The folder it lies in, "" at the top."""
    key: str
    """Hash of the texts that were worked on: what is done is done for these."""
    ending: Ending
    status: str
    """Status of the verdict, or the ending's value where there is none."""
    verified: bool
    summary: str
    """The conclusion in one sentence."""
    trouble: Trouble | None = None
    target: str = ""
    """"cuda" or "cpu" (the emulator)."""
    note: str = ""
    """Why there are no times, empty where there are."""
    card: str = ""
    device_ms: float | None = None
    host_ms: float | None = None
    baselines: tuple[Series, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    """Baselines that could not be measured, with the reason."""
    speedups: tuple[Speedup, ...] = ()
    best_baseline: str | None = None
    bytes: int | None = None
    """The least bytes that the problem has to move."""
    flops: int | None = None
    arithmetic: str = ""
    """What the FLOPs run on, a key of `Machine.flops`."""
    floor_ms: float | None = None
    share_of_floor: float | None = None
    share_of_copy: float | None = None
    algebraic: tuple[str, ...] = ()
    """Rewrites that compute something else in the same words of algebra."""
    left_to_pytorch: tuple[LeftCall, ...] = ()
    kernels: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Wall time of a judgement, by what was waited for: as in the verdict."""
    attempts: int = 1
    """How often the work was begun; above 1 after a kill from outside."""

    @property
    def measured(self) -> bool:
        """Whether there are times to compare."""
        return self.verified and bool(self.speedups)

    @property
    def not_drop_in(self) -> bool:
        """Whether it is verified but cannot be given other weights as the reference can."""
        return self.verified and self.status in _NOT_DROP_IN

    def speedup(self, baseline: str) -> Speedup | None:
        """Over a baseline by name, or over the `BEST` of this problem."""
        wanted = self.best_baseline if baseline == BEST else baseline
        return next((it for it in self.speedups if it.baseline == wanted), None)

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        return dict(to_plain(self))


_LATER: Mapping[str, Any] = {"spent": {}}
"""Fields that runs did not have before; a journal is kept for years."""
_LATER_OF_SPEEDUPS = {"undisturbed": None}
"""Those of each of its speedups."""


def read_row(plain: object) -> Row:
    """The row that `to_json` wrote, now or earlier; raises RecordError for anything else."""
    if isinstance(plain, dict) and isinstance(speedups := plain.get("speedups"), list):
        plain = {**plain, "speedups": [_complete(it, _LATER_OF_SPEEDUPS) for it in speedups]}
    return from_plain(Row, _complete(plain, _LATER))


def _complete(plain: object, later: Mapping[str, Any]) -> object:
    return {**later, **plain} if isinstance(plain, dict) else plain


def judged_row(
    *,
    problem: str,
    level: str,
    key: str,
    verdict: Verdict,
    measurement: Measurement,
    plan: Mapping[str, Any],
) -> Row:
    """The row of a problem with a verdict; `plan` as `plan_json` gives it, or empty."""
    own, floor, environment = measurement.candidate, measurement.floor, measurement.environment
    return Row(
        problem=problem,
        level=level,
        key=key,
        ending=Ending.JUDGED,
        status=verdict.status.value,
        verified=verdict.status.verified,
        summary=verdict.summary,
        trouble=_first_failure(verdict),
        target=verdict.target,
        note=measurement.note,
        card="" if environment is None else environment.card,
        device_ms=None if own is None else own.device_ms,
        host_ms=None if own is None else own.host_ms,
        baselines=measurement.baselines,
        lost=measurement.lost,
        speedups=measurement.speedups,
        best_baseline=measurement.best_baseline,
        bytes=None if floor is None else floor.bytes,
        flops=None if floor is None else floor.flops,
        arithmetic="" if floor is None else floor.arithmetic,
        floor_ms=measurement.floor_ms,
        share_of_floor=measurement.share_of_floor,
        share_of_copy=measurement.share_of_copy,
        algebraic=tuple(it["rule"] for it in plan.get("rewrites", ()) if it["algebraic"]),
        left_to_pytorch=tuple(
            LeftCall(operator=it["operator"], why=it["why"])
            for it in plan.get("left_to_pytorch", ())
        ),
        kernels=tuple(it["name"] for it in plan.get("kernels", ())),
        spent=verdict.spent,
    )


def _first_failure(verdict: Verdict) -> Trouble | None:
    for check in verdict.failures:
        return Trouble(
            kind=check.name,
            message=check.evidence,
            location=None,
            next_step=check.reproduce or "Correct the file; `kernelwright judge` says the same.",
        )
    return None


def refused_row(*, problem: str, level: str, key: str, error: Exception) -> Row:
    """The row of a problem that ended in an exception."""
    match error:
        case KernelwrightError(message=message, location=location, next_step=next_step):
            ending = Ending.REFUSED
        case _:
            ending, message, location = Ending.DEFECT, f"{type(error).__name__}: {error}", None
            next_step = "Report it with the problem file; the other problems are not concerned."
    trouble = Trouble(
        kind=type(error).__name__, message=message, location=location, next_step=next_step
    )
    return Row(
        problem=problem,
        level=level,
        key=key,
        ending=ending,
        status=ending.value,
        verified=False,
        summary=message.partition("\n")[0],
        trouble=trouble,
    )


__all__ = [
    "BEST",
    "Ending",
    "Interval",
    "LeftCall",
    "Row",
    "Trouble",
    "judged_row",
    "read_row",
    "refused_row",
]
