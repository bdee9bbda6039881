"""Eighty problems at odd sizes, their round neighbours beside them: ours, eager, torch.compile.

    python benchmarks/odd_sizes.py --emit --folder FILES --processes 2
    python benchmarks/odd_sizes.py --build --folder FILES
    python benchmarks/odd_sizes.py --folder FILES --seconds 120 --journal odd_sizes.jsonl

The first two calls need no GPU: they write the problems and what they become, and compile it. The
last one builds what is missing and times the sizes of each module in a process of its own; those
that compile work side by side, the card is used in turns. A line for each problem, and the journal,
are written when its process ends. A second run with the same journal goes on where it stopped.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from odd_parts.cases import problems
from odd_parts.emitting import build_all, emit_all
from provenance import provenance
from side_by_side import Limits, Record, Task, read, run_tasks

LEAST = 0.95
"""No problem may be slower than the better of eager and torch.compile by more than this."""


def main() -> None:
    options = _options()
    if options.emit or options.build:
        (emit_all if options.emit else build_all)(options.folder, options.processes)
        return
    from odd_parts.measuring import measure

    limits = Limits(
        journal=options.journal,
        seconds=options.seconds,
        processes=options.processes,
        longest=options.longest,
        preload=("odd_parts.measuring",),
    )
    for record in run_tasks(_tasks(options), measure, limits):
        print(*map(_line, _problems([record])), sep="\n", flush=True)
        records = read(options.journal)
        content = {"provenance": provenance(), "summary": summary(records), "records": records}
        _write(options.output or options.journal.with_suffix(".json"), content)
    print(json.dumps(summary(read(options.journal)), indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="of the problems' files")
    parser.add_argument("--emit", action="store_true", help="write these; needs no GPU")
    parser.add_argument("--build", action="store_true", help="compile them; needs no GPU")
    parser.add_argument("--journal", type=Path, default=Path("odd_sizes.jsonl"), help="continued")
    parser.add_argument("--output", type=Path, help="JSON; beside the journal by default")
    parser.add_argument("--seconds", type=float, default=480.0, help="it stops after these")
    parser.add_argument("--longest", type=float, default=60.0, help="seconds for one process")
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compiles", type=int, default=1, help="0: without torch.compile")
    parser.add_argument("--only", nargs="+", default=[], help="names of cases")
    return parser.parse_args()


def _tasks(options: argparse.Namespace) -> list[Task]:
    """One for each module."""
    there = [it for it in problems() if (options.folder / it.name / "facts.json").exists()]
    cases = dict.fromkeys(it.case for it in there)
    return [
        Task(
            name=case.name,
            facts={
                "family": case.family,
                "device": options.device,
                "compiles": bool(options.compiles),
                "problems": [
                    {
                        "problem": it.name,
                        "is_odd": it.is_odd,
                        "folder": str(options.folder / it.name),
                    }
                    for it in there
                    if it.case is case
                ],
            },
        )
        for case in cases
        if not options.only or case.name in options.only
    ]


def _problems(records: Iterable[Record]) -> list[Record]:
    """What is known of each problem of some modules."""
    return [{**it, "family": record["family"]} for record in records for it in record["problems"]]


def _line(problem: Record) -> str:
    words = [f"{it[:-3]} {problem[it]:.4f}" for it in _TIMES if it in problem]
    verdict = {True: "verified", False: "WRONG", None: "-"}[problem.get("verified")]
    failed = problem.get("failed", "")[:200]
    return f"{problem['problem']:<36} {', '.join(words)} ms; {verdict} {failed}"


_TIMES = ("ours_ms", "eager_ms", "compiled_ms", "floor_ms")


# --- What the records come to --------------------------------------------------------------------


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """Of odd sizes and round ones: geometric means over the better of eager and torch.compile and
    over the floor, as a whole and by family; and the odd problems that fall short."""
    timed = [it for it in _problems(records) if "ours_ms" in it and "eager_ms" in it]
    found: dict[str, Any] = {
        sizes: {
            "problems": len(own),
            "over best": _mean(_over_best(it) for it in own),
            "over the floor": _mean(it["ours_ms"] / it["floor_ms"] for it in own),
            "by family": {
                family: _mean(_over_best(it) for it in own if it["family"] == family)
                for family in dict.fromkeys(it["family"] for it in own)
            },
        }
        for sizes, is_odd in (("odd", True), ("round", False))
        if (own := [it for it in timed if it["is_odd"] is is_odd])
    }
    found["below"] = sorted(
        f"{it['problem']}: {_over_best(it):.3f}" for it in timed if _over_best(it) < LEAST
    )
    found["not verified"] = [it["problem"] for it in timed if not it["verified"]]
    return found


def _over_best(record: Record) -> float:
    best: float = min(record["eager_ms"], record.get("compiled_ms", math.inf))
    return best / float(record["ours_ms"])


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(it) for it in ratios]
    return round(math.exp(sum(logs) / len(logs)), 3)


def _write(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


if __name__ == "__main__":
    main()
