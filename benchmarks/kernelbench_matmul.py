"""KernelBench's matrix products: level 1, numbers 1-4, 6-11, 13-18, and those of level 2.

    python benchmarks/kernelbench_matmul.py --kernelbench CHECKOUT

Of level 2 it takes every problem whose captured graph has a contraction and no convolution. Each
file is verified on several sets of inputs and timed in turns with eager, torch.compile and
torch.compile max-autotune in one process; the ratio is over the fastest of them. On several GPUs:

    CUDA_VISIBLE_DEVICES=1 python benchmarks/kernelbench_matmul.py ... --shard 1/4 --output 1.json
    python benchmarks/kernelbench_matmul.py --merge 0.json 1.json 2.json 3.json
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from matmul_parts.building import Emitted, Naming, Workshop
from matmul_parts.kernelbench import Baseline, Entry, measure
from matmul_parts.supervising import MEASURED, Row, failed, headline, measure_all
from provenance import provenance

from kernelwright.schedule import Library

_LEVEL_1 = (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18)
_ASKED = {"level 1": 3.0, "level 2": 3.3}
"""Geometric mean over the fastest baseline."""
_OUTPUT = Path(__file__).parent / "results" / "kernelbench_matmul_h200.json"


def main() -> None:
    """Measure one shard, or put the results of shards together."""
    arguments = _arguments()
    if arguments.merge:
        _merge(arguments.merge, arguments.output)
        return
    with tempfile.TemporaryDirectory() as folder:
        _run((arguments.work or Path(folder)).absolute(), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernelbench", type=Path, help="the checkout, or its folder KernelBench")
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2], choices=[1, 2])
    parser.add_argument("--problems", default="*", help="pattern of file names: '12_*'")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th problem, from the i-th")
    names = [baseline.value for baseline in Baseline]
    parser.add_argument("--baselines", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--seconds-per-problem",
        type=float,
        default=60.0,
        help="begin compiling no baseline after so many; the process is given up after 4 times",
    )
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no problem after so many")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, help="folder of emitted files and builds")
    parser.add_argument("--output", type=Path, default=_OUTPUT)
    parser.add_argument("--merge", type=Path, nargs="+", help="results of shards")
    arguments = parser.parse_args()
    if not arguments.merge and arguments.kernelbench is None:
        parser.error("--kernelbench names the checkout")
    if not (arguments.merge or arguments.build_only or torch.cuda.is_available()):
        parser.error("no GPU to measure on: --build-only compiles all the same")
    return arguments


def _run(work: Path, arguments: argparse.Namespace) -> None:
    levels = {path.stem: level for level, path in _problems(arguments)}
    files = _build([path for _, path in _problems(arguments)], levels, work, arguments)
    print(f"{len(files)} problems", flush=True)
    if arguments.build_only:
        return
    rows: list[Row] = []
    facts = provenance()

    def on_row(row: Row) -> None:
        row.setdefault("level", levels[row["case"]])
        rows.append(row)
        print(_line(row), flush=True)
        _write(arguments.output, facts, rows)

    entries = []
    for name, file in files.items():
        if file.error:
            on_row(failed(name, file.error))
        else:
            baselines = tuple(Baseline(name) for name in arguments.baselines)
            seconds = arguments.seconds_per_problem
            entries.append(
                Entry(level=levels[name], emitted=file, baselines=baselines, seconds=seconds)
            )
    measure_all(
        measure,
        entries,
        patience=4 * arguments.seconds_per_problem,
        seconds=arguments.seconds,
        on_row=on_row,
    )
    print(json.dumps(_summary(rows), indent=1))


def _problems(arguments: argparse.Namespace) -> list[tuple[int, Path]]:
    """The shard's problem files with their levels, before those of level 2 are looked into."""
    inner = arguments.kernelbench / "KernelBench"
    root = inner if inner.is_dir() else arguments.kernelbench
    found = [
        (level, path)
        for level in arguments.levels
        for path in sorted((root / f"level{level}").glob("*.py"), key=_number)
        if (level != 1 or _number(path) in _LEVEL_1) and fnmatch(path.stem, arguments.problems)
    ]
    shard, count = (int(part) for part in arguments.shard.split("/"))
    return found[shard::count]


def _number(path: Path) -> int:
    return int(path.stem.partition("_")[0])


def _build(
    problems: list[Path], levels: dict[str, int], work: Path, arguments: argparse.Namespace
) -> dict[str, Emitted]:
    """The built files of the problems that are matrix products, by name."""
    workshop = Workshop(work, arguments.jobs)
    try:
        emitted = workshop.emit_all(problems, Library.WHERE_FASTER, Naming.AS_EMITTED)
        products = {
            name: file for name, file in emitted.items() if levels[name] == 1 or file.is_product
        }
        return workshop.build(products)
    finally:
        workshop.close()


def _line(row: Row) -> str:
    if row["status"] != MEASURED:
        return f"{row['level']} {row['case']:48} {row['status'].upper()}: {headline(row)}"
    low, high = row["interval"]
    times = "  ".join(f"{name} {value:.4f}" for name, value in row["ms"].items())
    return f"{row['level']} {row['case']:48} {row['ratio']:6.2f} [{low:.2f}, {high:.2f}]  {times}"


def _summary(rows: Sequence[Row]) -> Row:
    summary: Row = {}
    for level in (1, 2):
        of_level = [row for row in rows if row["level"] == level]
        measured = [row for row in of_level if row["status"] == MEASURED]
        name = f"level {level}"
        summary[name] = {
            "problems": len(of_level),
            "geomean_over_best": _geomean([row["ratio"] for row in measured]),
            "asked": _ASKED[name],
            "verified": len(measured),
            "not_verified": [row["case"] for row in of_level if row["status"] != MEASURED],
            "slower": [row["case"] for row in measured if row["ratio"] < 1],
        }
    return summary


def _geomean(ratios: list[float]) -> float | None:
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def _write(output: Path, facts: dict[str, object], rows: list[Row]) -> None:
    report = {"provenance": facts, "summary": _summary(rows), "rows": rows}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n")


def _merge(parts: list[Path], output: Path) -> None:
    reports = [json.loads(part.read_text()) for part in parts]
    rows = sorted(
        (row for report in reports for row in report["rows"]),
        key=lambda row: (row["level"], _number(Path(row["case"]))),
    )
    _write(output, reports[0]["provenance"], rows)
    print(*map(_line, rows), json.dumps(_summary(rows), indent=1), sep="\n")


if __name__ == "__main__":
    main()
