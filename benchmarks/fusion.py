"""Time what is written for KernelBench problems against eager and torch.compile, side by side.

    python benchmarks/fusion.py FOLDER --level 1 --output DIR   # FOLDER holds level1, level2, ...

One process a problem, several at a time on each card: they compile side by side, and each has the
card to itself while it checks and times. Every contestant of a problem is timed in turns in one
process with a flushed L2, on three sets of random inputs; the result is compared with the
reference in float64 where that fits the card, on the problem's own inputs and on zero-mean ones.
It trusts the files that it times, which are ours; `kernelwright judge` trusts nobody.

Writes a JSON line a problem as it ends, and after the last one `fusion_level<N>.json`.
"""

import argparse
import copy
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from provenance import provenance
from torch import nn

_WEIGHT_SEED, _SAMPLES, _SETS = 42, 30, 2
_MOST_BYTES = 100e9
"""Of device memory for a comparison in float64."""
_FUSION = (5, 12, *range(19, 50), 51, 52, 53, *range(88, 97), 98, 99, 100)
"""Problems of level 1 that memory limits."""


# --- One problem, in a child -------------------------------------------------------------------


def _load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _model(kind: Any, definition: Any) -> nn.Module:
    torch.manual_seed(_WEIGHT_SEED)
    with torch.device("cuda"):
        return kind(*definition.get_init_inputs()).cuda()


def _inputs(definition: Any, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    with torch.device("cuda"):
        made = definition.get_inputs()
    return [x.cuda() if isinstance(x, torch.Tensor) else x for x in made]


def _tensors(value: Any) -> list[torch.Tensor]:
    return (
        [value]
        if isinstance(value, torch.Tensor)
        else [t for item in value for t in _tensors(item)]
    )


def _distance(got: Any, want: Any) -> float:
    """Root mean square error over the root mean square of what is wanted."""
    pairs = list(zip(_tensors(got), _tensors(want), strict=True))
    error = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
    size = sum(float(b.double().square().sum()) for _, b in pairs)
    return math.sqrt(error / size) if size else math.sqrt(error)


def _errors(eager: nn.Module, ours: nn.Module, inputs: Sequence[Any]) -> dict[str, float]:
    """Of ours against eager, and of both against float64 where that is quick and fits the card."""
    # Modules that keep statistics change when they run.
    mine, theirs = (copy.deepcopy(module) for module in (ours, eager))
    torch.manual_seed(0)
    got = mine(*inputs)
    torch.manual_seed(0)
    want = theirs(*inputs)
    assert [(t.shape, t.dtype) for t in _tensors(got)] == [
        (t.shape, t.dtype) for t in _tensors(want)
    ]
    found = {"to_eager": _distance(got, want)}
    size = sum(x.nbytes for x in inputs if isinstance(x, torch.Tensor))
    size += sum(t.nbytes for t in _tensors(got))
    convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in eager.modules())
    if 8 * size < _MOST_BYTES and not convolves:
        exact = copy.deepcopy(eager).double()(*(x.double() if _is_float(x) else x for x in inputs))
        found |= {"ours": _distance(got, exact), "eager": _distance(want, exact)}
    return found


def _normal(value: Any) -> Any:
    return torch.randn_like(value) if _is_float(value) else value


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@torch.no_grad()
def measure(problem: Path, effort_name: str, baselines: Sequence[str]) -> dict[str, Any]:
    """Everything about one problem, as JSON values."""
    from kernelwright.bench.timing import Stopwatch, rotate
    from kernelwright.compiling import compile_problem, write_candidate
    from kernelwright.machine import H200
    from kernelwright.pipeline import load_problem, tuned
    from kernelwright.schedule import cost_of_plan, least_cost
    from kernelwright.tune.effort import effort
    from kernelwright.worker.card.lease import open_lease

    compiled = compile_problem(load_problem(problem), H200)
    wanted = effort(effort_name)
    if wanted.variants and compiled.plan.kernels:
        compiled = tuned(compiled, wanted, wanted.budget_seconds, lambda event: None)
    emitted = Path(tempfile.mkdtemp()) / f"{problem.stem}_new.py"
    write_candidate(compiled, emitted)
    definition, candidate = _load(problem, "definition"), _load(emitted, "candidate")
    row: dict[str, Any] = {
        "problem": f"{problem.parent.name}/{problem.stem}",
        "kernels": {kernel.name: str(kernel.config) for kernel in compiled.plan.kernels},
        "left_to_pytorch": [step.name for step in compiled.plan.left_to_pytorch],
        "algebraic": compiled.rewritten.algebraic,
        "plan_bytes": cost_of_plan(compiled.plan).bytes,
        "least_bytes": least_cost(compiled.plan).bytes,
        "floor_ms": least_cost(compiled.plan).floor_seconds(H200) * 1e3,
    }
    if "compile" in baselines:
        # Compiling takes long and the card briefly, while another may be timed: medians bear it.
        compiled_module = torch.compile(_model(definition.Model, definition))
        compiled_module(*_inputs(definition, 0))
        torch.cuda.empty_cache()
    with open_lease(0) as lease, lease.alone():
        eager, ours = (_model(k, definition) for k in (definition.Model, candidate.ModelNew))
        row["errors"] = {
            "own": _errors(eager, ours, _inputs(definition, 7)),
            "normal": _errors(eager, ours, [_normal(x) for x in _inputs(definition, 8)]),
        }
        torch.cuda.empty_cache()
        sets = [_inputs(definition, seed) for seed in range(_SETS)]
        contestants = {"ours": ours, "eager": eager}
        if "compile" in baselines:
            contestants["compile"] = compiled_module
        watch = Stopwatch(torch.device("cuda"))
        calls = {name: rotate(module, sets) for name, module in contestants.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            watch.warm_up(call, 0.1)
        for _ in range(3):
            for name, call in calls.items():
                times[name] += watch.sample(call, _SAMPLES // 3).device_ms
    row["ms"] = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    row["spread"] = {name: [min(values), max(values)] for name, values in times.items()}
    return row


# --- All of them -------------------------------------------------------------------------------


def _run(problem: Path, place: SimpleQueue[int], arguments: argparse.Namespace) -> dict[str, Any]:
    card = place.get()
    try:
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(card)}
        command = [sys.executable, __file__, str(problem), "--child", "--effort", arguments.effort]
        command += ["--baselines", *arguments.baselines]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            timeout=arguments.timeout,
            check=False,
        )
        if run.returncode:
            return {"problem": problem.stem, "error": run.stderr.strip().splitlines()[-3:]}
        return dict(json.loads(run.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"problem": problem.stem, "error": [f"more than {arguments.timeout} s"]}
    finally:
        place.put(card)


def _geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means and counts over what was timed."""
    timed = [row for row in rows if "ms" in row]
    over = {
        name: [row["ms"][name] / row["ms"]["ours"] for row in timed if name in row["ms"]]
        for name in ("eager", "compile")
    }
    best = [min(v for k, v in r["ms"].items() if k != "ours") / r["ms"]["ours"] for r in timed]
    floors = [row["ms"]["ours"] / (row["plan_bytes"] / 4.28e12 * 1e3) for row in timed]
    return {
        "problems": len(rows),
        "timed": len(timed),
        "over": {name: _geomean(values) for name, values in over.items()},
        "over_best": _geomean(best),
        "below_0.98_of_best": sum(value < 0.98 for value in best),
        "within_1.15_of_plan_bytes": sum(value <= 1.15 for value in floors),
    }


def _problems(folder: Path, level: int, only: Sequence[int]) -> list[Path]:
    found = {int(path.stem.split("_")[0]): path for path in (folder / f"level{level}").glob("*.py")}
    wanted = only or (_FUSION if level == 1 else sorted(found))
    return [found[number] for number in wanted if number in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("place", type=Path, help="folder with level1, level2, ...")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--effort", default="quick", help="of tuning: none, quick or full")
    parser.add_argument("--level", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", default=[])
    parser.add_argument("--baselines", nargs="*", default=["eager", "compile"])
    parser.add_argument("--cards", type=int, nargs="*", default=[0])
    parser.add_argument("--slots", type=int, default=5, help="problems in flight on a card")
    parser.add_argument("--timeout", type=float, default=200.0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.place, arguments.effort, arguments.baselines)))
        return
    place: SimpleQueue[int] = SimpleQueue()
    for card in arguments.cards * arguments.slots:
        place.put(card)
    rows: list[dict[str, Any]] = []
    path = arguments.output / f"fusion_level{arguments.level}.json"
    started = time.monotonic()
    with ThreadPoolExecutor(len(arguments.cards) * arguments.slots) as pool:
        problems = _problems(arguments.place, arguments.level, arguments.only)
        for row in pool.map(lambda problem: _run(problem, place, arguments), problems):
            rows.append(row)
            print(json.dumps(row), flush=True)
            facts = {"provenance": provenance(), "summary": summary(rows), "rows": rows}
            path.write_text(json.dumps(facts, indent=1) + "\n")
    print(json.dumps(summary(rows)), f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
