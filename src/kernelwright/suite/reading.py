"""A finished or unfinished run from its folder, for reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.report.run_data import RunData
from kernelwright.suite.journal import JournalError, read_journal
from kernelwright.suite.run import PROBLEMS


def read_run(folder: Path) -> RunData:
    """Everything that is in the folder of a run; raises JournalError if it is none."""
    record = read_journal(folder)
    if not record.headers:
        step = "Name the folder of a run: the suite prints it, and runs/latest is the last one."
        raise JournalError(f"there is no run in {folder}", next_step=step)
    # What was continued has results of all commits, and maybe of fewer problems at the end.
    starts = [header["provenance"] for header in record.headers]
    largest = max(starts, key=lambda facts: facts.get("problems", 0))
    commits = dict.fromkeys(facts.get("commit") for facts in starts)
    places = {row.problem: folder / PROBLEMS / row.problem for row in record.rows}
    return RunData(
        name=folder.resolve().name,
        facts={**largest, "commit": ", ".join(filter(None, commits)) or None},
        settings=record.headers[-1]["settings"],
        rows=record.rows,
        details={problem: _details(place) for problem, place in places.items()},
    )


def _details(place: Path) -> Mapping[str, Any]:
    """What was kept of a problem; empty where its file is gone."""
    try:
        details: dict[str, Any] = json.loads(place.with_name(f"{place.name}.json").read_text())
    except (OSError, ValueError):
        return {}
    emitted = place.with_name(f"{place.name}.py")
    return {**details, "emitted": emitted.read_text()} if emitted.is_file() else details
