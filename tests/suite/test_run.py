"""A run: every problem has one result at its end, whatever was killed on the way."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernelwright.errors import LockTimeoutError
from kernelwright.suite.journal import FILE, JournalError, read_journal
from kernelwright.suite.run import PROBLEMS, Run, point_latest
from kernelwright.suite.task import Task

from .conftest import SETTINGS, Audience, MakeTask, make_pool


def work(folder: Path, tasks: list[Task], audience: Audience, slots: int = 2) -> Run:
    run = Run(folder, SETTINGS)
    run.work(tasks, make_pool, slots=slots, facts={}, audience=audience)
    return run


def begun(folder: Path) -> list[str]:
    """Which problems had a process, in order."""
    return [line.split()[0] for line in (folder / "begun.txt").read_text().splitlines()]


def test_every_problem_has_a_row_and_its_files(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    names = ["level1/1_a", "level1/2_b", "level2/1_c"]
    tasks = [make_task("answer", problem=name) for name in names[:2]]
    tasks.append(make_task("segfault", problem=names[2]))
    run = work(tmp_path / "run", tasks, audience)
    assert [row.problem for row in run.rows(tasks)] == names
    assert [row.verified for row in run.rows(tasks)] == [True, True, False]
    assert sorted(row.problem for row in audience.rows) == names
    place = tmp_path / "run" / PROBLEMS
    assert json.loads((place / "level1/1_a.json").read_text())["words"] == "answer"
    assert (place / "level1/1_a.py").read_text() == "emitted\n"
    assert not (place / "level2/1_c.py").exists()
    lines = [json.loads(line) for line in (tmp_path / "run" / FILE).read_text().splitlines()]
    assert [line["event"] for line in lines].count("done") == 3


def test_what_is_done_is_not_done_again(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    tasks = [make_task("answer", problem=name) for name in "ab"]
    work(tmp_path / "run", tasks, audience)
    more = [*tasks, make_task("answer", problem="c")]
    run = work(tmp_path / "run", more, audience)
    assert sorted(begun(tmp_path)) == ["a", "b", "c"]
    assert len(run.rows(more)) == 3
    changed = [replace(more[0], key="of another text"), *more[1:]]
    assert [task.problem for task in run.left(changed)] == ["a"]


def test_a_run_is_continued_with_its_own_settings_only(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    work(tmp_path / "run", [make_task("answer")], audience)
    with pytest.raises(JournalError, match="other settings"):
        Run(tmp_path / "run", replace(SETTINGS, effort="full"))


@pytest.mark.parametrize(
    ("status", "summary"),
    [
        ("out of memory", "CUDA out of memory"),
        ("crashed", "while it was timed: DriverError: cuMemAlloc_v2 failed with CUDA error 2"),
        ("crashed", "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        ("crashed", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_what_lacked_memory_beside_others_is_tried_alone(
    tmp_path: Path, make_task: MakeTask, audience: Audience, status: str, summary: str
) -> None:
    lacking = {"status": status, "verified": False, "summary": summary}
    tasks = [make_task("answer", problem="a"), make_task("answer", problem="b", row=lacking)]
    run = work(tmp_path / "run", tasks, audience)
    assert sorted(begun(tmp_path)) == ["a", "b", "b", "b"]
    assert sorted(row.problem for row in audience.rows) == ["a", "b"]
    assert [row.status for row in run.rows(tasks)][1] == status


def test_what_lacked_memory_beside_many_is_tried_beside_fewer(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    lacking = {"status": "out of memory", "verified": False, "summary": "CUDA out of memory"}
    work(tmp_path / "run", [make_task("answer", problem="a", row=lacking)], audience, slots=4)
    assert begun(tmp_path) == ["a"] * 5
    assert len(audience.rows) == 1


def test_long_texts_are_begun_first_with_short_ones_in_between(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    sizes = {"p1": 1, "p2": 4000, "p3": 3, "p4": 3000, "p5": 2}
    keys = dict(zip(sizes, "cbaed", strict=True))
    tasks = [
        make_task(f"answer{' ' * size}", problem=name, row={"key": keys[name]})
        for name, size in sizes.items()
    ]
    run = Run(tmp_path / "run", SETTINGS)
    run.work(tasks, make_pool, slots=1, facts={}, audience=audience)
    assert begun(tmp_path) == ["p2", "p3", "p4", "p1", "p5"]
    assert [row.problem for row in run.rows(tasks)] == list(sizes)


def in_another_process(job: Callable[[], object]) -> int:
    """Its process id; it ends when the job does."""
    pid = os.fork()
    if pid == 0:
        try:
            job()
        finally:
            os._exit(0)
    return pid


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_suite_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, make_task: MakeTask, audience: Audience
) -> None:
    words = ["answer", "answer", "wait go", "wait go", "answer"]
    tasks = [make_task(text, problem=f"p{number}") for number, text in enumerate(words)]
    folder = tmp_path / "run"
    pid = in_another_process(lambda: work(folder, tasks, Audience()))
    wait_until(lambda: len(read_journal(folder).rows) == 2 and len(begun(tmp_path)) == 4)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    record = read_journal(folder)
    assert {row.problem for row in record.rows} == {"p0", "p1"}
    assert set(record.unfinished) == {"p2", "p3"}
    orphans = [int(line.split()[1]) for line in (tmp_path / "begun.txt").read_text().splitlines()]
    wait_until(lambda: not any(map(is_alive, orphans)))
    (tmp_path / "go").touch()
    run = work(folder, tasks, audience)
    assert [row.problem for row in run.rows(tasks)] == [f"p{number}" for number in range(5)]
    assert all(row.verified for row in run.rows(tasks))
    assert sorted(row.problem for row in audience.rows) == ["p2", "p3", "p4"]
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    finished = [line["row"]["problem"] for line in lines if line["event"] == "done"]
    assert sorted(finished) == [f"p{number}" for number in range(5)]


def test_two_processes_do_not_work_on_one_run(tmp_path: Path, make_task: MakeTask) -> None:
    task = make_task("wait go")
    folder = tmp_path / "run"
    pid = in_another_process(lambda: work(folder, [task], Audience()))
    wait_until(lambda: bool(read_journal(folder).unfinished))
    with pytest.raises(LockTimeoutError):
        work(folder, [task], Audience())
    (tmp_path / "go").touch()
    os.waitpid(pid, 0)
    assert len(read_journal(folder).rows) == 1


def test_the_link_to_the_latest_run(tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        point_latest(folder)
    assert (tmp_path / "runs" / "latest").resolve().name == "second"
    point_latest(tmp_path / "elsewhere")
    assert not (tmp_path / "latest").exists()
