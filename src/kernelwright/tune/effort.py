"""How hard to tune: three profiles, chosen with `--effort`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelwright.bench.timing import QUICK_TIMING, TimingPlan
from kernelwright.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much time to give to one kernel."""

    name: str
    variants: int
    """The best-ranked so many are compiled and timed; 0 takes the machine model's first."""
    finalists: int
    """The fastest so many are timed once more: the fastest of many is in part the luckiest."""
    budget_seconds: float
    """Wall time for the kernels of a file, compiling included."""
    module_seconds: float
    """Wall time for those of a module in memory, for which somebody waits; 0 takes the model's."""
    guess_seconds: float
    """Wall time of compiling for calls of which the model is not sure that ours are faster."""
    timing: TimingPlan = field(default_factory=TimingPlan)
    """How long to time what came out."""


NONE = Effort(
    name="none",
    variants=0,
    finalists=0,
    budget_seconds=0.0,
    module_seconds=0.0,
    guess_seconds=0.0,
)
QUICK = Effort(
    name="quick",
    variants=12,
    finalists=2,
    budget_seconds=12.0,
    # Tuned with 12 s, ResNet-50 and BERT ran 1 % faster or not at all, and took twice as long.
    module_seconds=0.0,
    guess_seconds=8.0,
    timing=QUICK_TIMING,
)
FULL = Effort(
    name="full",
    variants=128,
    finalists=5,
    budget_seconds=600.0,
    module_seconds=600.0,
    guess_seconds=60.0,
)

PROFILES = (NONE, QUICK, FULL)

_AMONG_MANY: Mapping[str, Effort] = {
    QUICK.name: replace(NONE, name=QUICK.name, timing=QUICK.timing),
}
"""What a profile means in a suite, where that is less: there a problem has two cores and a few
seconds of the card, of which even three variants of one kernel took a third."""


def effort(name: str) -> Effort:
    """The profile of this name; raises UsageError for another."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    names = ", ".join(profile.name for profile in PROFILES)
    raise UsageError(f"no effort is called {name!r}", next_step=f"Use one of {names}.")


def effort_among_many(name: str) -> Effort:
    """The profile for one of many problems that share a machine; raises as `effort` does."""
    alone = effort(name)
    return _AMONG_MANY.get(name, alone)
