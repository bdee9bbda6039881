"""Judges what KernelBench's recurrent problems become, as `kernelwright judge` does, without times.

    python benchmarks/recurrent/problems.py --emit KERNELBENCH/level3 --folder FILES
    python benchmarks/recurrent/judged.py --build --folder FILES
    python benchmarks/recurrent/judged.py --folder FILES --seconds 100 --output FILE.json

The second call needs nvcc and no GPU: it compiles each file where the judge looks for it. The
third one judges all of them side by side, a process each, with the judge's own number of seeds. A
line for each, and the journal beside the output, are written when it is done; at the end of the
time what there is stays, and a later run with the same journal goes on.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import side_by_side
from problems import NUMBERS
from provenance import provenance

_COMPILE = """
import sys, torch
torch.cuda.get_device_capability = lambda *device: (9, 0)
import importlib.util
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""
"""Importing an emitted file compiles it."""


def build(candidate: Path) -> None:
    """The file's library, in the folder of the judge's cache that is this file's."""
    from kernelwright.toolchain.extension import prepare_extension_folder

    environment = prepare_extension_folder(candidate)
    command = [sys.executable, "-c", _COMPILE, str(candidate)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    print(candidate.parent.name, "built" if done.returncode == 0 else done.stderr[-600:])


def judge_one(folder: Path) -> None:
    """Print what the judge says of one file, as JSON."""
    from judge import judge_pair

    from kernelwright.worker.options import JudgeOptions, Speed

    options = JudgeOptions(speed=Speed.SKIPPED)
    print(json.dumps(judge_pair(folder / "problem.py", folder / "ours.py", options)))


def _record(number: int, process: "subprocess.Popen[str]") -> dict[str, Any]:
    """A judgement that has ended."""
    out, said = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if not lines:
        return {"problem": number, "failed": said[-600:]}
    return {"problem": number, **json.loads(lines[-1]), "is_whole": True}


def run_all(options: argparse.Namespace) -> None:
    """Every file that the journal lacks."""
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = [it for it in map(json.loads, lines) if it.get("is_whole")]
    end = time.monotonic() + options.seconds
    done = {it["problem"] for it in records}
    waiting = [it for it in NUMBERS if it not in done and (options.folder / str(it)).exists()]
    running: dict[int, subprocess.Popen[str]] = {}
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < options.jobs:
            number = waiting.pop(0)
            command = [sys.executable, __file__, "--one", str(options.folder / str(number))]
            running[number] = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        for number in [it for it, process in running.items() if process.poll() is not None]:
            record = _record(number, running.pop(number))
            records.append(record)
            with journal.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(number, record.get("status", "failed"), record.get("summary", ""), flush=True)
            whole = sorted(
                (it for it in records if it.get("is_whole")), key=lambda it: it["problem"]
            )
            content = {"provenance": provenance(), "records": whole}
            options.output.write_text(json.dumps(content, indent=1) + "\n")
        time.sleep(0.1)
    for number, process in running.items():
        process.terminate()
        print(number, "did not end", flush=True)


def main() -> None:
    """The calls, and the child that judges one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path("recurrent_files"))
    parser.add_argument("--output", type=Path, default=Path("recurrent_judged.json"))
    parser.add_argument("--seconds", type=float, default=100.0, help="it stops after these")
    parser.add_argument("--jobs", type=int, default=10, help="judgements side by side")
    options = parser.parse_args()
    if options.one is not None:
        judge_one(options.one)
    elif options.build:
        side_by_side(build, sorted(options.folder.glob("*/ours.py")), options.jobs)
    else:
        run_all(options)


if __name__ == "__main__":
    main()
