"""Times recurrent layers of users' sizes and types, as the planner has them, beside cuDNN's.

    python benchmarks/recurrent/cells.py --build
    python benchmarks/recurrent/cells.py --seconds 60 --output FILE.json

The first call needs nvcc and no GPU: it plans each case and compiles what is ours. The second one
prints a line for each case and writes it to the journal beside the output when it is done; it stops
by itself, and a later run with the same journal goes on. What the planner leaves to PyTorch takes
exactly as long as there, and has the reason instead of a time.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import torch
from cases import Case
from library import Recurrence, Variant, build
from recurrent import call, errors

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import side_by_side
from event_time import median_ms
from provenance import provenance

_STORED = {
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
}


def _cases() -> list[Case]:
    """Acceptance's row first: two layers, 128 inputs, 256 steps."""

    def case(cell: str, hidden: int, batch: int, dtype: torch.dtype) -> Case:
        name = f"{cell} {hidden} {str(dtype).removeprefix('torch.')} batch {batch}"
        return Case(
            name=name, cell=cell, batch=batch, steps=256, hidden=hidden, layers=2, dtype=dtype
        )

    lstm = [
        case("LSTM", hidden, batch, dtype)
        for hidden in (256, 512, 1024)
        for dtype in _STORED
        for batch in (1, 32, 64, 256)
    ]
    others = [
        case(cell, hidden, batch, dtype)
        for cell in ("GRU", "RNN_TANH", "RNN_RELU")
        for dtype in _STORED
        for hidden, batch in ((256, 10), (256, 64), (512, 32))
    ]
    return [*lstm, *others]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A case, and what the planner makes of it."""

    case: Case
    variant: Variant | None
    why: str


def planned(case: Case) -> Planned:
    """The config of the kernel, or why the layers stay PyTorch's."""
    from kernelwright.capture import capture_module
    from kernelwright.ir.recurrent_configs import RecurrentConfig
    from kernelwright.machine import H200
    from kernelwright.schedule import schedule

    graph = capture_module(case.module("cpu"), (case.sequence("cpu"),))
    plan = schedule(graph, H200)
    kernel = next((it for it in plan.kernels if it.family == "recurrent"), None)
    if kernel is None:
        why = next(it.why for it in plan.left_to_pytorch if it.name.endswith(".input"))
        return Planned(case=case, variant=None, why=why)
    config = kernel.configured(RecurrentConfig)
    variant = Variant(
        cell=case.cell,
        directions=case.directions,
        cluster=config.cluster,
        batch=config.batch,
        inputs=config.inputs,
        planes=config.planes,
        stages=config.stages,
        stored=_STORED[case.dtype],
        units=config.units,
    )
    return Planned(case=case, variant=variant, why="")


def plans(folder: Path) -> list[Planned]:
    """Of all cases; what is planned is kept, for a card does not wait for it."""
    kept = folder / "plans.json"
    if kept.exists():
        known = json.loads(kept.read_text())
    else:
        known = {}
        for case in _cases():
            one = planned(case)
            known[case.name] = {"variant": one.variant and asdict(one.variant), "why": one.why}
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(known))
    return [
        Planned(case=case, variant=variant and Variant(**variant), why=known[case.name]["why"])
        for case in _cases()
        for variant in (known[case.name]["variant"],)
    ]


def measured(one: Planned, libraries: Path, repeats: int) -> dict[str, object]:
    """A record: milliseconds of both, and how far each is from float64."""
    case = one.case
    torch.manual_seed(0)
    module, x, states = case.module(), case.sequence(), case.first_states()
    eager = call(module, x, states)
    record: dict[str, object] = {
        "case": case.name,
        "library_ms": median_ms(lambda: call(module, x, states), repeats),
    }
    if one.variant is None:
        return record | {"ours_ms": None, "why": one.why, "is_whole": True}
    outs = [torch.full_like(result, torch.nan) for result in eager]
    run = Recurrence(build(one.variant, libraries), case)
    if not run.prepare(module, x, states, outs):
        raise RuntimeError("the variant does not take the case")
    record["variant"] = str(one.variant)
    record["ours_ms"] = median_ms(run, repeats)
    exact = call(module.double(), x.double(), [state.double() for state in states])
    record["errors"] = {"library": errors(eager, exact), "ours": errors(outs, exact)}
    return record | {"is_whole": True}


def line(record: dict[str, object]) -> str:
    """For people."""
    theirs, ours = record["library_ms"], record.get("ours_ms")
    if ours is None:
        return f"{record['case']:32} library {theirs:7.3f} ms; ours: {record.get('why', 'failed')}"
    errors_of = {who: f"{found[0][0]:.1e}" for who, found in record["errors"].items()}
    return (
        f"{record['case']:32} library {theirs:7.3f} ms, ours {ours:7.3f}: {theirs / ours:5.2f}x; "
        f"RMS errors {errors_of}, {record['variant']}"
    )


def _summary(records: list[dict[str, object]]) -> dict[str, object]:
    ratios = [it["library_ms"] / (it["ours_ms"] or it["library_ms"]) for it in records]
    if not ratios:
        return {}
    return {
        "cases": len(ratios),
        "least": min(ratios),
        "geometric_mean": prod(ratios) ** (1 / len(ratios)),
    }


def main() -> None:
    """Both calls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/kernelwright_recurrent_cells"))
    parser.add_argument("--output", type=Path, default=Path("recurrent_cells.json"))
    parser.add_argument("--seconds", type=float, default=60.0, help="it stops after these")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    found = plans(options.libraries)
    variants = sorted({it.variant for it in found if it.variant}, key=str)
    side_by_side(lambda variant: build(variant, options.libraries), variants, options.jobs)
    if options.build:
        print(f"{len(variants)} variants for {len(found)} cases")
        return
    journal = options.output.with_suffix(".jsonl")
    lines = journal.read_text().splitlines() if journal.exists() else []
    records = [it for it in map(json.loads, lines) if it.get("is_whole")]
    done = {it["case"] for it in records}
    for one in found:
        if one.case.name in done or time.monotonic() > end:
            continue
        try:
            record = measured(one, options.libraries, options.repeats)
        except RuntimeError as error:
            print(f"{one.case.name}: {error}"[:200], flush=True)
            continue
        with journal.open("a") as file:
            file.write(json.dumps(record) + "\n")
        records.append(record)
        print(line(record), flush=True)
        content = {"provenance": provenance(), "summary": _summary(records), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(_summary(records)))


if __name__ == "__main__":
    main()
