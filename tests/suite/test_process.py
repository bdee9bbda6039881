"""One problem in a process of its own: whatever that does, there is an outcome."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.report.row import Ending
from kernelwright.suite import pool, process
from kernelwright.suite.child import Reporter, keep_to
from kernelwright.suite.process import IMPORTED, Running, nursery_environment, run_task
from kernelwright.suite.task import Outcome, Place, Task
from kernelwright.toolchain.launches import launches_library
from kernelwright.verify.verification import Event
from kernelwright.worker.process.nursery import LOADED_FIRST, Birth, Nursery

from .conftest import STAND_IN, MakeTask

Run = Callable[[Task], Outcome]


def run(task: Task, running: Running | None = None) -> Outcome:
    return run_task(task, Place(threads=1), running=running, source=STAND_IN)


def test_an_outcome_comes_back_whole(make_task: MakeTask) -> None:
    stages: list[str] = []
    outcome = run_task(
        make_task("answer"),
        Place(threads=1),
        on_stage=lambda stage, message: stages.append(stage),
        source=STAND_IN,
    )
    assert outcome.row.verified
    assert outcome.row.seconds == {"verify": 0.5}
    assert outcome.emitted == "emitted\n"
    assert outcome.details["words"] == "answer"
    assert [stage for _, stage, _ in outcome.details["timeline"]] == stages
    assert stages == ["ready", "work"]


def test_without_its_nursery_a_process_is_started(
    make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CHILD", STAND_IN)
    nursery = Nursery.started([], dict(os.environ))
    nursery.close()
    outcome = run_task(make_task("answer"), Place(threads=1), source=nursery)
    assert outcome.row.verified


def test_what_a_suite_imports_beforehand_starts_no_thread() -> None:
    """Else its nursery forks nothing, and every process imports PyTorch by itself."""
    nursery = Nursery.started(IMPORTED, nursery_environment(watches=False))
    _, theirs = os.pipe()
    birth = Birth(module="this", arguments=(), environment={"PATH": os.defpath})
    forked = nursery.start(birth, theirs)  # OSError where nothing is forked
    assert forked.pid > 0
    forked.wait(60)
    nursery.close()


def test_a_flood_of_text_does_no_harm(make_task: MakeTask) -> None:
    assert run(make_task("flood")).row.verified


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("segfault", "the process was ended by SIGSEGV during 'work'"),
        ("exit", "the process exited with 0 during 'work'"),
    ],
)
def test_a_process_that_dies_is_one_row(make_task: MakeTask, words: str, message: str) -> None:
    row = run(make_task(words)).row
    assert (row.ending, row.verified, row.attempts) == (Ending.CRASHED, False, 1)
    assert row.summary == message
    assert row.trouble is not None
    assert row.trouble.next_step


def test_a_process_that_hangs_is_ended_and_says_where_it_was(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelwright.suite.process._CLEAN_UP_SECONDS", 0.2)
    # The stand-in writes its own stack, so that it stands in for the problem's file here.
    task = make_task("hang", problem="stand_in", timeout=0.5)
    began = time.monotonic()
    row = run(task).row
    assert row.ending is Ending.TIMED_OUT
    assert "0.5 s" in row.summary
    assert row.trouble is not None
    assert row.trouble.location is not None
    assert row.trouble.location.startswith(str(tmp_path / "stand_in.py:"))
    assert time.monotonic() - began < 15
    pid = int((tmp_path / "begun.txt").read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(("count", "ending"), [(1, Ending.JUDGED), (9, Ending.CRASHED)])
def test_a_process_that_somebody_kills_is_begun_once_more(
    make_task: MakeTask, count: int, ending: Ending
) -> None:
    row = run(make_task(f"killed {count}")).row
    assert row.attempts == 2
    assert row.ending is ending


def test_all_that_runs_can_be_ended_at_once(make_task: MakeTask) -> None:
    running = Running()
    running.end()
    began = time.monotonic()
    assert run(make_task("sleep 60"), running).row.ending is Ending.CRASHED
    assert time.monotonic() - began < 10


def test_those_who_are_timed_move_to_cores_of_their_own() -> None:
    mine = os.sched_getaffinity(0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        keep_to([min(mine)])
        assert os.sched_getaffinity(0) == os.sched_getaffinity(child.pid) == {min(mine)}
    finally:
        os.sched_setaffinity(0, mine)
        child.kill()
        child.wait()


def test_they_move_when_the_card_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[object] = []
    monkeypatch.setattr("kernelwright.suite.child.keep_to", moved.append)
    ours, theirs = os.pipe()
    reporter = Reporter(theirs, [4, 5])
    for stage, message in (("verify", "timing"), ("time", "preparing eager")):
        reporter.event(Event(stage=stage, message=message, done=1, total=2))
    assert moved == []
    for done in (10, 20):
        reporter.event(Event(stage="time", message="timing candidate in turns", done=done, total=2))
    assert moved == [[4, 5]]
    os.close(ours)


def test_every_card_has_its_own_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(100, 116)))
    places = pool.places_of(["0", "1"], threads=4)
    assert places["0"].timing_cores == (100, 101)
    assert places["0"].cores == tuple(range(102, 108))
    assert places["1"].timing_cores == (108, 109)
    assert places["1"].cores == tuple(range(110, 116))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert pool.places_of([""], threads=1)[""].cores == ()


def test_processes_that_count_launches_come_from_one_that_has_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LOADED_FIRST, "/of/the/user.so")
    assert nursery_environment(watches=False)[LOADED_FIRST] == "/of/the/user.so"
    first, second = nursery_environment(watches=True)[LOADED_FIRST].split()
    assert first == str(launches_library())
    assert second == "/of/the/user.so"
