"""What is tried after a trace that failed: a little less open than what failed."""

from dataclasses import dataclass, replace

from kernelwright.capture.arguments import Arguments
from kernelwright.capture.errors import (
    NumberAskedError,
    ScalarNeededError,
    SymbolicWorkError,
    TraceError,
    UnlikeCallError,
    UnsolvedSizeError,
    UnsupportedValueError,
)
from kernelwright.capture.openness import Extent, OpenSizes
from kernelwright.capture.sources import first_line

RETRIED = (
    *(TraceError, ScalarNeededError, UnsupportedValueError),
    *(NumberAskedError, UnlikeCallError, SymbolicWorkError, UnsolvedSizeError),
)
"""Exceptions after which something less open may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One way to trace a module."""

    sizes: OpenSizes
    why_sizes: str = ""
    """Why no more sizes are open, from the attempt before."""
    constants: frozenset[str] = frozenset()
    """Names of the numbers that are held fast."""
    why_constants: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What this gives up, and why; for the user."""
        extent, numbers = _EXTENTS[self.sizes.extent], ", ".join(sorted(self.constants))
        given_up = {
            extent: self.why_sizes,
            **{
                f"size {dim} of {path} is that of the capture": _UNREADABLE
                for path, dim in sorted(filter(self.sizes.reaches, self.sizes.held))
            },
            f"the value of {numbers} is that of the capture": self.why_constants,
        }
        return tuple(f"{what} ({why})" for what, why in given_up.items() if why)


_EXTENTS = {
    Extent.ALL: "",
    Extent.BATCH: "sizes but for the first of each argument are those of the capture",
    Extent.NONE: "sizes are those of the capture",
}
_UNREADABLE = "what it depends on cannot be read from the arguments"


def following(attempt: Attempt, failure: Exception, arguments: Arguments) -> Attempt | None:
    """The attempt after one that failed, None after the last.

    A size that cannot be open is held. Otherwise numbers are held, one after another and then all
    of them; when that is through, or where sizes cost too much, fewer sizes are open.
    """
    why = told(failure)
    if isinstance(failure, UnsolvedSizeError):
        blamed = frozenset(filter(attempt.sizes.has, failure.places))
        if blamed:
            return replace(attempt, sizes=attempt.sizes.without(blamed))
    choices = [frozenset[str](), *_constants(arguments)]
    rest = choices[choices.index(attempt.constants) + 1 :]
    if rest and not isinstance(failure, SymbolicWorkError):
        return replace(attempt, constants=rest[0], why_constants=why)
    extents = list(Extent)
    narrower = extents[extents.index(attempt.sizes.extent) + 1 :]
    return Attempt(sizes=OpenSizes(narrower[0]), why_sizes=why) if narrower else None


def _constants(arguments: Arguments) -> list[frozenset[str]]:
    """Which numbers to hold fast: one after another, then all of them."""
    numbers = arguments.numbers
    single = [frozenset({number}) for number in numbers]
    return list(dict.fromkeys([*single, frozenset(numbers)])) if numbers else []


def told(failure: Exception) -> str:
    """Why an attempt failed, in one line for the user."""
    match failure:
        case SymbolicWorkError():
            return "with more sizes open, tracing takes too long"
        case UnsolvedSizeError():
            return _UNREADABLE
        case TraceError() | NumberAskedError() | UnlikeCallError():
            return str(failure)
    return first_line(failure)
