"""How long rewriting and scheduling take as graphs grow, in seconds of a core.

    python benchmarks/planning_time.py --output benchmarks/results/planning_time.json
    python benchmarks/planning_time.py --problems FOLDER/16_DenseNet201.py --output ...

Synthetic graphs of three kinds, and what problem files capture. Seconds are processor time, the
least of three runs: other work on the machine adds little to that. Needs no GPU.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from large_graphs import FAMILIES
from provenance import provenance

from kernelwright.capture import capture
from kernelwright.ir.graph import Graph
from kernelwright.ir.spec import check
from kernelwright.machine import H200
from kernelwright.problem import load_problem
from kernelwright.rewrite import rewrite
from kernelwright.schedule import plan_graph

_SIZES = (625, 1250, 2500, 5000, 10000)
_RUNS = 3


def main() -> None:
    """Measure all and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=Path, nargs="*", default=[])
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for row in chain(_synthetic(), _captured(arguments.problems)):
        rows.append(row)
        print(row, flush=True)
    report = {"provenance": provenance(), "runs": _RUNS, "rows": rows}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _synthetic() -> Iterator[dict[str, Any]]:
    for name, make in FAMILIES.items():
        for size in _SIZES:
            yield {"graph": name, **_measured(check(make(size)))}


def _captured(problems: list[Path]) -> Iterator[dict[str, Any]]:
    for path in problems:
        start = time.process_time()
        graph = capture(load_problem(path))
        seconds = round(time.process_time() - start, 3)
        yield {"graph": f"{path.parent.name}/{path.stem}", "capture": seconds, **_measured(graph)}


def _measured(graph: Graph) -> dict[str, Any]:
    """Nodes, and seconds of rewriting alone and of a whole plan, rewriting included."""
    rewriting, planning = [], []
    for _ in range(_RUNS):
        start = time.process_time()
        rewrite(graph)
        middle = time.process_time()
        plan = plan_graph(graph, H200).plan
        rewriting.append(middle - start)
        planning.append(time.process_time() - middle)
    return {
        "nodes": len(graph.nodes),
        "steps": len(plan.steps),
        "rewrite_seconds": round(min(rewriting), 3),
        "plan_seconds": round(min(planning), 3),
    }


if __name__ == "__main__":
    main()
