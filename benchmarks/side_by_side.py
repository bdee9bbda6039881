"""Tasks in processes of their own, as many at a time as there are cores, within so many seconds.

    records = run_tasks(tasks, work, options)

`work(task, keep)` runs in a process; each `keep(name=value)` is there even if the process ends in
the next moment. A record is a line of the journal when its process ends, or the time does. A second
run with the same journal goes on where the first one stopped.
"""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Keep = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process's work."""

    name: str
    """What its record is called in the journal; no two are the same."""
    facts: Record
    """What its record has from the beginning; `work` reads from it what to do."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long and how much at a time."""

    journal: Path
    seconds: float
    """After these nothing more is begun, and what runs is ended."""
    processes: int
    longest: float = 150.0
    """Seconds that a task may take: then its process ends."""
    preload: tuple[str, ...] = ()
    """Modules that the processes find imported."""


def run_tasks(
    tasks: Sequence[Task], work: Callable[[Task, Keep], None], limits: Limits
) -> Iterator[Record]:
    """Records of the tasks that the journal does not have as whole, each when it is known."""
    done = {it["task"] for it in read(limits.journal) if it.get("is_whole")}
    waiting = [task for task in tasks if task.name not in done]
    # As many processes compile as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    context: BaseContext = multiprocessing.get_context("forkserver")
    multiprocessing.set_forkserver_preload(list(limits.preload))
    end = time.monotonic() + limits.seconds
    running: dict[str, tuple[Task, BaseProcess, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < limits.processes:
                task = waiting.pop(0)
                path = Path(folder) / f"{len(waiting)}.json"
                process = context.Process(target=_child, args=(work, task, path))
                process.start()
                running[str(path)] = task, process, time.monotonic()
            for path, (task, process, began) in list(running.items()):
                if process.is_alive() and time.monotonic() - began < limits.longest:
                    continue
                _end(process)
                del running[path]
                yield _noted(Path(path), task, limits.journal)
            time.sleep(0.05)
        for path, (task, process, _) in running.items():
            _end(process)
            if Path(path).exists():
                yield _noted(Path(path), task, limits.journal)


def read(journal: Path) -> list[Record]:
    """The lines of a journal, of each task the last."""
    if not journal.exists():
        return []
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    return list({it["task"]: it for it in lines}.values())


def _child(work: Callable[[Task, Keep], None], task: Task, path: Path) -> None:
    record: Record = {"task": task.name, **task.facts}

    def keep(**found: Any) -> None:
        record.update(found)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(record))
        part.replace(path)

    try:
        work(task, keep)
        keep(is_whole=True)
    except Exception as error:  # The others go on; the record says what happened.
        keep(failed=f"{type(error).__name__}: {error}"[:1500])


def _end(process: BaseProcess) -> None:
    if process.is_alive():
        process.kill()
    process.join()


def _noted(path: Path, task: Task, journal: Path) -> Record:
    """What a process has found, which is a line of the journal now."""
    record: Record = {"task": task.name, **task.facts, "failed": "its process ended"}
    if path.exists():
        record = json.loads(path.read_text())
        if not record.get("is_whole"):
            record.setdefault("failed", "its process was ended")
    with journal.open("a") as file:
        file.write(json.dumps(record) + "\n")
    return record
