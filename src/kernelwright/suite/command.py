"""`kernelwright suite`: from what was asked on the command line to a finished run."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from kernelwright import env
from kernelwright.emulator.compile import build_shared
from kernelwright.errors import UsageError
from kernelwright.report.row import Row
from kernelwright.report.summary import Summary, summarise
from kernelwright.suite.awake import kept_awake
from kernelwright.suite.earlier import seconds_before
from kernelwright.suite.pool import LocalPool, Pool, RayPool, Watcher, slots_per_card
from kernelwright.suite.problems import Shard, find_problems, tasks_of
from kernelwright.suite.progress import Progress
from kernelwright.suite.provenance import provenance, visible_cards
from kernelwright.suite.run import Run, new_folder, point_latest
from kernelwright.suite.task import Settings, Task, Work
from kernelwright.tune.effort import effort
from kernelwright.verify.records import to_plain
from kernelwright.worker.options import Baseline

BASELINES = {
    "eager": Baseline.EAGER,
    "compile": Baseline.COMPILED,
    "max-autotune": Baseline.COMPILED_MAX,
}
"""Words of the command line."""
_ALL = "all"
_CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The command line of a suite."""

    places: tuple[Path, ...]
    """Folders to search and files to take."""
    select: tuple[str, ...] = ()
    candidates: Path | None = None
    folder: Path | None = None
    """Folder of the run; None for a new one."""
    like: Path | None = None
    """An earlier run or its results: what took longest there is begun first."""
    gpus: str = _ALL
    slots: int | None = None
    """Problems in flight on each card; None: as many as the cores can feed."""
    target: str
    effort: str
    seeds: int
    timeout: float
    baselines: str
    """Words of `BASELINES`, separated by commas."""
    ray: str | None = None
    shard: str = "0/1"
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A finished run."""

    folder: Path
    rows: tuple[Row, ...]
    summary: Summary


class _Speaker(Progress):
    """Progress, and each result as a line of JSON."""

    def __init__(self, total: int, done: int, console: Console, say: Callable[[str], None]) -> None:
        super().__init__(total, done, console)
        self._say = say

    def on_row(self, row: Row) -> None:
        """A problem is done."""
        super().on_row(row)
        self._say(json.dumps(row.to_json()))


def run_suite(request: Request, console: Console, say: Callable[[str], None]) -> Done:
    """Do what is left of the run; `say` gets a line of JSON for each result, the summary last.

    Results of an earlier start come first. Raises UsageError or JournalError for what cannot be
    begun; what goes wrong with a problem is a row.
    """
    with kept_awake() if request.target == _CUDA else nullcontext():
        return _run(request, console, say)


def _run(request: Request, console: Console, say: Callable[[str], None]) -> Done:
    settings = _settings(request)
    shard = Shard.parse(request.shard)
    if request.candidates is not None and not request.candidates.is_dir():
        raise UsageError(f"{request.candidates} is no folder", next_step="Check --candidates.")
    found = find_problems(request.places, request.select, shard)
    tasks = tasks_of(found, settings, request.candidates)
    names = [task.problem for task in tasks]
    seconds = seconds_before(request.like, names) if request.like else {}
    folder = request.folder or new_folder()
    run = Run(folder, settings)
    before = run.rows(tasks)
    for row in before:
        say(json.dumps(row.to_json()))
    audience = _Speaker(len(tasks), len(before), console, say)
    cards = _cards(request)
    slots = request.slots or slots_per_card(len(cards))
    folder.mkdir(parents=True, exist_ok=True)
    point_latest(folder)
    if run.left(tasks):
        place = f"each of {len(cards)} GPUs" if settings.target == _CUDA else "the emulator"
        console.print(
            f"{len(tasks) - len(before)} of {len(tasks)} problems to do, {slots} at a time on "
            f"{place}; if interrupted, continue with --run {folder}",
            highlight=False,
            soft_wrap=True,
        )
        if (note := crowding(slots, len(cards), env.usable_cores())) and request.ray is None:
            console.print(note, highlight=False, soft_wrap=True)

        def make_pool(slots: int, watcher: Watcher) -> Pool:
            if request.ray is not None:
                return RayPool(request.ray, slots, settings.target, watcher)
            return LocalPool(cards, slots, watcher)

        if settings.target != _CUDA:
            build_shared()  # once, and not in the time of the first problems
        counts = {"slots": slots, "gpus": len(cards), "problems": len(tasks)}
        facts = {**provenance(request.commit), **counts}
        with audience.shown():
            run.work(
                tasks,
                make_pool,
                slots=slots,
                facts=facts,
                audience=audience,
                shard=request.shard,
                seconds=seconds,
            )
    return _finished(folder, run, tasks, say)


def crowding(slots: int, cards: int, cores: int) -> str | None:
    """What to know of so many problems in flight on each of so many cards; None of usual counts.

    Each compiles, and their processes wait for one driver: ninety-six on 64 cores judged a third of
    what forty do.
    """
    usual = slots_per_card(cards)
    if slots <= usual or slots * cards <= cores:
        return None
    return (
        f"note: {slots * cards} problems at a time on {cores} cores wait for each other; "
        f"--slots counts those of one card, and {usual} is usual here"
    )


def _finished(folder: Path, run: Run, tasks: list[Task], say: Callable[[str], None]) -> Done:
    rows = run.rows(tasks)
    summary = summarise(rows)
    say(json.dumps({"summary": to_plain(summary), "folder": str(folder)}))
    return Done(folder=folder, rows=tuple(rows), summary=summary)


def _settings(request: Request) -> Settings:
    effort(request.effort)  # raises for a word that is none
    words = [word.strip() for word in request.baselines.split(",") if word.strip()]
    for word in words:
        if word not in BASELINES:
            step = f"Use some of {', '.join(BASELINES)}, separated by commas."
            raise UsageError(f"no baseline is called {word!r}", next_step=step)
    return Settings(
        work=Work.OPTIMIZE if request.candidates is None else Work.JUDGE,
        target=request.target,
        effort=request.effort,
        seeds=request.seeds,
        baselines=tuple(BASELINES[word] for word in words),
        timeout=request.timeout,
    )


def _cards(request: Request) -> list[str]:
    """Cards to work on; on the emulator one that has no name."""
    if request.gpus != _ALL and not (request.gpus.isdecimal() and int(request.gpus)):
        raise UsageError(f"--gpus {request.gpus!r}", next_step="Give a number from 1, or all.")
    if request.target != _CUDA:
        return [""]
    cards = visible_cards()
    if request.gpus == _ALL:
        return cards
    if int(request.gpus) > len(cards):
        step = f"Give a number from 1 to {len(cards)}, or all."
        raise UsageError(f"--gpus {request.gpus!r}", next_step=step)
    return cards[: int(request.gpus)]
