"""Calls on a card: how long the host is busy with one, how long the card, and a loop of them.

For each case and way (ours, eager, torch.compile, its mode reduce-overhead), in microseconds:

- host: a call with an idle card, until it returns; the median of 200.
- device: work of one call, all kernels together, by the profiler. A CUDA graph counts its kernels.
- loop: a call in a loop of 50 that ends with a synchronisation.

Bytes: peak of what a call allocates beyond what is there before.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from provenance import provenance
from torch import Tensor, nn

from kernelwright.machine import H200
from kernelwright.module import optimize_module
from kernelwright.problem import load_problem
from kernelwright.problem.execution import execute
from kernelwright.schedule import Library

_CALLS = 200
_LOOP = 50
Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


class Small(nn.Module):
    """Two kernels a norm that cannot be one: norms of rows and softmaxes of columns in turns."""

    def __init__(self, norms: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(norms))

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = torch.softmax(torch.relu(norm(x)), 0)
        return x


def run(options: argparse.Namespace, modules: Mapping[str, tuple[nn.Module, Tensor]]) -> None:
    """Measure what the journal does not have; write all of it as JSON after each case."""
    began = time.monotonic()
    done = _read(options.journal)
    cases = [
        (name, way, case, library)
        for name, case, library, ways in _cases(modules, options.problems)
        for way in ways
    ]
    # What is quick of all cases first: torch.compile takes as long as all the others together.
    for name, way, case, library in sorted(cases, key=lambda it: it[1] in _COMPILED):
        if time.monotonic() - began > options.seconds:
            break
        if (name, way) in done:
            continue
        row = {"case": name, "way": way, **_measured(case, way, library)}
        done[name, way] = row
        with options.journal.open("a") as file:
            file.write(json.dumps(row) + "\n")
        said = {key: row[key] for key in row if key != "error"}
        print(said, row.get("error", "")[:200], flush=True)
        report = {"provenance": provenance(), "rows": list(done.values())}
        options.output.write_text(json.dumps(report, indent=1) + "\n")


def _cases(
    modules: Mapping[str, tuple[nn.Module, Tensor]], problems: Path | None
) -> Iterator[tuple[str, Case, Library, tuple[str, ...]]]:
    yield "1 kernel", lambda: (nn.LayerNorm(64), (torch.rand(64, 64),)), Library.NEVER, _QUICK
    yield "10 kernels", lambda: (Small(5), (torch.rand(64, 64),)), Library.NEVER, _QUICK
    yield "30 kernels", lambda: (Small(15), (torch.rand(64, 64),)), Library.NEVER, tuple(_WAYS)
    for name, (module, x) in modules.items():
        yield name, lambda it=(module, (x,)): it, Library.NEVER, ("ours", "eager")
    yield "resnet50 x 32", _resnet, Library.WHERE_FASTER, tuple(_WAYS)
    for path in sorted(problems.glob("*.py")) if problems else ():
        name = f"{path.parent.name}/{path.stem}"
        case = lambda path=path: _problem(path)  # noqa: E731
        yield name, case, Library.WHERE_FASTER, ("ours", "eager")


def _resnet() -> tuple[nn.Module, tuple[Any, ...]]:
    import torchvision

    return torchvision.models.resnet50(), (torch.rand(32, 3, 224, 224),)


def _problem(path: Path) -> tuple[nn.Module, tuple[Any, ...]]:
    space = execute(load_problem(path)).namespace
    return space.Model(*space.get_init_inputs()), tuple(space.get_inputs())


def _measured(case: Case, way: str, library: Library) -> dict[str, Any]:
    try:
        torch.manual_seed(0)
        module, args = case()
        module = module.cuda().eval()
        args = tuple(it.cuda() if isinstance(it, Tensor) else it for it in args)
        with torch.no_grad():
            return _times(_WAYS[way](module, args, library), args)
    except Exception as error:  # The next case goes on; the row says what happened.
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        torch.compiler.reset()
        torch.cuda.empty_cache()


def _times(function: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    for _ in range(5):
        function(*args)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = function(*args)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del result
    host = []
    for _ in range(_CALLS):
        start = time.perf_counter_ns()
        function(*args)
        host.append(time.perf_counter_ns() - start)
        torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(_LOOP):
        function(*args)
    torch.cuda.synchronize()
    loop = (time.perf_counter_ns() - start) / _LOOP
    device, kernels = _device(function, args)
    return {
        "host": round(statistics.median(host) / 1e3, 1),
        "device": device,
        "kernels": kernels,
        "loop": round(loop / 1e3, 1),
        "peak_bytes": peak,
        **_facts(function),
    }


def _facts(function: Callable[..., Any]) -> dict[str, Any]:
    made = getattr(function, "kernelwright", None)
    parameters = sum(1 for _ in function.parameters()) if isinstance(function, nn.Module) else 0
    found: dict[str, Any] = {"parameters": parameters}
    if made is not None:
        found |= {"own kernels": len(made.kernels), "set aside": made.set_aside}
        found["left to PyTorch"] = len(made.left_to_pytorch)
    return found


def _device(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, int]:
    """Microseconds of a call's kernels and copies, and how many there are."""
    calls = 3
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as seen:
        for _ in range(calls):
            function(*args)
        torch.cuda.synchronize()
    events = [it for it in seen.events() if it.device_type == torch.autograd.DeviceType.CUDA]
    total = sum(it.time_range.elapsed_us() for it in events)
    return round(total / calls, 1), len(events) // calls


_WAYS: dict[str, Any] = {
    "ours": lambda module, args, library: optimize_module(
        module, args, machine=H200, library=library
    ),
    "eager": lambda module, args, library: module,
    "torch.compile": lambda module, args, library: torch.compile(module),
    "reduce-overhead": lambda module, args, library: torch.compile(module, mode="reduce-overhead"),
    "ours, graphed": lambda module, args, library: optimize_module(
        module, args, machine=H200, library=library
    ).graphed(*args),
}


_QUICK = ("ours", "eager")
_COMPILED = ("torch.compile", "reduce-overhead")


def _read(journal: Path) -> dict[tuple[str, str], dict[str, Any]]:
    if not journal.exists():
        return {}
    rows = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
    return {(row["case"], row["way"]): row for row in rows}
