"""How long each problem took in an earlier run, so that a later one can begin with the longest.

A run that ends with a long problem waits for it on an empty machine.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernelwright.errors import UsageError
from kernelwright.suite.journal import read_journal

_NEXT_STEP = (
    "Name the folder of a run, as runs/latest, or a results file such as `docs/results` has."
)


def seconds_before(place: Path, problems: Iterable[str]) -> dict[str, float]:
    """Seconds of those of `problems` that gave an outcome in the run or results file at `place`.

    Raises UsageError for what is neither, and where it knows none of them.
    """
    rows = _rows_of_file(place) if place.is_file() else _rows_of_run(place)
    known: dict[str, float] = {}
    for row in rows:
        match row:
            case {"problem": str(problem), "seconds": dict(stages)} if stages:
                known[problem] = float(sum(stages.values()))
    seconds = {problem: known[problem] for problem in problems if problem in known}
    if not seconds:
        raise UsageError(f"{place} has no times of these problems", next_step=_NEXT_STEP)
    return seconds


def _rows_of_run(folder: Path) -> list[Any]:
    return [row.to_json() for row in read_journal(folder).rows]


def _rows_of_file(path: Path) -> list[Any]:
    """Those of a results file; UsageError for another one."""
    try:
        match json.loads(path.read_text(encoding="utf-8")):
            case {"rows": list(rows)}:
                return rows
    except ValueError:
        pass  # no JSON, or no text: said below
    raise UsageError(f"{path} has no rows of results", next_step=_NEXT_STEP)
