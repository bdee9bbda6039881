"""Times emitted networks as CUDA graphs: those of two commits, and eager PyTorch, in turns.

    python benchmarks/convolutions/problems.py --emit PROBLEMS --folder NEW      # at each commit
    python benchmarks/convolutions/in_graphs.py NEW OLD --commits NEW OLD --output FILE.json

A graph leaves the host out, as a profiler would not: it launches kernels apart. Each replay begins
with a cold L2 cache; a time is the median of forty. Needs a GPU; no kernelwright.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from emitted_files import build_library, load, with_library
from provenance import provenance

_FLUSHED = 128 << 20
"""Bytes: twice the L2 cache."""
_REPLAYS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("new", type=Path, help="folder of emitted files")
    parser.add_argument("old", type=Path, help="another one")
    parser.add_argument("--commits", nargs=2, required=True, help="of these folders")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    report: dict[str, Any] = {"provenance": provenance(), "commits": options.commits, "ms": {}}
    for folder in sorted(options.new.iterdir()):
        if not (options.old / folder.name / "facts.json").exists():
            continue
        with torch.no_grad():
            report["ms"][folder.name] = row = _times(folder, options.old / folder.name)
        print(folder.name, row, flush=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")


def _times(new: Path, old: Path) -> dict[str, float]:
    """Milliseconds of each on the device."""
    ours, own, inputs = _made(new)
    before, _, _ = _made(old)
    graphs = {
        name: _captured(lambda module=module: module(*inputs))
        for name, module in (("new", ours), ("old", before), ("eager", own))
    }
    times: dict[str, list[float]] = {name: [] for name in graphs}
    flush = torch.empty(_FLUSHED, dtype=torch.int8, device="cuda")
    for _ in range(_REPLAYS):
        for name, graph in graphs.items():
            flush.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: round(statistics.median(own), 4) for name, own in times.items()}


def _made(folder: Path) -> tuple[torch.nn.Module, torch.nn.Module, list[Any]]:
    """What was emitted, the problem's own module with the same parameters, and its inputs."""
    library = build_library(folder)
    name = f"{folder.parent.name}_{folder.name}"
    problem = load(folder / "problem.py", f"problem_{name}")
    emitted = with_library(folder / "emitted.py", library)
    torch.manual_seed(0)
    with torch.device("cuda"):
        own = problem.Model(*problem.get_init_inputs())
        ours = emitted.ModelNew(*problem.get_init_inputs())
        given = problem.get_inputs()
    ours.load_state_dict(own.state_dict())
    return ours, own, [it.cuda() if isinstance(it, torch.Tensor) else it for it in given]


def _captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


if __name__ == "__main__":
    main()
