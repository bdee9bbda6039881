"""The five example problems end to end on a GPU: optimize, verify, time, and time the builds.

    python benchmarks/examples.py --output benchmarks/results/examples_h200.json --emitted FOLDER

Builds are timed on two cores (the process is pinned), each in a fresh process with an empty
extensions folder; `import_seconds` is a second process that finds everything built, beyond the
time that it takes to import torch.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from provenance import provenance

from kernelwright import pipeline
from kernelwright.report.plan import plan_json
from kernelwright.tune.effort import effort

EXAMPLES = Path(__file__).parents[1] / "examples"

_TIMED_IMPORT = """
import sys, time
import torch
torch.cuda.init()
from torch.utils import cpp_extension
start = time.perf_counter()
import runpy
runpy.run_path(sys.argv[1])
print(time.perf_counter() - start)
"""


def main() -> None:
    """Run all of examples/ and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--emitted", type=Path, required=True)
    arguments = parser.parse_args()
    rows = {}
    for problem in sorted(EXAMPLES.glob("*.py")):
        path = arguments.emitted / f"{problem.stem}_new.py"
        rows[problem.stem] = _run(problem, path) | _build_times(path)
        print(problem.stem, json.dumps(_summary(rows[problem.stem])), flush=True)
    report = {"provenance": provenance(), "problems": rows}
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")


def _run(problem: Path, path: Path) -> dict[str, Any]:
    options = pipeline.OptimizeOptions(target=pipeline.Target.CUDA, effort=effort("quick"))
    done = pipeline.optimize(problem, path, options=options)
    compiled = done.compiled
    return {
        "plan": plan_json(compiled.rewritten, compiled.plan, compiled.machine),
        "verdict": done.verdict.to_json(),
        "measurement": done.measurement.to_json(),
    }


def _build_times(path: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return {
            "cold_build_seconds_on_2_cores": _timed_import(path, folder),
            "import_seconds": _timed_import(path, folder),
        }


def _timed_import(path: Path, folder: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _TIMED_IMPORT, str(path)],
        env=os.environ | {"TORCH_EXTENSIONS_DIR": folder, "MAX_JOBS": "2"},
        preexec_fn=lambda: os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2])),
        capture_output=True,
        text=True,
        check=True,
    )
    return round(float(done.stdout.split()[-1]), 3)


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    measurement = row["measurement"]
    return {
        "status": row["verdict"]["status"],
        "ms": measurement["candidate"]["device_ms"] if measurement["candidate"] else None,
        "speedups": {s["baseline"]: s["device"] for s in measurement["speedups"]},
        "share_of_copy": measurement["share_of_copy"],
        "build": row["cold_build_seconds_on_2_cores"],
        "import": row["import_seconds"],
    }


if __name__ == "__main__":
    main()
