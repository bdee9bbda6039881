"""Room verify: is a candidate right?

Pure functions over tensors and facts: input cases, the float64 oracle, the tolerance, comparison,
checks, the verdict. It runs nothing of a stranger's; `verify` asks a `Session` (room worker) to.
The modules that need torch are imported when something of theirs is first asked for.
"""

from typing import TYPE_CHECKING, Any

from kernelwright.verify.static.reading import read_candidate
from kernelwright.verify.verdict import Check, Outcome, Status, Verdict

if TYPE_CHECKING:
    from kernelwright.verify.cases import STRICT, Case, Demand, Demands, Layout, Weights
    from kernelwright.verify.distributions import Distribution
    from kernelwright.verify.tolerance import CPU_STAND_IN, NO_LESS_ACCURATE, Tolerance
    from kernelwright.verify.verification import Event, Progress, Session, verify

__all__ = [
    "CPU_STAND_IN",
    "NO_LESS_ACCURATE",
    "STRICT",
    "Case",
    "Check",
    "Demand",
    "Demands",
    "Distribution",
    "Event",
    "Layout",
    "Outcome",
    "Progress",
    "Session",
    "Status",
    "Tolerance",
    "Verdict",
    "Weights",
    "read_candidate",
    "verify",
]

_HOME = {
    "CPU_STAND_IN": "tolerance",
    "NO_LESS_ACCURATE": "tolerance",
    "STRICT": "cases",
    "Case": "cases",
    "Demand": "cases",
    "Demands": "cases",
    "Distribution": "distributions",
    "Event": "verification",
    "Layout": "cases",
    "Progress": "verification",
    "Session": "verification",
    "Tolerance": "tolerance",
    "Weights": "cases",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
