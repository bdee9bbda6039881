"""Judge candidates that others have published, beside the speedups that they claim.

    python benchmarks/judge_published.py judge FILE --journal JOURNAL     # as far as time goes
    python benchmarks/judge_published.py judge FILE --journal JOURNAL --only level1/1 level2/7
    python benchmarks/judge_published.py tabulate FILE [JOURNAL...]       # the record and its page

FILE has a record in every line, as `optimized_cuda_code/h100.json` of CUDA-L1 has: `level_id` and
`task_id`, `ref_code` (a problem in KernelBench's format), `custom_code` (a candidate; null where
there is none) and `score_default` (the claimed speedup over eager). It is no part of this project.

`judge` adds a line to the journal for every candidate, and skips those that have one already for
the same texts. Several are judged side by side on each card; the clock is alone on its card all the
same. NaN in inputs is asked last and only reported, so that a file which is wrong nowhere else has
its time; it is counted with its own cause all the same. `tabulate` writes
benchmarks/results/judge_published_h200.json and docs/published.md; of several lines for one
candidate the last counts, and what the record has already stays where no line is newer.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]

from cards import Cards, Task  # noqa: E402
from provenance import provenance  # noqa: E402

from kernelwright import pipeline  # noqa: E402
from kernelwright.bench.timing import TimingPlan  # noqa: E402
from kernelwright.errors import KernelwrightError  # noqa: E402
from kernelwright.suite.provenance import visible_cards  # noqa: E402
from kernelwright.verify.cases import Demand, Demands  # noqa: E402
from kernelwright.verify.distributions import Distribution  # noqa: E402
from kernelwright.verify.ran_checks import NO_OWN_KERNEL  # noqa: E402
from kernelwright.verify.verdict import Outcome, Status, Verdict  # noqa: E402
from kernelwright.worker.options import Baseline, JudgeOptions, Speed, Timeouts  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "judge_published_h200.json"
PAGE = ROOT / "docs" / "published.md"
NOTES = ROOT / "benchmarks" / "judge_published_notes.json"
"""Why a refusal is right, in a sentence, by name: written by who looked at it."""

_PLAN = TimingPlan(warm_up_seconds=0.2, samples=60, seconds=0.5, most_seconds=6.0)
_TIMEOUTS = Timeouts(start=120.0, build=180.0, run=60.0, compile=120.0)
_SEEDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One record of the file that has a candidate."""

    name: str
    """"level1/19"."""
    reference: str
    candidate: str
    claimed: float | None
    """Speedup over eager, as published."""

    @property
    def key(self) -> str:
        """A checksum of both texts."""
        return hashlib.blake2b(f"{self.reference}\0{self.candidate}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """What a file has."""

    records: int
    published: tuple[Published, ...]
    """Those with a candidate, in the file's order."""
    claims_without: int
    """Those that claim a speedup and have no candidate."""


def read_collection(path: Path) -> Collection:
    """The records of a file of JSON lines; KeyError for one of another format."""
    records = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    published = tuple(
        Published(
            name=f"level{record['level_id']}/{record['task_id']}",
            reference=record["ref_code"],
            candidate=record["custom_code"],
            claimed=record["score_default"],
        )
        for record in records
        if _has_candidate(record)
    )
    claims = sum(record["score_default"] is not None for record in records)
    with_both = sum(it.claimed is not None for it in published)
    return Collection(records=len(records), published=published, claims_without=claims - with_both)


def _has_candidate(record: Mapping[str, Any]) -> bool:
    """Whether there is code: the file has null in some places and the text "None" in others."""
    return (record["custom_code"] or "None").strip() != "None"


def unpack(published: Published, folder: Path) -> tuple[Path, Path]:
    """Problem file and candidate file of a record, written to `folder`."""
    problem, candidate = folder / "problem.py", folder / "candidate.py"
    problem.write_text(published.reference)
    candidate.write_text(published.candidate)
    return problem, candidate


def chosen(
    published: Sequence[Published], only: Sequence[str], every: int, limit: int | None
) -> list[Published]:
    """Those named by `only`, in its order; else each `every`-th; at most `limit`."""
    by_name = {it.name: it for it in published}
    named = [by_name[name] for name in only] if only else list(published[::every])
    return named[:limit]


def judge_one(published: Published, options: JudgeOptions, progress: Any) -> dict[str, Any]:
    """A row: how it ended, by cause, what was said, and how fast it is."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        problem, candidate = unpack(published, Path(name))
        try:
            verdict, measurement = pipeline.judge(
                problem, candidate, options=options, progress=progress
            )
        except KernelwrightError as error:
            row: dict[str, Any] = {"cause": type(error).__name__, "summary": str(error)[:400]}
        else:
            row = {
                "cause": cause_of(verdict),
                "status": verdict.status.value,
                "summary": verdict.summary[:600],
                "told": list(dict.fromkeys(_told(verdict)))[:12],
                "target": verdict.target,
                "note": measurement.note,
                "speedups": [asdict(it) for it in measurement.speedups],
                "device_ms": measurement.candidate and measurement.candidate.device_ms,
                "spent": dict(verdict.spent),
            }
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def cause_of(verdict: Verdict) -> str:
    """Its status; of a file that is wrong only where inputs have NaN, that of the usual demands."""
    word = f"distribution={Distribution.NAN.value} "
    wrong = any(
        word in it.case and it.outcome is Outcome.WARNING and it.status for it in verdict.checks
    )
    status = Status.WRONG_WHERE_NOT_FINITE if wrong and verdict.status.verified else verdict.status
    return status.value


def _told(verdict: Verdict) -> Iterator[str]:
    for check in verdict.checks:
        if check.outcome in (Outcome.FAILED, Outcome.WARNING):
            yield f"{check.outcome.value} {check.name}: {check.evidence}"[:300]


class Journal:
    """A line for every judgement, with the number of the run that made it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = _lines(path)
        self._run = sum("run_facts" in line for line in self._lines)

    def begin(self, facts: Mapping[str, object]) -> None:
        """A new run, with what it runs on."""
        self._append({"run_facts": facts})

    def has(self, published: Published) -> bool:
        """Whether there is a line for the same texts."""
        return any(line.get("key") == published.key for line in self._lines)

    def add(self, published: Published, row: Mapping[str, Any]) -> None:
        """One judgement."""
        head = {"name": published.name, "key": published.key, "run": self._run}
        self._append({**head, **row})

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def judge(arguments: argparse.Namespace) -> None:
    """Judge until nothing is left or the time is up."""
    options = JudgeOptions(
        seeds=_SEEDS,
        demands=Demands(nan=Demand.REPORTED),
        speed=Speed.SKIPPED if arguments.untimed else Speed.MEASURED,
        baselines=(Baseline.EAGER,),
        timing=_PLAN,
        timeouts=_TIMEOUTS,
    )
    end = time.monotonic() + arguments.seconds
    journal = Journal(arguments.journal)
    journal.begin(provenance())
    found = read_collection(arguments.file).published
    asked = chosen(found, arguments.only, arguments.every, arguments.limit)
    waiting = deque(it for it in asked if not journal.has(it))
    cards = Cards(visible_cards() or [""], arguments.jobs)
    while (waiting or cards.running) and time.monotonic() < end:
        while waiting and cards.room(_task(waiting[0])):
            cards.begin(_task(waiting.popleft()), options)
        for task, future in cards.wait(max(0.0, end - time.monotonic())):
            row = _row_of(future)
            journal.add(task.argument, row)
            _print_row(task.argument, row)
    cards.close()


def _task(published: Published) -> Task:
    return Task(part="published", name=published.name, run=judge_one, argument=published)


def _row_of(future: "Future[dict[str, Any]]") -> dict[str, Any]:
    error = future.exception()
    return {"cause": "lost", "summary": repr(error)} if error else future.result()


def _print_row(published: Published, row: Mapping[str, Any]) -> None:
    measured = _over_eager(row)
    print(
        f"{row.get('seconds', 0.0):6.1f} s  {published.name:10} {row['cause']:36} "
        f"claimed {published.claimed}, measured {measured and round(measured[1], 3)}  "
        f"{row['summary'][:140]!r}",
        flush=True,
    )


def _over_eager(row: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Low end, value and high end of the speedup on the device; None where nothing was timed."""
    for it in row.get("speedups", ()):
        device = it["device"]
        return device["low"], device["value"], device["high"]
    return None


def table(collection: Collection, lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The record: runs, counts by cause, and a row for each candidate that was judged."""
    runs: list[object] = []
    latest: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "run_facts" in line:
            runs.append(line["run_facts"])
        else:
            latest[line["key"]] = {**line, "run": len(runs) - 1}
    rows = [
        {**latest[it.key], "claimed": it.claimed} for it in collection.published if it.key in latest
    ]
    causes = Counter(row["cause"] for row in rows)
    return {
        "records": collection.records,
        "with a candidate": len(collection.published),
        "claims without a candidate": collection.claims_without,
        "judged": len(rows),
        "by cause": dict(causes.most_common()),
        "runs": runs,
        "timing": asdict(_PLAN),
        "seeds": _SEEDS,
        "rows": rows,
    }


_VERIFIED = {status.value for status in Status if status.verified}


def page(record: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    """The page of docs/: how they ended, claimed and measured speedups, and each refusal."""
    rows = record["rows"]
    yield from _introduction(record)
    yield from ("## How they ended", "", "| cause | candidates |", "| --- | --- |")
    yield from (f"| {cause} | {count} |" for cause, count in record["by cause"].items())
    timed = [(row, measured) for row in rows if (measured := _over_eager(row))]
    yield from ("", "## Claimed and measured", "")
    yield from _speeds(timed)
    yield from ("", "| candidate | cause | claimed | measured | 95 % interval | its kernels |")
    yield "| --- | --- | --- | --- | --- | --- |"
    for row, (low, value, high) in timed:
        claimed = "" if row["claimed"] is None else f"{row['claimed']:.2f}"
        interval = f"{low:.2f} to {high:.2f}"
        idle = "never run" if _without_kernels(row) else ""
        yield f"| {row['name']} | {row['cause']} | {claimed} | {value:.2f} | {interval} | {idle} |"
    yield from ("", "## Refusals", "", "| candidate | cause | claimed | why |")
    yield "| --- | --- | --- | --- |"
    for row in rows:
        if row["cause"] not in _VERIFIED:
            why = notes.get(row["name"]) or row["summary"].partition("\n")[0]
            claimed = "" if row["claimed"] is None else f"{row['claimed']:.2f}"
            yield f"| {row['name']} | {row['cause']} | {claimed} | {_cell(why)} |"


def _without_kernels(row: Mapping[str, Any]) -> bool:
    """Whether it carries kernels of which none ran: they did not build, and it went on without."""
    return any(NO_OWN_KERNEL in text for text in row.get("told", ()))


_LONGEST = 260


def _cell(text: str) -> str:
    """Text that stays in its cell."""
    short = text if len(text) <= _LONGEST else text[:_LONGEST].rpartition(" ")[0] + " ..."
    return short.replace("|", "\\|")


def _introduction(record: Mapping[str, Any]) -> Iterator[str]:
    facts = record["runs"][-1]
    commits = " and ".join(dict.fromkeys(run["commit"] for run in record["runs"]))
    yield "# What published kernels are worth"
    yield ""
    yield (
        f"CUDA-L1 (deepreinforce-ai/CUDA-L1) publishes files for {record['records']} problems of "
        f"KernelBench. A language model wrote {record['with a candidate']} candidates, each with a "
        f"speedup over eager that was measured on an H100. "
        f"{record['claims without a candidate']} more speedups are claimed without code. "
        f"`benchmarks/judge_published.py` judged {record['judged']} of the candidates on "
        f"{facts.get('card', 'a CPU')} (torch {facts['torch']}, CUDA {facts['cuda']}, "
        f"commits {commits}, {facts['date'][:10]}); its rows are in "
        "`benchmarks/results/judge_published_h200.json`. Speedups are over eager alone. A "
        "file that is wrong only where inputs have NaN was timed too; "
        "`kernelwright judge` refuses such a file unless `--demand nan=reported` is given. "
        "The causes are the statuses of [the verdict](verdict.md)."
    )
    yield ""


def _speeds(timed: Sequence[tuple[Mapping[str, Any], tuple[float, float, float]]]) -> Iterator[str]:
    """How many are faster at all, and how far claims and measurements are apart."""
    faster = sum(low > 1.0 for _, (low, _, _) in timed)
    idle = sum(_without_kernels(row) for row, _ in timed)
    ratios = sorted(it[1][1] / it[0]["claimed"] for it in timed if it[0]["claimed"])
    yield (
        f"Of the {len(timed)} that were timed, {faster} are faster than eager: the lower end of "
        f"a 95 % interval is above 1. {idle} have the source of kernels that never ran: where "
        "their build fails, a `try` falls back to PyTorch."
        + (
            f" The measured speedup is {ratios[len(ratios) // 2]:.2f} of the claimed one in the "
            f"median, and below half of it for {sum(ratio < 0.5 for ratio in ratios)}."
            if ratios
            else ""
        )
    )


def lines_of(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A record as the journal that it was made from."""
    for number, facts in enumerate(record["runs"]):
        yield {"run_facts": facts}
        for row in record["rows"]:
            if row["run"] == number:
                yield {name: value for name, value in row.items() if name != "claimed"}


def tabulate(arguments: argparse.Namespace) -> None:
    """Write record and page from what is recorded and the journals."""
    lines = [*lines_of(json.loads(RESULTS.read_text()))] if RESULTS.exists() else []
    lines += [line for path in arguments.journals for line in _lines(path)]
    record = table(read_collection(arguments.file), lines)
    notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text("\n".join(page(record, notes)) + "\n")
    print(json.dumps(record["by cause"], indent=1))


def main() -> None:
    """Parse, and do it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("judge")
    part.add_argument("file", type=Path)
    part.add_argument("--journal", type=Path, required=True)
    part.add_argument("--only", nargs="*", default=[], help="names, in the order to judge them")
    part.add_argument("--every", type=int, default=1, help="each so-many-th candidate")
    part.add_argument("--limit", type=int, default=None, help="candidates at most")
    part.add_argument("--seconds", type=float, default=3600.0, help="to stop after")
    part.add_argument("--jobs", type=int, default=8, help="judgements side by side on each card")
    part.add_argument("--untimed", action="store_true", help="verify only")
    part.set_defaults(do=judge)
    part = parts.add_parser("tabulate")
    part.add_argument("file", type=Path)
    part.add_argument("journals", type=Path, nargs="*", help="none: what is recorded already")
    part.set_defaults(do=tabulate)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
