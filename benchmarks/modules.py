"""Public modules at published sizes: `kw.optimize` beside eager PyTorch and torch.compile.

    python benchmarks/modules.py --seconds 95 --dtypes float32 --journal modules.jsonl
    python benchmarks/modules.py --device cpu --only PointNet    # no card: whether it all runs

Each module, type and way has a process. Those that compile work side by side, the card is used in
turns. A few that take little come first, in all types and ways; then those that tell most, ours and
eager of all before the other ways. A module whose package is missing is a line. A second run with
the same journal goes on where it stopped.
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
from module_parts.cases import CASES
from module_parts.measuring import WAYS, measure
from provenance import provenance
from side_by_side import Limits, Record, Task, read, run_tasks

SLACK = 1.02
"""No module may be slower than eager, on the device or by the wall clock, by more than this."""


def main() -> None:
    options = _options()
    tasks = _tasks(options)
    cores = os.cpu_count() or 1
    processes = options.processes or max(1, min(8, cores // 2))
    # All that compile share the cores: with as many compilers each, memory ends and clocks stop.
    os.environ["KERNELWRIGHT_THREADS"] = str(options.threads or max(1, cores // processes))
    limits = Limits(
        journal=options.journal,
        seconds=options.seconds,
        processes=processes,
        longest=options.longest,
        preload=("module_parts.measuring", *_PACKAGES),
    )
    for record in run_tasks(tasks, measure, limits):
        print(_line(record), flush=True)
        _write(options.output or options.journal.with_suffix(".json"), read(options.journal))
    print(json.dumps(summary(read(options.journal)), indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--journal", type=Path, default=Path("modules.jsonl"), help="continued")
    parser.add_argument("--output", type=Path, help="JSON; beside the journal by default")
    parser.add_argument("--seconds", type=float, default=480.0, help="it stops after these")
    parser.add_argument("--longest", type=float, default=300.0, help="seconds for one process")
    parser.add_argument("--processes", type=int, default=0, help="at the same time")
    parser.add_argument("--threads", type=int, default=0, help="of compilers, for each process")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS)[:3], choices=list(WAYS))
    parser.add_argument("--effort", default="quick", help="of optimizing")
    parser.add_argument("--first", type=int, default=len(CASES), help="so many modules")
    parser.add_argument("--whole", nargs="*", default=list(_WHOLE), help="first, in all ways")
    parser.add_argument("--only", nargs="+", default=[], help="names of modules")
    return parser.parse_args()


def _tasks(options: argparse.Namespace) -> list[Task]:
    names = [it for it in list(CASES)[: options.first] if not options.only or it in options.only]
    compiling = [way for way in options.ways if way not in _FIRST]
    whole = [
        {"module": name, "dtype": dtype, "way": way, "device": options.device}
        for name in options.whole
        if name in names
        for dtype in options.dtypes
        for way in options.ways
    ]
    facts = whole + [
        {"module": name, "dtype": dtype, "way": way, "device": options.device}
        for ways in ([way for way in options.ways if way in _FIRST], compiling)
        for dtype in options.dtypes
        for name in names
        if name not in options.whole
        for way in ways
    ]
    return [
        Task(
            name=f"{it['module']}, {it['dtype']}, {it['way']}",
            facts={**it, "effort": options.effort},
        )
        for it in facts
    ]


_PACKAGES = ("torchvision.models", "timm", "transformers")
"""What modules are made of, imported once for all processes; one may be missing."""

_FIRST = ("ours", "eager")
"""Ways of which every module has its turn before one of the others begins: what is cut off when the
seconds are over is another compiler's."""


_WHOLE = ("convnext_tiny", "UNet", "PointNet", "RMSNorm-RoPE-SwiGLU block", "KAN")
"""Modules that have all columns before the others begin: a run that is cut off compares these."""


def _line(record: Record) -> str:
    words = [f"{it} {record[it]}" for it in _NUMBERS if it in record]
    left = record.get("left")
    words += [f"left {len(left)}"] if left is not None else []
    words += [f"{it}: {record[it]}"[:300] for it in ("set_aside", "failed") if record.get(it)]
    return f"{record['task']:<46} {'; '.join(words)}"


_NUMBERS = (
    "rounds",
    "device_ms",
    "wall_ms",
    "optimize_seconds",
    "peak_bytes",
    "verified",
    "kernels",
)


# --- What the records come to --------------------------------------------------------------------


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """By type: geometric means over torch.compile and eager, and the modules that fall short."""
    found: dict[str, Any] = {}
    for dtype in sorted({it["dtype"] for it in records}):
        rows = {(it["module"], it["way"]): it for it in records if it["dtype"] == dtype}
        ours = [name for name, way in rows if way == "ours" and "device_ms" in rows[name, way]]
        found[dtype] = {
            "modules": len(ours),
            **{
                f"{clock} over {way}": _mean(ratios.values())
                for clock in ("device_ms", "wall_ms")
                for way in ("eager", "torch.compile")
                if (ratios := _ratios(rows, ours, clock, way))
            },
            "slower than eager": sorted(
                f"{name}: {clock} {ratio:.3f}"
                for clock in ("device_ms", "wall_ms")
                for name, ratio in _ratios(rows, ours, clock, "eager").items()
                if ratio * SLACK < 1
            ),
            "not verified": [it for it in ours if not rows[it, "ours"]["verified"]],
            "set aside": [it for it in ours if rows[it, "ours"]["set_aside"]],
            "seconds to optimize": sorted(rows[it, "ours"]["optimize_seconds"] for it in ours),
        }
    return found


def _ratios(
    rows: dict[tuple[str, str], Record], names: Iterable[str], clock: str, way: str
) -> dict[str, float]:
    """How many times as long the other way takes, by module."""
    return {
        name: other[clock] / own[clock]
        for name in names
        if clock in (own := rows[name, "ours"]) and clock in (other := rows.get((name, way), {}))
    }


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(it) for it in ratios]
    return round(math.exp(sum(logs) / len(logs)), 3)


def _write(path: Path, records: list[Record]) -> None:
    content = {"provenance": provenance(), "summary": summary(records), "records": records}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


if __name__ == "__main__":
    main()
