"""Judge the collection of attacking, honest and broken candidates on the GPU, and the judge itself.

    python benchmarks/judge.py record                  # all of it, as below
    python benchmarks/judge.py record --only decoy     # files whose names have this in them
    python benchmarks/judge.py record --update FILE    # from an earlier record, as far as time goes
    python benchmarks/judge.py memory                  # a problem of 12.9 GB: peak and seconds
    python benchmarks/judge.py folder PROBLEM FILE...  # files from elsewhere, nothing is written

`record` judges every file of tests/exploits, some honest ones a second time (do two judgements
agree?), the reference as its own candidate (is it ever called faster?), and one large problem (how
much memory do the judge's processes take?), which has its card to itself. Several judgements run
side by side on each other card (--cards 0 1 2 3 for some of them only); the clock is alone on its
card all the same. benchmarks/results/judge.json is written after every result, with what
produced it; when the time is up, what has not been reached is named in it. --update begins with the
rows of an earlier record: what it has of another commit is judged again and replaced, what it lacks
or has no verdict on first of all; each row says which run it is of.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from cards import Cards, Task  # noqa: E402
from device_memory import PeakMemory  # noqa: E402
from provenance import provenance  # noqa: E402

from exploits.table import TABLE, Entry  # noqa: E402
from kernelwright import pipeline  # noqa: E402
from kernelwright.bench.timing import TimingPlan  # noqa: E402
from kernelwright.errors import KernelwrightError  # noqa: E402
from kernelwright.problem import load_problem, measure  # noqa: E402
from kernelwright.suite.provenance import visible_cards  # noqa: E402
from kernelwright.verify.cases import Case  # noqa: E402
from kernelwright.verify.verdict import Outcome, Status  # noqa: E402
from kernelwright.verify.verification import Event, Progress  # noqa: E402
from kernelwright.worker.options import (  # noqa: E402
    Baseline,
    Haste,
    JudgeOptions,
    Sanitizers,
    Speed,
    Timeouts,
)

EXPLOITS = ROOT / "tests" / "exploits"
LARGE = ROOT / "benchmarks" / "large"
RESULTS = ROOT / "benchmarks" / "results" / "judge.json"
_VERIFIED = {status.value for status in Status if status.verified}
_PLAN = TimingPlan(warm_up_seconds=0.2, samples=60, seconds=0.5, most_seconds=6.0)
"""Shorter than a user's: there are two hundred of them."""
_SHORT_PLAN = replace(_PLAN, samples=20)
"""For files that have nothing to hide: what is asked is whether their times are believed."""
_TIMEOUTS = Timeouts(start=120.0, build=180.0, run=60.0, compile=120.0)


def _quiet(event: Event) -> None:
    pass


def judge_entry(entry: Entry, options: JudgeOptions, progress: Progress = _quiet) -> dict[str, Any]:
    """The verdict on a file of the collection, from copies: an attack may write beside itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem = Path(shutil.copy(EXPLOITS / "problems" / f"{entry.problem}.py", folder))
        candidate = Path(shutil.copy(EXPLOITS / entry.file, folder / "candidate.py"))
        wanted = Sanitizers.ALL if entry.sanitize else Sanitizers.MEMCHECK
        asked = replace(options, sanitizers=wanted)
        if entry.file.startswith(_HONEST):
            # It is right, so what watches its kernels is needed.
            asked = replace(asked, timing=_SHORT_PLAN, haste=Haste.WATCHED_FIRST)
        return judge_pair(problem, candidate, asked, progress)


def judge_pair(
    problem: Path, candidate: Path, options: JudgeOptions, progress: Progress = _quiet
) -> dict[str, Any]:
    """What `judge` says, shortened."""
    start = time.perf_counter()
    try:
        verdict, measurement = pipeline.judge(
            problem,
            candidate,
            target=pipeline.default_target(),
            options=options,
            progress=progress,
        )
    except KernelwrightError as error:
        return {"status": type(error).__name__, "summary": str(error)[:300], "seconds": 0.0}
    told = [
        f"{check.outcome.value} {check.name}: {check.evidence}"[:400]
        for check in verdict.checks
        if check.outcome is Outcome.WARNING
        or check.outcome is Outcome.FAILED
        or check.name in _TOLD
    ]
    speedups = [
        {
            "baseline": item.baseline,
            "device": [item.device.low, item.device.value, item.device.high],
            "host": [item.host.low, item.host.value, item.host.high],
        }
        for item in measurement.speedups
    ]
    return {
        "status": verdict.status.value,
        "summary": verdict.summary[:400],
        "told": told,
        "note": measurement.note,
        "speedups": speedups,
        "spent": dict(verdict.spent),
        "seconds": round(time.perf_counter() - start, 1),
    }


_TOLD = ("what ran", "decoys", "sanitizers", "isolation", "timer", "time from outside")
"""Checks that are recorded though they passed."""


def judge_reference(
    problem_name: str, options: JudgeOptions, progress: Progress = _quiet
) -> dict[str, Any]:
    """The reference as its own candidate, on a single input: what is asked is the clock."""
    problem = EXPLOITS / "problems" / f"{problem_name}.py"
    with tempfile.TemporaryDirectory() as folder:
        candidate = Path(folder) / f"{problem_name}_new.py"
        candidate.write_text(problem.read_text() + _IDENTITY)
        single = replace(options, seeds=1, cases=(Case(),))
        row = judge_pair(problem, candidate, single, progress)
    return {"problem": problem_name} | row


def judge_elsewhere(
    pair: "Pair", options: JudgeOptions, progress: Progress = _quiet
) -> dict[str, Any]:
    """The verdict on files of others."""
    return judge_pair(pair.problem, pair.candidate, options, progress)


def judge_large(_: None, options: JudgeOptions, progress: Progress = _quiet) -> dict[str, Any]:
    """A large problem as a user judges it; what all of the judge's processes take of the card.

    "extra" is what they take beyond one plain run of the candidate, which is the inputs and the
    results once: copies of either, what is expected, and the context of every process.
    """
    problem = load_problem(LARGE / "leaky_relu.py")
    needed = measure(problem).bytes
    asked = JudgeOptions(speed=options.speed, timeouts=options.timeouts)
    with PeakMemory() as memory:

        def watched(event: Event) -> None:
            memory.begin(event.stage)
            progress(event)

        row = judge_pair(problem.path, LARGE / "leaky_relu_by_four.py", asked, watched)
    return {
        "problem": problem.name,
        "problem bytes": needed,
        "peak bytes": memory.bytes,
        "peak bytes by stage": memory.by_stage,
        "extra, times the problem": round(memory.bytes / needed - 1, 2),
    } | row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A line of a file that names files of others: PROBLEM CANDIDATE attack|honest.

    Paths are from that file's folder; the candidate's own folder is the name of a collection.
    """

    problem: Path
    candidate: Path
    kind: str


def read_pairs(path: Path | None) -> list[Pair]:
    """All lines of the file; none without one."""
    lines = path.read_text().splitlines() if path else []
    words = [line.split() for line in lines if line.strip()]
    return [
        Pair(problem=path.parent / problem, candidate=path.parent / candidate, kind=kind)
        for problem, candidate, kind in words
        if path
    ]


_IDENTITY = """

class ModelNew(Model):
    pass
"""
_OF_ITSELF = ("swish", "softmax", "affine", "double_scale")
"""The last one is a few microseconds of launches."""
_ATTACKS, _HONEST = "attacks/", "honest/"
_SLOW_TO_BUILD = "torch/extension.h"
_AGAIN = ("vectorised_swish", "warp_softmax", "addmm", "norm_by_hand")


def tasks(only: list[str], runs: int, pairs: list[Pair]) -> list[Task]:
    """The large one, the honest and the broken; then attacks and others' files in turns with what
    is timed again and again: the former wait for compilers, the latter for the card.

    Of each kind what takes long to build comes first.
    """
    entries = [it for it in TABLE if not only or any(word in it.file for word in only)]
    entries.sort(key=lambda entry: _SLOW_TO_BUILD not in (EXPLOITS / entry.file).read_text())
    again = [it for it in entries if Path(it.file).stem in _AGAIN]
    names = [_OF_ITSELF[number % len(_OF_ITSELF)] for number in range(runs)]
    collection = [
        Task(part="collection", name=it.file, run=judge_entry, argument=it) for it in entries
    ]
    large = Task(part="memory", name="leaky_relu", run=judge_large, argument=None, alone=True)
    built = [
        *(task for task in collection if task.name.startswith(_ATTACKS)),
        *(
            Task(part="elsewhere", name=it.candidate.name, run=judge_elsewhere, argument=it)
            for it in pairs
        ),
    ]
    timed = [
        *(Task(part="again", name=it.file, run=judge_entry, argument=it) for it in again),
        *(Task(part="same", name=name, run=judge_reference, argument=name) for name in names),
    ]
    return [
        *([large] if torch.cuda.is_available() and not only else []),
        *(task for task in collection if not task.name.startswith(_ATTACKS)),
        *(task for pair in zip_longest(built, timed) for task in pair if task is not None),
    ]


_PARTS = ("collection", "again", "same", "elsewhere", "memory")
Rows = dict[str, list[dict[str, Any]]]


def _earlier(path: Path | None) -> tuple[list[dict[str, Any]], Rows]:
    """The runs before this one and their rows, in the record to begin with; and this run."""
    rows: Rows = {name: [] for name in _PARTS}
    found = json.loads(path.read_text()) if path else {"runs": []}
    return [*found["runs"], provenance()], {name: found.get(name, []) for name in rows}


def _left(asked: list[Task], rows: Rows, runs: list[dict[str, Any]]) -> list[Task]:
    """The tasks that have no row of this commit, those first that have no verdict at all.

    Where an earlier record says how long they took, long and short ones come in turns, and last
    what needs a card to itself.
    """
    now = runs[-1]["commit"]
    known = [(part, row) for part in _PARTS for row in rows[part]]
    of_now = [it for it in known if runs[it[1]["run"]]["commit"] == now]
    done = Counter((part, row["task"]) for part, row in of_now)
    left = []
    for task in asked:
        if done[task.part, task.name]:
            done[task.part, task.name] -= 1
        else:
            left.append(task)
    verdicts = {status.value for status in Status}
    took = {(p, row["task"]): row["seconds"] for p, row in known if row.get("status") in verdicts}
    fresh = [task for task in left if (task.part, task.name) not in took]
    again = [task for task in left if (task.part, task.name) in took]
    again.sort(key=lambda task: -took[task.part, task.name])
    half = (len(again) + 1) // 2
    turns = [it for pair in zip_longest(again[:half], again[half:]) for it in pair if it]
    return [*fresh, *sorted(turns, key=lambda task: task.alone)]


def _replace(rows: list[dict[str, Any]], row: dict[str, Any]) -> None:
    """Put the row in, in place of one of an earlier run."""
    earlier = (it for it in rows if it["task"] == row["task"] and it["run"] != row["run"])
    if (old := next(earlier, None)) is not None:
        rows.remove(old)
    rows.append(row)


def record(arguments: argparse.Namespace) -> None:
    """Make all judgements, writing what is known after each, until the time is up."""
    options = JudgeOptions(
        seeds=2,
        speed=Speed.SKIPPED if arguments.untimed else Speed.MEASURED,
        baselines=(Baseline.EAGER,),
        timeouts=_TIMEOUTS,
        timing=_PLAN,
    )
    start = time.monotonic()
    runs, rows = _earlier(arguments.update)
    timing = {"timing": asdict(_PLAN), "timing of honest files": asdict(_SHORT_PLAN)}
    facts = {"runs": runs, **timing, "seeds": options.seeds}
    cards = Cards(arguments.cards or visible_cards() or [""], arguments.jobs)
    asked = tasks(arguments.only, arguments.runs, read_pairs(arguments.pairs))
    asked = [task for task in asked if task.part in arguments.parts]
    waiting = deque(_left(asked, rows, runs))
    while (waiting or cards.running) and time.monotonic() - start < arguments.seconds:
        while waiting and cards.room(waiting[0]):
            cards.begin(waiting.popleft(), options)
        for task, future in cards.wait(arguments.seconds - (time.monotonic() - start)):
            row = _row_of(task, future) | {"run": len(runs) - 1}
            _replace(rows[task.part], row)
            _print_row(task, row)
        unfinished = [task for task, _ in cards.running.values()]
        _write(arguments.output, facts, rows, [*unfinished, *waiting])
    cards.close()
    print(json.dumps(_summary(rows)))


def _row_of(task: Task, future: "Future[dict[str, Any]]") -> dict[str, Any]:
    error = future.exception()
    if error is None:
        row = future.result()
    else:
        row = {"status": "lost", "summary": repr(error), "seconds": 0.0}
    if task.part in ("collection", "again"):
        entry = task.argument
        expected = [status.value for status in entry.on_gpu]
        row = {"file": entry.file, "row": entry.row, "expected": expected} | row
        row["right"] = row["status"] in expected
    if task.part == "elsewhere":
        pair = task.argument
        names = {"problem": pair.problem.name, "candidate": pair.candidate.name}
        row = {"from": pair.candidate.parent.name, "is": pair.kind} | names | row
    return {"task": task.name} | row


def _print_row(task: Task, row: dict[str, Any]) -> None:
    mark = "ok " if row.get("right", row["status"] != Status.VERIFIED_FASTER.value) else "BAD"
    low_high = [round(it, 3) for item in row.get("speedups", ()) for it in item["device"]]
    print(
        f"{mark} {row['seconds']:6.1f} s  {task.part:10} {task.name:42} {row['status']:24} "
        f"{low_high or row['summary'][:100]}",
        flush=True,
    )


def _write(path: Path, facts: dict[str, Any], rows: Rows, left: list[Task]) -> None:
    """In one step, so that no half file is ever seen."""
    names = [f"{task.part}: {task.name}" for task in left]
    count = Counter(row["run"] for part in rows.values() for row in part)
    by_commit: Counter[str] = Counter()
    for number, run in enumerate(facts["runs"]):
        by_commit[run["commit"]] += count[number]
    summary = _summary(rows) | {"rows by commit": by_commit}
    found = facts | {"summary": summary, "not reached": names} | rows
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(found, indent=1) + "\n")
    unfinished.replace(path)


def _summary(rows: Rows) -> dict[str, Any]:
    first = {row["file"]: row for row in rows["collection"]}
    pairs = [(first[row["file"]], row) for row in rows["again"] if row["file"] in first]
    timed = [(a, b) for a, b in pairs if a.get("speedups") and b.get("speedups")]
    same = rows["same"]
    return _counts(rows["collection"]) | {
        "judged twice": len(timed),
        "intervals overlap": sum(_overlap(*pair) for pair in timed),
        "reference against itself": sum(bool(row.get("speedups")) for row in same),
        "of others": _by_collection(rows["elsewhere"]),
        "called faster": sum(row["status"] == Status.VERIFIED_FASTER.value for row in same),
        "of a large problem": [
            {name: row.get(name) for name in ("extra, times the problem", "seconds", "status")}
            for row in rows["memory"]
        ],
    }


def _by_collection(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """How many files of each collection there are, and the names of those that got through."""
    found = {}
    for name in sorted({row["from"] for row in rows}):
        mine = [row for row in rows if row["from"] == name]
        verified = {row["candidate"] for row in mine if row["status"] in _VERIFIED}
        attacks, honest = (
            {row["candidate"] for row in mine if row["is"] == kind} for kind in ("attack", "honest")
        )
        found[name] = {
            "attacks": len(attacks),
            "attacks verified": sorted(attacks & verified),
            "honest": len(honest),
            "honest not verified": sorted(honest - verified),
        }
    return found


def _overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    (low, _, high), (other_low, _, other_high) = (
        row["speedups"][0]["device"] for row in (first, second)
    )
    return bool(max(low, other_low) <= min(high, other_high))


def _counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    attacks = [row for row in rows if row["file"].startswith("attacks/")]
    honest = [row for row in rows if row["file"].startswith("honest/")]
    told = [row for row in attacks if set(row["expected"]) <= _VERIFIED]
    return {
        "attacks": len(attacks),
        "attacks that pass": sum(
            row["status"] in _VERIFIED for row in attacks if row not in told and row["expected"]
        ),
        "attacks that are told and not condemned": len(told),
        "honest": len(honest),
        "honest refused": sum(row["status"] not in _VERIFIED for row in honest),
        "rows as expected": sum(row["right"] for row in rows),
        "rows": len(rows),
    }


def memory(arguments: argparse.Namespace) -> None:
    """The large problem alone, nothing is written."""
    speed = Speed.SKIPPED if arguments.untimed else Speed.MEASURED
    print(json.dumps(judge_large(None, JudgeOptions(speed=speed)), indent=1))


def folder(arguments: argparse.Namespace) -> None:
    """Files of others, for one problem."""
    options = JudgeOptions(
        seeds=2,
        speed=Speed.SKIPPED if arguments.untimed else Speed.MEASURED,
        baselines=(Baseline.EAGER,),
        timeouts=_TIMEOUTS,
    )
    for path in arguments.files:
        row = judge_pair(arguments.problem, path, options)
        print(f"{row['seconds']:6.1f} s  {path.name:40} {row['status']:24} {row['summary'][:160]}")
        for speedup in row.get("speedups", ()):
            print(f"          {speedup}")
        for text in row.get("told", ()):
            print(f"          {text[:300]}", flush=True)


def main() -> None:
    """Parse, and do it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--untimed", action="store_true", help="verify only")
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("record")
    part.add_argument("--output", type=Path, default=RESULTS)
    part.add_argument("--cards", nargs="*", default=[], help="to judge on; all that are visible")
    part.add_argument("--jobs", type=int, default=8, help="judgements side by side on each card")
    part.add_argument("--only", nargs="*", default=[], help="parts of file names")
    part.add_argument("--runs", type=int, default=50, help="of the reference against itself")
    part.add_argument("--pairs", type=Path, help="a file that names files of others")
    part.add_argument("--seconds", type=float, default=3600.0, help="to stop after")
    part.add_argument("--update", type=Path, help="an earlier record, to begin with its rows")
    part.add_argument("--parts", nargs="*", default=_PARTS, choices=_PARTS, help="of the record")
    part.set_defaults(do=record)
    part = parts.add_parser("memory")
    part.set_defaults(do=memory)
    part = parts.add_parser("folder")
    part.add_argument("problem", type=Path)
    part.add_argument("files", type=Path, nargs="+")
    part.set_defaults(do=folder)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
