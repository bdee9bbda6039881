"""How hard to tune: three profiles, chosen with `--effort`."""

from dataclasses import dataclass, field

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
    """Wall time for one kernel, compiling included."""
    timing: TimingPlan = field(default_factory=TimingPlan)
    """How long to time what came out, where there are many problems."""


NONE = Effort(name="none", variants=0, finalists=0, budget_seconds=0.0)
QUICK = Effort(name="quick", variants=12, finalists=2, budget_seconds=30.0, timing=QUICK_TIMING)
FULL = Effort(name="full", variants=128, finalists=5, budget_seconds=600.0)

PROFILES = (NONE, QUICK, FULL)


def effort(name: str) -> Effort:
    """The profile of this name; raises UsageError for another."""
    for profile in PROFILES:
        if profile.name == name:
            return profile
    names = ", ".join(profile.name for profile in PROFILES)
    raise UsageError(f"no effort is called {name!r}", next_step=f"Use one of {names}.")
