"""What there is to do for one problem, and what came of it: both travel between machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kernelwright.report.row import Row
from kernelwright.worker.options import Baseline


class Work(Enum):
    """Which half of the line to run."""

    OPTIMIZE = "optimize"
    JUDGE = "judge"
    """Somebody's candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What holds for every problem of a run; a run is continued with the same ones only."""

    work: Work
    target: str
    """"cuda" or "cpu"."""
    effort: str
    seeds: int
    baselines: tuple[Baseline, ...]
    timeout: float
    """Seconds for one problem, from the moment its process is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem, with all its texts: the machine that works on it may not see our files."""

    problem: str
    """Name of its row: "level1/19_ReLU"."""
    level: str
    key: str
    path: str
    """Where the file is here; messages name it."""
    source: str
    candidate_path: str = ""
    candidate: str = ""
    """Text of the candidate, where one is judged."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a task runs."""

    card: str = ""
    """What CUDA_VISIBLE_DEVICES names, "" for none or all that there are."""
    threads: int
    """Compilers and threads at a time."""
    cores: tuple[int, ...] = ()
    """Where the work may run, compilers above all; (): anywhere."""
    timing_cores: tuple[int, ...] = ()
    """Where the processes go that are being timed: nobody else is there. (): nowhere special."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a task."""

    row: Row
    details: Mapping[str, Any]
    """For people who want to know all: verdict, plan, graphs, configuration, as JSON values."""
    emitted: str = ""
    """Text of the file that was judged."""
