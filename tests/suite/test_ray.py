"""The same work over Ray, on this machine; skipped where Ray is not installed."""

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.pool import Pool, RayPool, Watcher
from kernelwright.suite.process import run_task
from kernelwright.suite.run import Run
from kernelwright.suite.task import Outcome, Place, Task

from .conftest import SETTINGS, STAND_IN, Audience, MakeTask

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'kernelwright[ray]'"
)


def make_pool(slots: int, watcher: Watcher) -> Pool:
    return RayPool("local", slots, "cpu", watcher, command=STAND_IN)


def test_without_ray_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, audience: Audience
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError) as error:
        RayPool("local", 1, "cpu", audience)
    assert "kernelwright[ray]" in error.value.next_step


class _Lost(Exception):
    """In place of `ray.exceptions.RayError`."""


def test_what_ray_gives_up_costs_that_problem_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    def remote(task: Task, command: Sequence[str]) -> SimpleNamespace:
        answer: Future[Outcome] = Future()
        if task.problem == "b":
            answer.set_exception(_Lost("The worker died four times.\nIts log is long."))
        else:
            answer.set_result(run_task(task, Place(threads=1), source=command))
        return SimpleNamespace(future=lambda: answer)

    environment: dict[str, str] = {}
    stand_in = SimpleNamespace(
        init=lambda **kwargs: environment.update(os.environ),
        remote=lambda **resources: lambda function: SimpleNamespace(remote=remote),
        exceptions=SimpleNamespace(RayError=_Lost),
        shutdown=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    tasks = [make_task("answer", problem=name) for name in "abc"]
    run = Run(tmp_path / "run", SETTINGS)
    run.work(tasks, make_pool, slots=1, facts={}, audience=audience)
    assert [row.verified for row in run.rows(tasks)] == [True, False, True]
    assert run.rows(tasks)[1].summary == "Ray gave it up: The worker died four times."
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"


@needs_ray
def test_a_killed_ray_worker_costs_nothing(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    words = {"a": "answer", "b": "killed 9", "c": "wait go"}
    tasks = [make_task(text, problem=name) for name, text in words.items()]
    run = Run(tmp_path / "run", SETTINGS)
    log = tmp_path / "begun.txt"

    def kill_worker_of_c() -> None:
        pid = next(int(line.split()[1]) for line in lines() if line.startswith("c "))
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), signal.SIGKILL)
        (tmp_path / "go").touch()

    def lines() -> list[str]:
        return log.read_text().splitlines() if log.exists() else []

    helper = os.fork()
    if helper == 0:
        signal.alarm(100)  # whatever becomes of the test
        while not any(line.startswith("c ") for line in lines()):
            time.sleep(0.05)
        kill_worker_of_c()
        os._exit(0)
    run.work(tasks, make_pool, slots=1, facts={}, audience=audience)
    os.waitpid(helper, 0)
    assert [row.problem for row in run.rows(tasks)] == ["a", "b", "c"]
    assert [row.verified for row in run.rows(tasks)] == [True, False, True]
    assert sorted(row.problem for row in audience.rows) == ["a", "b", "c"]
    assert sum(line.startswith("c ") for line in lines()) == 2
