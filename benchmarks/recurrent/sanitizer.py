"""Runs small recurrent stacks under compute-sanitizer: one line for each of its tools.

    python benchmarks/recurrent/sanitizer.py --build
    python benchmarks/recurrent/sanitizer.py --seconds 120 --output FILE.json

The first call needs nvcc and no GPU. The second one writes what each tool found to the journal
beside the output when it is done, and stops by itself; a later run goes on where it stopped.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from cases import Case
from library import Recurrence, Variant, build

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import side_by_side
from provenance import provenance

_TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
_VARIANTS = (
    Variant("LSTM", 1, 4, 8, 64, 2, 2),
    Variant("GRU", 2, 2, 16, 64, 2, 3),
    Variant("LSTM", 1, 2, 8, 608, 1, 2, "__half", 32),
)
"""Both numbers of planes and of tiles, weights in shared memory."""


def _run_all(libraries: Path) -> None:
    """A few steps of each variant, at sizes that fill no tile."""
    for variant in _VARIANTS:
        case = Case(
            name=str(variant),
            cell=variant.cell,
            batch=variant.batch + 3,
            steps=5,
            inputs=37,
            hidden=variant.cluster * variant.units - 5,
            layers=2,
            directions=variant.directions,
            dtype=torch.float16 if variant.stored == "__half" else torch.float32,
        )
        module, x, states = case.module(), case.sequence(), case.first_states()
        shape = (case.steps, case.batch, case.directions * case.hidden)
        outs = [torch.full(shape, torch.nan, device="cuda", dtype=case.dtype)]
        outs += [torch.full_like(state, torch.nan) for state in states]
        run = Recurrence(build(variant, libraries), case)
        if not run.prepare(module, x, states, outs):
            raise RuntimeError(f"{variant} does not take its case")
        run()
        torch.cuda.synchronize()
        if any(bool(out.isnan().any()) for out in outs):
            raise RuntimeError(f"{variant} leaves NaN")
    print("all ran")


def program() -> str:
    """From PATH, or beside nvcc."""
    nvcc = shutil.which("nvcc")
    beside = Path(nvcc).resolve().parent / "compute-sanitizer" if nvcc else None
    found = shutil.which("compute-sanitizer")
    return found or (str(beside) if beside and beside.exists() else "compute-sanitizer")


def _found(tool: str, libraries: Path, seconds: float) -> dict[str, object]:
    """A tool's record."""
    own = [sys.executable, str(Path(__file__)), "--child", "--libraries", str(libraries)]
    # What PyTorch's kernels do is no finding of ours.
    names = "kernel_substring=recurrent"
    command = [program(), "--tool", tool, "--kernel-name", names, *own]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (subprocess.TimeoutExpired, FileNotFoundError) as error:
        return {"tool": tool, "failed": repr(error)[:200]}
    lines = (ended.stdout + ended.stderr).splitlines()
    summary = [line.strip("= ") for line in lines if "SUMMARY" in line]
    errors = [line for line in lines if "=========" in line][:40]
    clean = ended.returncode == 0 and "all ran" in ended.stdout
    # "10 hazards" ends in "0 hazards".
    clean &= any(re.search(r"(?<!\d)0 (errors|hazards)", line) for line in summary)
    found = {"tool": tool, "clean": clean, "summary": summary, "is_whole": bool(summary)}
    return found if clean else found | {"lines": errors}


def main() -> None:
    """The two calls, and the child that a tool watches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/kernelwright_recurrent_small"))
    parser.add_argument("--output", type=Path, default=Path("recurrent_sanitizer.json"))
    parser.add_argument("--seconds", type=float, default=120.0, help="it stops after these")
    options = parser.parse_args()
    if options.child:
        _run_all(options.libraries)
        return
    end = time.monotonic() + options.seconds
    side_by_side(lambda variant: build(variant, options.libraries), _VARIANTS, len(_VARIANTS))
    if options.build:
        return
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = [it for it in map(json.loads, lines) if it.get("is_whole")]
    for tool in _TOOLS:
        left = end - time.monotonic()
        if left < 1 or any(it["tool"] == tool for it in records):
            continue
        records.append(_found(tool, options.libraries, left))
        with journal.open("a") as file:
            file.write(json.dumps(records[-1]) + "\n")
        print(json.dumps(records[-1])[:600], flush=True)
        content = {"provenance": provenance(), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
