"""Capture 100 public modules and compare graph and plan with an eager call, on the CPU.

    python benchmarks/captures.py                             # all that is installed
    python benchmarks/captures.py --path DIR                  # packages that lie in a folder
    python benchmarks/captures.py --packages torch --only LSTM

One process for each module, which is ended after `--limit` seconds. All seconds are of CPU time.
Writes benchmarks/results/captures.json, modules that were not asked for as they were there.
"""

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import torch
from capture_corpus import declare_torchvision
from provenance import provenance

from kernelwright.capture import capturing
from kernelwright.checking import check_plan
from kernelwright.errors import KernelwrightError
from kernelwright.machine import H200
from kernelwright.module import capture_in_memory
from kernelwright.schedule import plan_graph

PACKAGES = ("torch", "people", "torchvision", "timm", "transformers")
RESULT = Path(__file__).parent / "results" / "captures.json"


def main() -> None:
    options = _options()
    sys.path += options.path
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    declare_torchvision()
    capture_in_memory(torch.nn.ReLU(), (torch.rand(3),), {})  # imports what tracing imports
    rows: dict[str, dict[str, Any]] = {}
    if options.output.exists():
        rows = {row["module"]: row for row in json.loads(options.output.read_text())["modules"]}
    for row in _rows(list(_asked(options)), options.jobs, options.limit):
        rows[row["module"]] = row
        print(_line(row), flush=True)
        _write(options.output, list(rows.values()))


def _asked(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Names of modules with what makes them, of the packages that are there."""
    for package in options.packages:
        try:
            found = importlib.import_module(f"capture_corpus.of_{package}").MODULES
        except ImportError as error:
            print(f"{package}: left out, {error}")
            continue
        for name, make in found.items():
            if not options.only or name in options.only:
                yield f"{package}: {name}", make


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument("--only", nargs="+", default=[], help="names of modules")
    parser.add_argument("--path", action="append", default=[], help="where packages lie")
    parser.add_argument("--limit", type=int, default=90, help="CPU seconds for a module")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--output", type=Path, default=RESULT)
    return parser.parse_args()


def _rows(asked: list[tuple[str, Any]], jobs: int, limit: int) -> Iterator[dict[str, Any]]:
    """A row for each module, from forks that have the packages in memory already."""
    running: dict[int, tuple[str, IO[str]]] = {}
    waiting = asked[::-1]
    while waiting or running:
        while waiting and len(running) < jobs:
            name, make = waiting.pop()
            answer = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed where it is read
            running[_forked(make, answer, limit)] = (name, answer)
        process, status = os.wait()
        name, answer = running.pop(process)
        with answer:
            answer.seek(0)
            text = answer.read()
        ended = {"captured": False, "refusal": f"ended after {limit} s"}
        yield {"module": name, **(ended if status else json.loads(text))}


def _forked(make: Any, answer: IO[str], limit: int) -> int:
    """A process that writes the row of a module; it has so many seconds of CPU time."""
    process = os.fork()
    if process == 0:
        signal.setitimer(signal.ITIMER_PROF, limit)
        json.dump(_row(make), answer)
        answer.flush()
        os._exit(0)
    return process


def _row(make: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    try:
        module, args, kwargs = make()
        return _captured(module, args, kwargs)
    except KernelwrightError as error:
        return {"captured": False, "refusal": error.message, "next_step": error.next_step}
    except Exception as error:  # a fault of ours, or of the list
        return {"captured": False, "fault": f"{type(error).__name__}: {error}"}


def _captured(module: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    exports: list[float] = []
    begun = time.process_time()
    with torch.no_grad(), patch.object(capturing, "trace", _timed(capturing.trace, exports)):
        graph = capture_in_memory(module, args, kwargs)
        plan = plan_graph(graph, H200).plan
    seconds = time.process_time() - begun
    checks = check_plan(module, args, kwargs, graph, plan)
    return {
        "captured": True,
        "export_seconds": round(sum(exports), 2),
        "other_seconds": round(seconds - sum(exports), 2),
        "nodes": len(graph.nodes),
        "kernels": len(plan.kernels),
        "calls_left": len(plan.left_to_pytorch),
        "notes": list(graph.notes),
        "returns": type(graph.returns).__name__,
        **{
            check.stage: {"agrees": check.agrees, "worst": check.worst, "text": check.difference}
            for check in checks
        },
    }


def _timed(function: Any, seconds: list[float]) -> Any:
    def timed(*args: Any, **kwargs: Any) -> Any:
        begun = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            seconds.append(time.process_time() - begun)

    return timed


def _line(row: dict[str, Any]) -> str:
    if not row["captured"]:
        return f"{row['module']:<44} " + (row.get("refusal") or row["fault"])[:300]
    found = " ".join(f"{row[key]:>7}" for key in ("export_seconds", "other_seconds", "nodes"))
    differences = "; ".join(_differences(row)) or "agrees"
    return f"{row['module']:<44} {found} {row['kernels']:>4} {row['calls_left']:>4}  {differences}"


def _differences(row: dict[str, Any]) -> Iterator[str]:
    for stage in ("graph", "plan"):
        if not row[stage]["agrees"]:
            yield f"{stage}: {row[stage]['text'][:300]}"


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    captured = [row for row in rows if row["captured"]]
    agreeing = [row for row in captured if not any(_differences(row))]
    versions = {name: _version(name) for name in PACKAGES}
    summary = {"modules": len(rows), "captured": len(captured), "agree": len(agreeing)}
    facts = {**provenance(), "versions": versions, "summary": summary, "modules": rows}
    path.write_text(json.dumps(facts, indent=1) + "\n")


def _version(package: str) -> str | None:
    return getattr(sys.modules.get(package), "__version__", None)


if __name__ == "__main__":
    main()
