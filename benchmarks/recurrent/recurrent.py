"""Times the recurrent kernels beside PyTorch's, and their errors against float64.

    python benchmarks/recurrent/recurrent.py [--cases lstm35,gru39] [--output FILE.json]

Needs nvcc, a GPU and torch. Prints a line for each variant of each case; writes them with where
they come from. PyTorch's errors are given twice: as it comes, with TF32 allowed in cuDNN, and
without.
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from cases import CASES, Case
from library import Recurrence, Variant, build

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import side_by_side
from event_time import median_ms
from provenance import provenance


def variants(case: Case) -> list[Variant]:
    """What may be fast for it."""
    cluster = next(count for count in (1, 2, 4, 8, 16) if count * 16 >= case.hidden)
    above = case.directions * cluster * 16 if case.layers > 1 else 0
    inputs = (max(case.inputs, above) + 31) // 32 * 32
    batch = next((rows for rows in (8, 16) if rows >= case.batch), 32)
    stages = 3 if inputs * batch <= 8192 else 2
    chosen = [Variant(case.cell, case.directions, cluster, batch, inputs, 2, stages)]
    if case.name in ("lstm35", "cell"):
        chosen.append(Variant(case.cell, case.directions, cluster, batch, inputs, 1, stages))
    if case.name.startswith("cell"):  # two slices, as the planner has it
        chosen.append(Variant(case.cell, case.directions, cluster, 8, inputs, 2, stages))
    if batch == 32:
        chosen.append(Variant(case.cell, case.directions, cluster, 16, inputs, 2, stages))
    return chosen


def errors(results: list[torch.Tensor], exact: list[torch.Tensor]) -> list[tuple[float, float]]:
    """Of each result: RMS error over RMS, greatest error over the greatest."""
    found = []
    for result, best in zip(results, exact, strict=True):
        difference = result.double() - best
        rms = difference.norm() / best.norm()
        found.append((rms.item(), (difference.abs().max() / best.abs().max()).item()))
    return found


def call(
    module: torch.nn.Module, x: torch.Tensor, states: list[torch.Tensor]
) -> list[torch.Tensor]:
    """PyTorch's results in order: y, last hidden state, last cell."""
    with torch.no_grad():
        y, last = module(x, tuple(states) if len(states) == 2 else states[0])
    return [y, *(last if isinstance(last, tuple) else (last,))]


def repeats_bitwise(run: Callable[[], object], outs: list[torch.Tensor]) -> bool:
    """Whether ten runs, and one from a CUDA graph, give the same bits."""
    run()
    first = [out.clone() for out in outs]
    same = True
    for _ in range(10):
        run()
        same = same and all(map(torch.equal, first, outs))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for out in outs:
        out.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    return same and all(map(torch.equal, first, outs))


def _spoiled_as_exact(
    run: Callable[[], object], module: torch.nn.RNNBase, x: torch.Tensor,
    states: list[torch.Tensor], outs: list[torch.Tensor],
) -> dict[str, bool]:  # fmt: skip
    """Whether NaN and infinities in one input come out where they do in float64, and nothing else
    of the results moves. Both are put into `x` in place, in the middle of the sequence."""
    exactly = copy.deepcopy(module).double()
    place = (x.shape[0] // 2, x.shape[1] // 2, 1)
    before, found = x[place].item(), {}
    for value in (float("nan"), float("inf"), float("-inf")):
        x[place] = value
        run()
        exact = call(exactly, x.double(), [state.double() for state in states])
        found[str(value)] = all(
            torch.allclose(out.double(), best, rtol=0.0, atol=1e-4, equal_nan=True)
            for out, best in zip(outs, exact, strict=True)
        )
    x[place] = before
    return found


def measure(case: Case, libraries: Path, repeats: int) -> dict[str, object]:
    """One case's record."""
    torch.manual_seed(0)
    module = case.module()
    x = case.sequence()
    states = case.first_states()
    eager = call(module, x, states)
    record: dict[str, object] = {
        "case": case.name,
        "serial_steps": case.serial_steps(),
        "eager_ms": median_ms(lambda: call(module, x, states), repeats),
    }
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        float32 = call(module, x, states)
        record["eager_float32_ms"] = median_ms(lambda: call(module, x, states), repeats)
    exact = call(module.double(), x.double(), [state.double() for state in states])
    module.float()
    record["eager_errors"] = errors(eager, exact)
    record["eager_float32_errors"] = errors(float32, exact)
    found = []
    for variant in variants(case):
        outs = [torch.full_like(result, torch.nan) for result in eager]
        run = Recurrence(build(variant, libraries), case)
        if not run.prepare(module, x, states, outs):
            found.append({"variant": str(variant), "refused": True})
            continue
        clusters = run.clusters()
        try:
            ms = median_ms(run, repeats)
        except RuntimeError as error:
            found.append({"variant": str(variant), "refused": str(error), "clusters": clusters})
            continue
        found.append(
            {
                "variant": str(variant),
                "clusters": clusters,
                "ms": ms,
                "us_a_step": ms * 1e3 / case.serial_steps(),
                "errors": errors(outs, exact),
                "repeats": repeats_bitwise(run, outs),
                "nan_and_inf": _spoiled_as_exact(run, module, x, states, outs),
            }
        )
    record["variants"] = found
    return record


def _text(pairs: list[tuple[float, float]]) -> str:
    return " ".join(f"{rms:.1e}/{most:.1e}" for rms, most in pairs)


def print_record(record: dict[str, object]) -> None:
    """A short line for each variant."""
    eager = record["eager_ms"]
    print(
        f"{record['case']:>8} eager {eager:.3f} ms err {_text(record['eager_errors'])}; without "
        f"TF32 {record['eager_float32_ms']:.3f} err {_text(record['eager_float32_errors'])}",
        flush=True,
    )
    for v in record["variants"]:
        if "refused" in v:
            print(f"    {v['variant']:36} refused: {v['refused']} clusters {v.get('clusters')}")
            continue
        print(
            f"    {v['variant']:36} {v['ms']:7.3f} ms x{eager / v['ms']:5.1f} "
            f"{v['us_a_step']:.3f} us a step, {v['clusters']} clusters, err {_text(v['errors'])}"
            f"{'' if v['repeats'] else ' NOT THE SAME AGAIN'}"
            f"{'' if all(v['nan_and_inf'].values()) else ' NAN OR INF ELSEWHERE'}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="names, separated by commas")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/kernelwright_recurrent"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else [case.name for case in CASES]
    cases = [case for case in CASES if case.name in names]
    needed = sorted({v for case in cases for v in variants(case)}, key=str)
    side_by_side(lambda variant: build(variant, options.libraries), needed, options.jobs)
    if options.build_only:
        return
    records = []
    for case in cases:
        records.append(measure(case, options.libraries, options.repeats))
        print_record(records[-1])
        if options.output:
            content = {"provenance": provenance(), "records": records}
            options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
