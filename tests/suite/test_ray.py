"""The same work over Ray, on this machine; skipped where Ray is not installed."""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from kernelwright.errors import UsageError
from kernelwright.suite.pool import Pool, RayPool, Watcher
from kernelwright.suite.run import Run

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
