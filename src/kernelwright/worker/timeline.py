"""Where the start of a child goes: what it has done by when, on the clock that all processes share.

A child marks what it has just done and hands the marks over when it is ready, before any code of a
candidate's runs in it. Its parent charges what it waited for to what the child did meanwhile.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The end of one step."""

    step: str
    """"forked", "sandbox", "context"."""
    at: float
    """Seconds of the monotonic clock of the machine."""


class Timeline:
    """The steps of this process so far."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []

    def mark(self, step: str) -> None:
        """This step has just ended."""
        self._moments.append(Moment(step=step, at=time.monotonic()))

    @property
    def moments(self) -> tuple[Moment, ...]:
        """All of them, in order."""
        return tuple(self._moments)


def waited_for(
    moments: Sequence[Moment], began: float, since: float, until: float
) -> Iterator[tuple[str, float]]:
    """For each step the seconds of it that lie between `since` and `until`.

    The first step began at `began`, and each other one where the step before it ended.
    """
    for moment in moments:
        seconds = min(moment.at, until) - max(began, since)
        yield moment.step, max(0.0, seconds)
        began = moment.at


def age_of_this_process() -> float:
    """Seconds since the kernel started this process, to a hundredth; 0 where it does not say."""
    try:
        words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        up = float(Path("/proc/uptime").read_text().split()[0])
        return max(0.0, up - int(words[_START_TIME]) / _TICKS)
    except (OSError, ValueError, IndexError):
        return 0.0


_START_TIME = 19
"""Place of the time of the start among the words behind the name of the program (proc(5))."""
_TICKS = 100
"""Clock ticks to a second, for programs (USER_HZ)."""
