"""Times whole networks: wall time of a call, and each of its kernels in order, ours and eager's.

    python benchmarks/convolutions/problems.py --emit KERNELBENCH/level3 --folder FILES
    python benchmarks/convolutions/networks.py --folder FILES --only level3_10,level3_15
        --seconds 70 --output FILE.json

Needs nvcc, a GPU and torch, and no kernelwright. Errors are against float64 with the same batch,
so that batch norm has the same statistics. A line for each network, and the journal beside the
output, are written when it is done; a second run with the same journal goes on where it stopped.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import rms_error, wall_ms

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from emitted_files import build_library, load, with_library
from provenance import provenance


def measure(folder: Path) -> dict[str, Any]:
    """The record of a network."""
    problem = load(folder / "problem.py", f"problem_{folder.name}")
    emitted = with_library(folder / "emitted.py", build_library(folder))
    torch.manual_seed(0)
    with torch.device("cuda"):
        own = problem.Model(*problem.get_init_inputs())
        new = emitted.ModelNew(*problem.get_init_inputs())
    inputs = [it.cuda() if isinstance(it, torch.Tensor) else it for it in problem.get_inputs()]
    new.load_state_dict(own.state_dict())
    state = {name: value.clone() for name, value in own.state_dict().items()}
    with torch.no_grad():
        eager, ours = own(*inputs), new(*inputs)
        own.load_state_dict(state)
        own.double()
        exact = own(*(it.double() if isinstance(it, torch.Tensor) else it for it in inputs))
        own.float()
        return {
            "problem": folder.name,
            "errors": {"eager": rms_error(eager, exact), "ours": rms_error(ours, exact)},
            "wall_ms": {
                "ours": wall_ms(lambda: new(*inputs)),
                "eager": wall_ms(lambda: own(*inputs)),
            },
            "kernels": {
                "ours": kernels(lambda: new(*inputs)),
                "eager": kernels(lambda: own(*inputs)),
            },
        }


def kernels(function: Callable[[], object]) -> list[tuple[str, float]]:
    """Name and microseconds of each kernel of a call, in order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    found = [it for it in profile.events() if it.device_type == torch.autograd.DeviceType.CUDA]
    found.sort(key=lambda it: it.time_range.start)
    return [(it.name[:90], round(it.time_range.elapsed_us(), 2)) for it in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", default="", help="names of problems, with commas between them")
    parser.add_argument("--seconds", type=float, default=70.0, help="none begins after these")
    parser.add_argument("--output", type=Path, default=Path("networks.json"))
    options = parser.parse_args()
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = [json.loads(line) for line in lines]
    done = {it["problem"] for it in records}
    chosen = options.only.split(",") if options.only else sorted(
        it.parent.name for it in options.folder.glob("*/facts.json")
    )  # fmt: skip
    end = time.monotonic() + options.seconds
    for name in chosen:
        if name in done or time.monotonic() > end:
            continue
        record = measure(options.folder / name)
        records.append(record)
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        sums = {side: sum(it[1] for it in found) / 1e3 for side, found in record["kernels"].items()}
        print(
            name, "wall", record["wall_ms"], "device", sums, "errors", record["errors"], flush=True
        )
    content = {"provenance": provenance(), "records": records}
    options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
