"""How long `kernelwright judge` takes for a stranger: the wall from the command to its verdict.

    python benchmarks/judging_time.py PROBLEM CANDIDATE --runs 3 --seconds 60 --output RESULT.json

Every run is a command of its own with empty folders for everything that is kept from run to run, as
in benchmarks/optimize.py. The first one finds no page of PyTorch's libraries in memory and no
driver that is awake; the others do. Times against eager and torch.compile are part of it. "verdict"
are the seconds until it is told, "end" those until all processes have ended; "spent" is what the
command waited for. No run begins for which the seconds left would not do.
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

from optimize import COMMAND, FOLDERS
from provenance import provenance

from kernelwright.env import usable_cores


def main() -> None:
    """Make all runs and write one JSON file, after every run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0, help="to stop after")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    report: dict[str, Any] = {"provenance": provenance(), "cores": usable_cores(), "runs": []}
    longest = 0.0
    for _ in range(arguments.runs):
        if time.monotonic() + longest > end:
            break
        row = _judge(arguments.problem, arguments.candidate)
        longest = max(longest, row["end"])
        report["runs"].append(row)
        print({name: value for name, value in row.items() if name != "spent"}, flush=True)
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _judge(problem: Path, candidate: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: str(Path(folder, name.lower())) for name in FOLDERS}
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "judge", str(problem), str(candidate), "--json"],
            env=os.environ | kept,
            stdout=subprocess.PIPE,
        )
        found, told = _told(process)
        told -= start
        code = process.wait()
        seconds = time.perf_counter() - start
    if found is None:
        return {"end": round(seconds, 2), "status": f"ended with {code}"}
    verdict, measurement = found["verdict"], found["measurement"]
    series = [measurement["candidate"], *measurement["baselines"]]
    return {
        "verdict": round(told, 2),
        "end": round(seconds, 2),
        "status": verdict["status"],
        "build": verdict["build_seconds"],
        "device ms": {it["name"]: [it["device_ms"], it["samples"]] for it in series if it},
        "spent": verdict["spent"],
    }


def _told(process: "subprocess.Popen[bytes]") -> tuple[dict[str, Any] | None, float]:
    """What it prints, and when all of that was there; None where it prints no judgement."""
    assert process.stdout is not None
    text = b""
    while piece := os.read(process.stdout.fileno(), 1 << 16):
        text += piece
        try:
            return json.loads(text), time.perf_counter()
        except ValueError:
            continue
    return None, time.perf_counter()


if __name__ == "__main__":
    main()
