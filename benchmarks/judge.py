"""Judge the collection of attacking, honest and broken candidates on the GPU, and the judge itself.

    python benchmarks/judge.py collection --jobs 5     # every file of tests/exploits
    python benchmarks/judge.py same --runs 50          # a candidate that is the reference
    python benchmarks/judge.py twice                   # two judgements of the same pair
    python benchmarks/judge.py folder PROBLEM FILE...  # files from elsewhere, nothing is written

Each writes its part of benchmarks/results/judge_h200.json, with what produced it.
"""

import argparse
import json
import multiprocessing
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from provenance import provenance  # noqa: E402

from exploits.table import TABLE, VERIFIED, Entry  # noqa: E402
from kernelwright import pipeline  # noqa: E402
from kernelwright.build.records import Target  # noqa: E402
from kernelwright.errors import KernelwrightError  # noqa: E402
from kernelwright.verify.cases import Case  # noqa: E402
from kernelwright.verify.verdict import Outcome, Status  # noqa: E402
from kernelwright.worker.options import (  # noqa: E402
    Baseline,
    JudgeOptions,
    Sanitizers,
    Speed,
    Timeouts,
)

EXPLOITS = ROOT / "tests" / "exploits"
RESULTS = ROOT / "benchmarks" / "results" / "judge_h200.json"
_TIMEOUTS = Timeouts(start=120.0, build=180.0, run=60.0, compile=120.0)


def judge_entry(entry: Entry, options: JudgeOptions) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem = Path(shutil.copy(EXPLOITS / "problems" / f"{entry.problem}.py", folder))
        candidate = Path(shutil.copy(EXPLOITS / entry.file, folder / "candidate.py"))
        wanted = Sanitizers.ON if entry.sanitize else Sanitizers.OFF
        row = judge_pair(problem, candidate, replace(options, sanitizers=wanted))
    expected = [status.value for status in entry.on_gpu]
    return {"file": entry.file, "row": entry.row, "expected": expected} | row


def judge_pair(problem: Path, candidate: Path, options: JudgeOptions) -> dict[str, Any]:
    """What `judge` says, shortened."""
    start = time.perf_counter()
    try:
        verdict, measurement = pipeline.judge(
            problem, candidate, target=Target.CUDA, options=options
        )
    except KernelwrightError as error:
        return {"status": type(error).__name__, "summary": str(error)[:300], "seconds": 0.0}
    told = [
        f"{check.outcome.value} {check.name}: {check.evidence}"[:400]
        for check in verdict.checks
        if check.outcome is Outcome.WARNING
        or check.outcome is Outcome.FAILED
        or check.name in ("what ran", "decoys", "sanitizers", "isolation", "timer")
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
        "seconds": round(time.perf_counter() - start, 1),
    }


def collection(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every file of the collection, several at a time: what needs no clock overlaps."""
    entries = [entry for entry in TABLE if _is_wanted(entry, arguments.only)]
    options = JudgeOptions(
        seeds=2,
        speed=Speed.SKIPPED if arguments.untimed else Speed.MEASURED,
        baselines=(Baseline.EAGER,),
        timeouts=_TIMEOUTS,
    )
    rows = []
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=spawning) as pool:
        futures = {pool.submit(judge_entry, entry, options): entry for entry in entries}
        for future in as_completed(futures):
            row = future.result() if future.exception() is None else _lost(futures[future], future)
            row["right"] = row["status"] in row["expected"] or not row["expected"]
            rows.append(row)
            mark = "ok " if row["right"] else "BAD"
            print(f"{mark} {row['seconds']:6.1f} s  {row['file']:42} {row['status']:24}", end=" ")
            print(row["summary"][:110], flush=True)
    rows.sort(key=lambda row: [entry.file for entry in entries].index(row["file"]))
    return {"rows": rows, "counts": _counts(rows)}


def _is_wanted(entry: Entry, words: list[str]) -> bool:
    return not words or any(word in entry.file for word in words)


def _lost(entry: Entry, future: Any) -> dict[str, Any]:
    return {
        "file": entry.file,
        "row": entry.row,
        "expected": [status.value for status in entry.on_gpu],
        "status": "lost",
        "summary": repr(future.exception()),
        "seconds": 0.0,
    }


def _counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    verified = {status.value for status in VERIFIED}
    attacks = [row for row in rows if row["file"].startswith("attacks/")]
    honest = [row for row in rows if row["file"].startswith("honest/")]
    told = [row for row in attacks if set(row["expected"]) <= verified]
    return {
        "attacks": len(attacks),
        "attacks that pass": sum(
            row["status"] in verified for row in attacks if row not in told and row["expected"]
        ),
        "attacks that are told and not condemned": len(told),
        "honest": len(honest),
        "honest refused": sum(row["status"] not in verified for row in honest),
        "rows as expected": sum(row["right"] for row in rows),
        "rows": len(rows),
    }


_IDENTITY = """

class ModelNew(Model):
    pass
"""


def same(arguments: argparse.Namespace) -> dict[str, Any]:
    """How often the reference itself is called faster than the reference."""
    rows = []
    for name in arguments.problems:
        problem = EXPLOITS / "problems" / f"{name}.py"
        with tempfile.TemporaryDirectory() as folder:
            candidate = Path(folder) / f"{name}_new.py"
            candidate.write_text(problem.read_text() + _IDENTITY)
            rows += _time_often(problem, candidate, arguments.runs)
    faster = sum(row["status"] == Status.VERIFIED_FASTER.value for row in rows)
    print(f"{len(rows)} runs, called faster in {faster}")
    return {"rows": rows, "runs": len(rows), "called faster": faster}


def _time_often(problem: Path, candidate: Path, runs: int) -> list[dict[str, Any]]:
    """Judge with as few inputs as there may be: what is asked is the clock."""
    options = JudgeOptions(
        seeds=1, baselines=(Baseline.EAGER,), timeouts=_TIMEOUTS, cases=(Case(),)
    )
    rows = []
    for _ in range(runs):
        row = judge_pair(problem, candidate, options)
        rows.append({"problem": problem.stem} | row)
        interval = [round(it, 4) for s in row.get("speedups", ()) for it in s["device"]]
        print(problem.stem, row["status"], interval, row["seconds"], flush=True)
    return rows


def twice(arguments: argparse.Namespace) -> dict[str, Any]:
    """Whether two judgements of the same pair have intervals that overlap."""
    options = JudgeOptions(seeds=1, baselines=(Baseline.EAGER,), timeouts=_TIMEOUTS)
    rows = []
    for name in arguments.only or ("vectorised_swish", "warp_softmax", "addmm"):
        entry = next(entry for entry in TABLE if entry.file == f"honest/{name}.py")
        first, second = (judge_entry(entry, options) for _ in range(2))
        intervals = [row["speedups"][0]["device"] for row in (first, second)]
        (low, _, high), (other_low, _, other_high) = intervals
        rows.append(
            {
                "file": entry.file,
                "intervals": intervals,
                "overlap": max(low, other_low) <= min(high, other_high),
                "statuses": [first["status"], second["status"]],
            }
        )
        print(rows[-1], flush=True)
    return {"rows": rows, "agree": sum(row["overlap"] for row in rows)}


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
    """Parse, run one part, and write it where the others are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--untimed", action="store_true", help="verify only")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("collection")
    part.add_argument("--jobs", type=int, default=5)
    part.add_argument("--only", nargs="*", default=[], help="parts of file names")
    part = parts.add_parser("same")
    part.add_argument("--runs", type=int, default=50)
    part.add_argument("--problems", nargs="*", default=["swish"])
    part = parts.add_parser("twice")
    part.add_argument("--only", nargs="*", default=[], help="honest files")
    part = parts.add_parser("folder")
    part.add_argument("problem", type=Path)
    part.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.part == "folder":
        folder(arguments)
        return
    found = {"collection": collection, "same": same, "twice": twice}[arguments.part](arguments)
    known = json.loads(arguments.output.read_text()) if arguments.output.is_file() else {}
    known[arguments.part] = {"provenance": provenance()} | found
    arguments.output.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps(found.get("counts", {})))


if __name__ == "__main__":
    main()
