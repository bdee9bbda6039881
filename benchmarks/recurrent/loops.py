"""Times loops that carry a value element by element: ours beside eager PyTorch and torch.compile.

    python benchmarks/recurrent/loops.py --build FILES
    python benchmarks/recurrent/loops.py --folder FILES --output FILE.json

The first call needs nvcc and no GPU: it writes each problem and what it becomes, and compiles that.
The second one needs a GPU and compiles nothing that is there. Times are of the device, with a cold
L2; errors are distances from the problem's own module in float64. The floor is a copy, on the same
card, of as many bytes as a problem reads and writes at least. A line for each, and the journal
beside the output, are written when it is done; it stops by itself, and a later run with the same
journal goes on. `--compiled` times torch.compile as well, which unrolls the loop for minutes.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from emitted_files import build_library, load, with_library
from loop_cases import CASES, LoopCase
from provenance import provenance
from stopwatch import Card, device_ms

_BUDGET_MS = 100.0
"""Milliseconds of the card for each time."""
_LEAST = 1e-6
"""Relative RMS errors that are none: some units in the last place of float32."""


def build(case: LoopCase, target: Path) -> str:
    """The problem, what it becomes, its facts and its library; a line about them."""
    from kernelwright.compiling import compile_problem, write_candidate
    from kernelwright.machine import H200
    from kernelwright.problem import load_problem

    folder = target / case.name
    if (folder / "kernels.so").exists():
        return f"{case.name}: is there"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "problem.py"
    path.write_text(case.text)
    began = time.monotonic()
    compiled = compile_problem(load_problem(path), H200)
    candidate = write_candidate(compiled, folder / "emitted.py")
    (folder / "kernels.cu").write_text(candidate.cuda_source)
    facts = {
        "kernels": [f"{it.name}: {it.config}" for it in compiled.plan.kernels],
        "left": [f"{it.name}: {it.why}" for it in compiled.plan.left_to_pytorch],
        "floor_bytes": compiled.floor.bytes,
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    build_library(folder)
    return f"{case.name}: {len(facts['kernels'])} kernels in {time.monotonic() - began:.0f} s"


def measured(case: LoopCase, folder: Path, card: Card) -> dict[str, Any]:
    """A record: milliseconds of each way, the floor, and how far each is from float64."""
    facts = json.loads((folder / case.name / "facts.json").read_text())
    emitted = with_library(folder / case.name / "emitted.py", build_library(folder / case.name))
    own, inputs = _eager(case, folder, card)
    with card.device:
        new = emitted.ModelNew().eval()
    new.load_state_dict(own.state_dict())
    eager, ours = own(*inputs), new(*inputs)
    repeats = bool(torch.equal(ours, new(*inputs)))
    exact = own.double()(*(it.double() for it in inputs))
    own.float()
    errors = {"eager": _error(eager, exact), "ours": _error(ours, exact)}
    del exact, eager, ours
    half = torch.empty(facts["floor_bytes"] // 8, device=card.device)
    room = torch.empty_like(half)
    return {
        "case": case.name,
        "ours_ms": _ms(card, lambda: new(*inputs)),
        "eager_ms": _ms(card, lambda: own(*inputs)),
        "floor_ms": _ms(card, lambda: room.copy_(half)),
        "errors": errors,
        "is_verified": repeats and errors["ours"] <= max(_LEAST, 1.5 * errors["eager"]),
        **facts,
    }


def compiled_ms(case: LoopCase, folder: Path, card: Card) -> float:
    """Milliseconds of the problem's own module by torch.compile."""
    own, inputs = _eager(case, folder, card)
    compiled = torch.compile(own)
    return _ms(card, lambda: compiled(*inputs))


def _eager(case: LoopCase, folder: Path, card: Card) -> tuple[torch.nn.Module, list[torch.Tensor]]:
    """The problem's own module and its inputs, from one seed, on the card."""
    problem = load(folder / case.name / "problem.py", f"problem_{case.name}")
    torch.manual_seed(0)
    with card.device:
        return problem.Model().eval(), problem.get_inputs()


def _ms(card: Card, call: Callable[[], object]) -> float:
    return round(device_ms(card, call, _BUDGET_MS), 5)


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """RMS of the differences over the RMS of the exact values."""
    return float((found.double() - exact).norm() / exact.norm())


def line(record: dict[str, Any]) -> str:
    """For people."""
    ours, eager, floor = record["ours_ms"], record["eager_ms"], record["floor_ms"]
    compiled = f", compiled {record['compiled_ms']:.3f}" if "compiled_ms" in record else ""
    return (
        f"{record['case']:24} ours {ours:8.4f} ms, eager {eager:8.3f}{compiled}: "
        f"{eager / ours:6.1f}x; floor {floor:.4f} ms ({floor / ours:.0%}); "
        f"verified {record['is_verified']}, errors {record['errors']}"
    )


def run_all(options: argparse.Namespace) -> None:
    """Every case that the journal lacks."""
    journal = options.output.with_suffix(".jsonl")
    records = (
        [json.loads(it) for it in journal.read_text().splitlines()] if journal.exists() else []
    )
    done = {it["case"] for it in records}
    card, end = Card(torch.device("cuda")), time.monotonic() + options.seconds
    for case in CASES:
        if case.name in done or time.monotonic() > end:
            continue
        try:
            with torch.no_grad(), card.alone():
                record = measured(case, options.folder, card)
                if options.compiled:
                    record["compiled_ms"] = compiled_ms(case, options.folder, card)
        except Exception as error:  # The other cases go on.
            print(f"{case.name}: {type(error).__name__}: {error}"[:600], flush=True)
            continue
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        records.append(record)
        print(line(record), flush=True)
        content = {"provenance": provenance(), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")
        torch.cuda.empty_cache()


def main() -> None:
    """Both calls."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="write and compile; no GPU")
    parser.add_argument("--folder", type=Path, default=Path("loop_files"))
    parser.add_argument("--output", type=Path, default=Path("recurrent_loops.json"))
    parser.add_argument("--seconds", type=float, default=60.0, help="it stops after these")
    parser.add_argument("--processes", type=int, default=2, help="that build side by side")
    parser.add_argument("--compiled", action="store_true", help="torch.compile as well")
    options = parser.parse_args()
    if options.build is None:
        run_all(options)
        return
    with ProcessPoolExecutor(options.processes) as pool:
        for told in pool.map(build, CASES, [options.build] * len(CASES)):
            print(told, flush=True)


if __name__ == "__main__":
    main()
