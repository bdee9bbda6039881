"""Matrix products against PyTorch's on a GPU: how fast, and how accurate.

    python benchmarks/matmul.py --part acceptance

Parts: `acceptance` (the shapes with a speed to reach), `accuracy` (errors against float64 on easy
and on hard values, NaN and Inf, ten runs bit by bit), `random` (200 shapes), `half` (16-bit
factors). Each writes benchmarks/results/matmul_<part>_<card>.json, after every case, and prints a
table. Every case goes the way of a user's file: problem file, capture, schedule, emitted file,
import, `ModelNew`. The library's and ours are called in turns in one process; when a case breaks
or hangs that process, its row says so and the next case gets a new one.

`--build-only` stops when everything is built; without a GPU it compiles for sm_90a and shows what
ptxas says. `--work` keeps problem files, emitted files and builds for the next run.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

import torch
from matmul_parts.building import Emitted, Workshop, write_problems
from matmul_parts.cases import Case
from matmul_parts.parts import PARTS, Part, Task
from matmul_parts.supervising import MEASURED, Row, failed, headline, measure_all
from provenance import provenance

from kernelwright.schedule import Library

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the parts asked for, one after the other."""
    arguments = _arguments()
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in arguments.part:
            _run(name, PARTS[name], work.absolute(), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=list(PARTS), nargs="+", default=["acceptance"])
    parser.add_argument("--cases", default="*", help="pattern of case names: '*x1024 N?'")
    parser.add_argument("--count", type=int, default=200, help="random shapes")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument(
        "--library", dest="leave", choices=[it.name for it in Library], default="WHERE_FASTER"
    )
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for one case")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so many")
    parser.add_argument("--work", type=Path, help="folder of emitted files and builds")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the JSON files")
    arguments = parser.parse_args()
    if not (arguments.build_only or torch.cuda.is_available()):
        parser.error("no GPU to measure on: --build-only compiles all the same")
    return arguments


def _run(name: str, part: Part, work: Path, arguments: argparse.Namespace) -> None:
    """Build all cases of a part, measure them, write and print."""
    selected = [case for case in part.cases(arguments.count) if fnmatch(case.name, arguments.cases)]
    print(f"\n== {name}: {len(selected)} cases", flush=True)
    started = time.monotonic()
    emitted = _build(selected, part, work, arguments)
    build_seconds = time.monotonic() - started
    print(f"built in {build_seconds:.0f} s", flush=True)
    if arguments.build_only:
        return
    rows: list[Row] = []
    report = {"part": name, "provenance": provenance(), "build_seconds": round(build_seconds, 1)}
    output = arguments.output / f"matmul_{name}_{_card()}.json"
    output.parent.mkdir(parents=True, exist_ok=True)

    def on_row(row: Row) -> None:
        rows.append(row)
        print(_line(part, row), flush=True)
        _write(output, report, part, rows)

    print(part.heading)
    tasks = []
    for case in selected:
        file = emitted[case.name]
        if file.error:
            on_row(failed(case.name, file.error))
        else:
            tasks.append(Task(case=case, emitted=file))
    measure_all(
        part.measure,
        tasks,
        patience=arguments.patience,
        seconds=arguments.seconds - (time.monotonic() - started),
        on_row=on_row,
    )
    print(json.dumps(_summary(part, rows), indent=1))


def _build(
    selected: list[Case], part: Part, work: Path, arguments: argparse.Namespace
) -> Mapping[str, Emitted]:
    """The built file of each case, by the case's name."""
    problems = write_problems([(case.name, case.source) for case in selected], work)
    workshop = Workshop(work, min(arguments.jobs, max(len(selected), 1)))
    try:
        library = Library[arguments.leave]
        files = workshop.emit_all(problems.values(), library, part.naming)
        files = workshop.build(files)
    finally:
        workshop.close()
    return {name: files[path.stem] for name, path in problems.items()}


def _line(part: Part, row: Row) -> str:
    if row["status"] != MEASURED:
        return f"{row['case']:42} {row['status'].upper()}: {headline(row)}"
    return part.line(row)


def _summary(part: Part, rows: list[Row]) -> Row:
    measured = [row for row in rows if row["status"] == MEASURED]
    return part.summarise(measured) | {
        "cases": len(rows),
        "failed": [row["case"] for row in rows if row["status"] != MEASURED],
    }


def _write(output: Path, report: Row, part: Part, rows: list[Row]) -> None:
    whole = report | {"summary": _summary(part, rows), "rows": rows}
    output.write_text(json.dumps(whole, indent=1) + "\n")


def _card() -> str:
    """The last word of the card's name: "h200"."""
    return torch.cuda.get_device_name().split()[-1].lower()


if __name__ == "__main__":
    main()
