"""Work through a list of problems; what the journal knows is not done again.

run = Run(folder, settings)
run.work(tasks, make_pool, on_row=print)
summary = summarise(run.rows(tasks))
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from kernelwright.errors import UsageError
from kernelwright.report.row import Row
from kernelwright.suite.journal import VERSION, Event, Journal, JournalError, read_journal
from kernelwright.suite.pool import MakePool, Pool, Watcher
from kernelwright.suite.process import STARTING
from kernelwright.suite.task import Outcome, Settings, Task
from kernelwright.toolchain.lock import exclusive
from kernelwright.verify.records import to_plain
from kernelwright.verify.verdict import Status

PROBLEMS = "problems"
"""Folder below that of the run: for each problem a JSON file and the file that was judged."""
RUNS = "runs"
LATEST = "latest"
_LOCK_SECONDS = 2.0
_NO_MEMORY = (
    "out of memory",
    "cumemalloc_v2 failed with cuda error 2",
    "cudnn_status_internal_error",
    "cudnn_status_alloc_failed",
    "cublas_status_alloc_failed",
)
"""What is said, in small letters, where others may have had the memory: the driver by a number, and
the libraries by words that may mean other things as well, which shows when it is tried alone."""


_NOTHING: Mapping[str, float] = {}


class Audience(Watcher, Protocol):
    """Hears what happens while a run goes on."""

    def on_row(self, row: Row) -> None:
        """A problem is done, and on disk."""
        ...


class _Recorder:
    """Writes down what was begun, and tells the audience."""

    def __init__(self, journal: Journal, audience: Audience) -> None:
        self._journal = journal
        self._audience = audience

    def on_stage(self, task: Task, card: str, stage: str, message: str) -> None:
        """A watcher of a pool."""
        if stage == STARTING:
            self._journal.append(Event.STARTED, problem=task.problem, key=task.key, card=card)
        self._audience.on_stage(task, card, stage, message)


class Run:
    """A folder with a journal, which this process alone writes for its tasks."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        known = read_journal(folder)
        if known.settings is not None and known.settings != to_plain(settings):
            raise JournalError(f"{folder} is a run with other settings: {known.settings}")
        self._known = {row.problem: row for row in known.rows}

    def left(self, tasks: Sequence[Task]) -> list[Task]:
        """Those without a result for the texts that they have now."""
        return [task for task in tasks if not self._is_done(task)]

    def rows(self, tasks: Sequence[Task]) -> list[Row]:
        """The results of `tasks` so far, in their order."""
        return [self._known[task.problem] for task in tasks if self._is_done(task)]

    def work(
        self,
        tasks: Sequence[Task],
        make_pool: MakePool,
        *,
        slots: int,
        facts: Mapping[str, Any],
        audience: Audience,
        shard: str = "0/1",
        seconds: Mapping[str, float] = _NOTHING,
    ) -> None:
        """Do what is left of `tasks`; every result is on disk before the next is looked at.

        `seconds` is what problems took before: the longest come first, and before them those that
        it does not have.

        What ran out of memory twice beside others is tried beside fewer, then alone. Raises
        UsageError if another process works on the same shard in this folder.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = self._folder / f".{shard.replace('/', '-')}.lock"
        holding = exclusive(lock, what=f"the run {self._folder}", timeout=_LOCK_SECONDS)
        with holding, Journal(self._folder) as journal:
            fields = {"settings": to_plain(self._settings), "provenance": dict(facts)}
            journal.append(Event.RUN, version=VERSION, shard=shard, **fields)
            crowded: list[Task] = []
            for count in dict.fromkeys((slots, max(1, slots // 2), 1)):
                todo = in_turn(crowded if count < slots else self.left(tasks), seconds)
                make = partial(make_pool, count, _Recorder(journal, audience))
                crowded = self._together(todo, make, count, journal, audience)

    def _together(
        self,
        tasks: Sequence[Task],
        make_pool: Callable[[], Pool],
        slots: int,
        journal: Journal,
        audience: Audience,
    ) -> list[Task]:
        """Do the tasks in turn, so many on a card at a time; those that had too little memory.

        Such a one is tried once more behind all others, where it is likely to have more room.
        """
        crowded: list[Task] = []
        if not tasks:
            return crowded
        tried: set[str] = set()
        with make_pool() as pool:
            futures = {pool.submit(task): task for task in tasks}
            for task, outcome in _as_they_end(futures):
                if slots == 1 or not _lacked_memory(outcome.row):
                    self._keep(task, outcome)
                    journal.append(Event.DONE, row=outcome.row.to_json(), date=_now())
                    self._known[task.problem] = outcome.row
                    audience.on_row(outcome.row)
                elif task.problem in tried:
                    crowded.append(task)
                else:
                    tried.add(task.problem)
                    futures[pool.submit(task)] = task
        return crowded

    def _keep(self, task: Task, outcome: Outcome) -> None:
        place = self._folder / PROBLEMS / task.problem
        place.parent.mkdir(parents=True, exist_ok=True)
        details = {"row": outcome.row.to_json(), "source": task.source, **outcome.details}
        _write(place.with_name(f"{place.name}.json"), json.dumps(details))
        if outcome.emitted:
            _write(place.with_name(f"{place.name}.py"), outcome.emitted)

    def _is_done(self, task: Task) -> bool:
        row = self._known.get(task.problem)
        return row is not None and row.key == task.key


def _as_they_end(futures: dict[Future[Outcome], Task]) -> Iterator[tuple[Task, Outcome]]:
    """Tasks and what became of them; more may be added meanwhile."""
    while futures:
        ended, _ = wait(futures, return_when=FIRST_COMPLETED)
        for future in ended:
            yield futures.pop(future), future.result()


_LONG = 2048
"""Characters of a problem that is a whole model rather than a few calls."""


def in_turn(tasks: Sequence[Task], seconds: Mapping[str, float]) -> list[Task]:
    """The order to begin in: what took longest before, which nothing should wait for at last.

    Every other one comes from the middle third, for the cards to do something while models of many
    layers are traced. What is not known goes first, since it may be the longest: long texts, which
    are such models, and short ones in between. Those are mixed: neighbours in a folder are alike,
    and would all want the same at a time.
    """
    unknown = [task for task in tasks if task.problem not in seconds]
    unknown.sort(key=lambda task: -len(task.source))
    long = [task for task in unknown if len(task.source) >= _LONG]
    short = sorted((task for task in unknown if task not in long), key=lambda task: task.key)
    known = [task for task in tasks if task.problem in seconds]
    known.sort(key=lambda task: -seconds[task.problem])
    third = len(known) // 3
    longest, middle, shortest = known[:third], known[third : 2 * third], known[2 * third :]
    return [*_alternately(long, short), *_alternately(longest, middle), *shortest]


def _alternately(these: Sequence[Task], those: Sequence[Task]) -> Iterator[Task]:
    for pair in zip_longest(these, those):
        yield from (task for task in pair if task is not None)


def _lacked_memory(row: Row) -> bool:
    said = (row.summary, row.trouble.message if row.trouble else "", row.note, *row.lost.values())
    words = " ".join(said).lower()
    return row.status == Status.OUT_OF_MEMORY.value or any(it in words for it in _NO_MEMORY)


def _write(path: Path, text: str) -> None:
    """In one step, so that no half file is ever seen."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_folder() -> Path:
    """A folder below `runs` named after the time; `runs/latest` leads to the last one begun."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%d_%H-%M-%S")
    return Path(RUNS) / stamp


def point_latest(folder: Path) -> None:
    """Let `runs/latest` lead to `folder`, if that lies in `runs`."""
    if folder.absolute().parent.name != RUNS:
        return
    link = folder.absolute().parent / LATEST
    if link.exists() and not link.is_symlink():
        raise UsageError(f"{link} is no link", next_step="Move it away.")
    unfinished = link.with_name(f".{LATEST}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(folder.absolute().name)
    unfinished.replace(link)
