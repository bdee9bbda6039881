"""Tasks for a stand-in of the process that works on a problem, so that a test takes no time."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelwright.report.row import Ending, Row
from kernelwright.suite.pool import LocalPool, Pool, Watcher
from kernelwright.suite.task import Settings, Task, Work

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
SETTINGS = Settings(
    work=Work.OPTIMIZE, target="cpu", effort="quick", seeds=1, baselines=(), timeout=20.0
)

MakeTask = Callable[..., Task]


def row_of(problem: str, **changes: Any) -> Row:
    """A verified row."""
    return replace(
        Row(
            problem=problem,
            level=problem.rpartition("/")[0],
            key=f"key of {problem}",
            ending=Ending.JUDGED,
            status="verified, speed not measured",
            verified=True,
            summary="right",
            seconds={"verify": 0.5},
        ),
        **changes,
    )


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """`make_task("hang", problem="3_x", timeout=1.0)`; `row={"status": ...}` changes its row."""

    def make(
        words: str,
        *,
        problem: str = "one",
        timeout: float = SETTINGS.timeout,
        row: Mapping[str, Any] | None = None,
    ) -> Task:
        answer = row_of(problem, **(row or {}))
        return Task(
            problem=problem,
            level=answer.level,
            key=answer.key,
            path=str(tmp_path / f"{problem.rpartition('/')[2]}.py"),
            source=f"{words}\n{json.dumps(answer.to_json())}",
            settings=replace(SETTINGS, timeout=timeout),
        )

    return make


class Audience:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stages: list[tuple[str, str]] = []

    def on_stage(self, task: Task, card: str, stage: str, message: str) -> None:
        self.stages.append((task.problem, stage))

    def on_row(self, row: Row) -> None:
        self.rows.append(row)


@pytest.fixture
def audience() -> Audience:
    return Audience()


def make_pool(slots: int, watcher: Watcher) -> Pool:
    """A pool of stand-ins."""
    return LocalPool(["0"], slots, watcher, command=STAND_IN)
