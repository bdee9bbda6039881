"""How long `kernelwright optimize` takes for a stranger: the wall from the command to its end.

    python benchmarks/optimize.py PROBLEM... --output benchmarks/results/optimize_h200.json

Each problem is a command of its own with empty folders for everything that is kept from run to run:
what was built and tuned before, torch.compile's and Triton's caches. One after the other, so that
each has the machine to itself; what else runs there is for who calls it to know.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nothing_kept import nothing_kept
from provenance import provenance

from kernelwright.env import usable_cores

COMMAND = "from kernelwright.cli import script; script()"


def main() -> None:
    """Run all and write one JSON file, after every problem."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--effort", default="quick")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "provenance": provenance(),
        "cores": usable_cores(),
        "effort": arguments.effort,
        "problems": {},
    }
    for problem in arguments.problems:
        name = f"{problem.parent.name}/{problem.stem}"
        report["problems"][name] = row = _optimize(problem, arguments.effort)
        print(name, row["seconds"], row["status"], flush=True)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _optimize(problem: Path, effort: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = ["optimize", str(problem), "-o", str(Path(folder, "new.py"))]
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *command, "--effort", effort, "--json"],
            env=os.environ | nothing_kept(Path(folder)),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        seconds = round(time.perf_counter() - start, 1)
    if not done.stdout:
        return {"seconds": seconds, "status": f"ended with {done.returncode}"}
    found = json.loads(done.stdout)
    verdict, measurement = found["verdict"], found["measurement"]
    return {
        "seconds": seconds,
        "status": verdict["status"],
        "device ms": measurement["candidate"] and measurement["candidate"]["device_ms"],
        "kernels": len(found["plan"]["kernels"]),
        "spent": verdict["spent"],
    }


if __name__ == "__main__":
    main()
