"""Times all problems with a convolution: ours beside eager PyTorch, torch.compile and the floor.

    python benchmarks/convolutions/problems.py --emit KERNELBENCH/level1 ... --folder FILES
    python benchmarks/convolutions/problems.py --folder FILES --seconds 480 --output FILE.json

The first call needs no GPU: it writes the problems, and what they become. The second one needs
nvcc, a GPU and torch, and no kernelwright. Each problem has a process: those that compile work
beside the one that uses the card. Problems come in the order in which they tell most. A line for
each, and the journal beside the output, are written when it is done; at the end of the time what
the others have found is kept, too. A second run with the same journal goes on where it stopped.
"""

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from emitting import emit_all, informative_first
from provenance import provenance

LONGEST = 150.0
"""Seconds that a problem may take: then its process ends."""


def run_all(folders: list[Path], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Records of the problems, each written to the journal when its process ends.

    First ours and eager of all; then torch.compile, where ours gains least first.
    """
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = {it["problem"]: it for it in map(json.loads, lines)}
    # As many processes compile as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    context: BaseContext = multiprocessing.get_context("forkserver")
    multiprocessing.set_forkserver_preload(["measuring"])
    end = time.monotonic() + options.seconds
    lock = options.folder / "card.lock"
    new = [it for it in folders if "ours_ms" not in records.get(it.name, {})]
    first = {it: context.Process(target=_child, args=(it, lock, options.kernels)) for it in new}
    _run(first, options, end, records, journal)
    if options.compiles:
        gains = sorted(records.values(), key=lambda it: it.get("eager_ms", 0.0) / it["ours_ms"] if (
            "ours_ms" in it) else math.inf)  # fmt: skip
        slowest = [it for it in gains if "compiled_ms" not in it]
        again = {
            options.folder / it["problem"]: context.Process(
                target=_compiled_child,
                args=(options.folder / it["problem"], lock, options.kernels, it),
            )
            for it in slowest
        }
        _run(again, options, end, records, journal)
    return list(records.values())


def _run(
    waiting: dict[Path, BaseProcess],
    options: argparse.Namespace,
    end: float,
    records: dict[str, dict[str, Any]],
    journal: Path,
) -> None:
    """The processes, so many at a time, and their records."""
    order = list(waiting)
    running: dict[Path, float] = {}
    while (order or running) and time.monotonic() < end:
        while order and len(running) < options.processes:
            folder = order.pop(0)
            (folder / "record.json").unlink(missing_ok=True)
            waiting[folder].start()
            running[folder] = time.monotonic()
        for folder, began in list(running.items()):
            if waiting[folder].is_alive() and time.monotonic() - began < LONGEST:
                continue
            _end(waiting[folder])
            del running[folder]
            _keep(folder, journal, records)
            _write(list(records.values()), options.output)
        time.sleep(0.05)
    for folder in running:
        _end(waiting[folder])
        if (folder / "record.json").exists():
            _keep(folder, journal, records)
    _write(list(records.values()), options.output)


def _child(folder: Path, lock: Path, kernels: int) -> None:
    from measuring import measure

    measure(folder, lock, kernels)


def _compiled_child(folder: Path, lock: Path, kernels: int, record: dict[str, Any]) -> None:
    from measuring import measure_compiled

    measure_compiled(folder, lock, kernels, record)


def _end(process: BaseProcess) -> None:
    if process.is_alive():
        process.kill()
    process.join()


def _keep(folder: Path, journal: Path, records: dict[str, dict[str, Any]]) -> None:
    """What the process of a folder has found; its line, in the journal and to be seen."""
    path = folder / "record.json"
    record = {**records.get(folder.name, {"problem": folder.name}), "failed": "its process ended"}
    if path.exists():
        record = json.loads(path.read_text())
    with journal.open("a") as file:
        file.write(json.dumps(record) + "\n")
    words = [f"{name[:-3]} {record[name]:.3f}" for name in _TIMES if name in record]
    verdict = {True: "verified", False: "WRONG", None: "-"}[record.get("verified")]
    print(f"{folder.name}: {', '.join(words)} ms; {verdict} {record.get('failed', '')[:200]}",
          flush=True)  # fmt: skip
    records[folder.name] = record


_TIMES = (
    "ours_ms",
    "eager_ms",
    "compiled_ms",
    "wall_ms",
    "eager_wall_ms",
    "modelled_ms",
    "floor_ms",
)


def summary(records: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric means by level: over eager, over the floor, and over the better of both.

    Only problems whose torch.compile was timed say how ours stands against the better of both.
    """
    found: dict[str, dict[str, float]] = {}
    timed = [it for it in records if "ours_ms" in it and "eager_ms" in it]
    for level in sorted({it["problem"].split("_")[0] for it in timed}):
        own = [it for it in timed if it["problem"].startswith(f"{level}_")]
        found[level] = {
            "problems": len(own),
            "over eager": _mean(it["eager_ms"] / it["ours_ms"] for it in own),
            "within 1.5 of the floor": sum(it["ours_ms"] <= 1.5 * it["floor_ms"] for it in own),
            "over the floor": _mean(it["ours_ms"] / it["floor_ms"] for it in own),
        }
        both = [it for it in own if "compiled_ms" in it]
        gains = [min(it["eager_ms"], it["compiled_ms"]) / it["ours_ms"] for it in both]
        if gains:
            found[level] |= {
                "compiled": len(gains),
                "over best": _mean(gains),
                "below 0.98 of best": sum(gain < 0.98 for gain in gains),
            }
    return found


def _mean(ratios: Iterable[float]) -> float:
    logs = [math.log(it) for it in ratios]
    return math.exp(sum(logs) / len(logs))


def _write(records: list[dict[str, Any]], output: Path) -> None:
    content = {"provenance": provenance(), "summary": summary(records), "records": records}
    part = output.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(output)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--emit", nargs="*", type=Path, help="folders of problems")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("conv_problems.json"))
    parser.add_argument("--seconds", type=float, default=480.0, help="it stops after these")
    parser.add_argument("--processes", type=int, default=0, help="at the same time")
    parser.add_argument("--compiles", type=int, default=1, help="0: without torch.compile")
    parser.add_argument("--kernels", type=int, default=1, help="0: without times of kernels")
    options = parser.parse_args()
    options.processes = options.processes or min(12, os.cpu_count() or 1)
    if options.emit:
        emit_all(options.emit, options.folder, options.processes)
        return
    folders = [it.parent for it in sorted(options.folder.glob("*/facts.json"))]
    records = run_all(informative_first(folders), options)
    print(json.dumps(summary(records), indent=1))


if __name__ == "__main__":
    main()
