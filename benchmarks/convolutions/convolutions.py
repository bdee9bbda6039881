"""Times the convolution kernels beside PyTorch's, and their errors against float64.

    python benchmarks/convolutions/convolutions.py [--cases 55,57] [--output FILE.json]

Needs nvcc, a GPU and torch. Prints a line for each variant of each case; writes them with where
they come from. Floor: input read and its planes written at 4.2 TB/s, then the larger of planes read
with the result written and the FLOPs at 600 TFLOP/s (225 for three products).
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch
from cases import CASES, Case
from library import Convolution, Variant, build

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from building import side_by_side
from event_time import median_ms
from provenance import provenance

BYTES_PER_MS = 4.2e9
FLOPS_PER_MS = {1: 600e9, 2: 225e9}


def chunk_for(channels: int) -> int:
    """Channels of one copy."""
    return min((chunk for chunk in (16, 32, 48, 64) if chunk >= channels), default=64)


def row_taps(case: Case) -> list[tuple[Literal["APART", "FOLDED", "OVERLAPPING"], int]]:
    """Ways to bring the taps of a row, and channels of a copy."""
    n, taps = case.spatial, case.weight[-1]
    pitch = (case.in_channels + 7) // 8 * 8
    is_plain = case.groups == 1 and not (case.transposed and any(s != 1 for s in case.stride[:n]))
    found: list[tuple[Literal["APART", "FOLDED", "OVERLAPPING"], int]] = []
    if is_plain and taps > 1 and pitch <= 32 and case.dilation[n - 1] == 1:
        found.append(("OVERLAPPING", chunk_for(min(taps, 64 // pitch) * pitch)))
    if is_plain and taps > 1 and case.in_channels < 16:
        found.append(("FOLDED", chunk_for(taps * case.in_channels)))
    return found or [("APART", chunk_for(case.in_channels))]


Schedule = Literal["SHARED", "ALTERNATE"]
PATCHES: dict[tuple[int, int], tuple[tuple[Schedule, int, int, int, int], ...]] = {
    (1, 64): (("ALTERNATE", 256, 7, 2, 65536), ("ALTERNATE", 256, 5, 3, 49152)),
    (1, 32): (("ALTERNATE", 256, 7, 2, 65536),),
    (1, 16): (("ALTERNATE", 256, 7, 4, 20480),),
    (2, 64): (("SHARED", 256, 4, 2, 57344), ("ALTERNATE", 128, 5, 3, 36864)),
    (2, 32): (("SHARED", 256, 5, 3, 32768), ("ALTERNATE", 128, 6, 4, 20480)),
    (2, 16): (("SHARED", 256, 6, 3, 20480), ("ALTERNATE", 128, 6, 4, 12288)),
}
"""Schedule, width, stages, patches and bytes of one, by channel parts and a pixel's channels."""


STORES: tuple[Literal["LINES", "ROWS"], ...] = ("LINES", "ROWS")


def with_patches(case: Case) -> list[Variant]:
    """Variants whose pixels lie in patches: for images, without strides along W and H."""
    n, parts = case.spatial, 2 if case.out_channels > 64 else 1
    strides = (1,) * n if case.transposed else case.stride[:n]
    if n == 1 or strides[-2:] != (1, 1) or case.in_channels < 16:
        return []
    chunk = chunk_for(case.in_channels)
    return [
        Variant(n, chunk, 1, parts, width, schedule, stages, 1, "APART", patches, bytes_, store)
        for schedule, width, stages, patches, bytes_ in PATCHES[parts, 64 if chunk == 48 else chunk]
        for store in STORES
    ]


def variants(case: Case) -> list[Variant]:
    """What may be fast for it."""
    if case.arithmetic == "float32":
        found = []
        for how, chunk in row_taps(case):
            whole = 64 if chunk == 48 else chunk
            for schedule, stages in (("ALTERNATE", 4), ("SHARED", 2)):
                found.append(Variant(case.spatial, whole, 2, 1, 128, schedule, stages, 1, how))
        return found
    found = with_patches(case)
    for how, chunk in row_taps(case):
        if case.out_channels > 64:
            found.append(Variant(case.spatial, chunk, 1, 2, 256, "SHARED", 4, 1, how))
            found.append(Variant(case.spatial, chunk, 1, 2, 256, "SHARED", 3, 1, how, store="ROWS"))
            found.append(Variant(case.spatial, chunk, 1, 2, 128, "ALTERNATE", 6, 1, how))
        else:
            found.append(Variant(case.spatial, chunk, 1, 1, 256, "ALTERNATE", 5, 1, how))
            found.append(
                Variant(case.spatial, chunk, 1, 1, 256, "ALTERNATE", 4, 1, how, store="ROWS")
            )
    return found


def floor(case: Case, planes: int) -> float:
    """Milliseconds of the plan."""
    x, y = torch.Size(case.x).numel(), torch.Size(case.output_shape()).numel()
    bytes_ = 2 * planes * x + 4 * y
    work = max(bytes_ / BYTES_PER_MS, case.flops() / FLOPS_PER_MS[planes])
    return (4 * x + 2 * planes * x) / BYTES_PER_MS + work


def kernel_times(function: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of each kernel of one call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    times = {e.key.split("<")[0][-40:]: e.device_time_total / 1e3 for e in profile.key_averages()}
    return {name: ms for name, ms in times.items() if ms > 0}


def errors(result: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """RMS error over RMS, greatest error over the greatest."""
    difference = result.double() - exact
    return (
        (difference.norm() / exact.norm()).item(),
        (difference.abs().max() / exact.abs().max()).item(),
    )


def repeats_bitwise(run: Callable[[], object], out: torch.Tensor) -> bool:
    """Whether ten runs give the same bits."""
    first = out[:1].clone()
    same = True
    for _ in range(10):
        run()
        same = same and torch.equal(first, out[:1])
    return same


def half_time(case: Case, x: torch.Tensor, weight: torch.Tensor, repeats: int) -> float:
    """Milliseconds of cuDNN's own fp16 kernel, channels last, of what is converted already."""
    half, half_weight = (
        tensor.half().movedim(1, -1).contiguous().movedim(-1, 1) for tensor in (x, weight)
    )
    return median_ms(lambda: case.call(half, half_weight), repeats)


def measure(case: Case, chosen: list[Variant], libraries: Path, repeats: int) -> dict[str, object]:
    """One case's record."""
    torch.manual_seed(0)
    x = torch.rand(case.x, device="cuda")
    weight = torch.rand(case.weight, device="cuda")
    exact = case.call(x[:1].double(), weight.double())
    eager = case.call(x, weight)
    record: dict[str, object] = {
        "case": case.name,
        "gflop": case.flops() / 1e9,
        "eager_ms": median_ms(lambda: case.call(x, weight), repeats),
        "eager_errors": errors(eager[:1], exact),
    }
    record["half_channels_last_ms"] = half_time(case, x, weight, repeats)
    out = torch.empty_like(eager)
    del eager
    found = []
    for variant in chosen:
        run = Convolution(build(variant, libraries), case)
        if not run.prepare(out, x, weight):
            found.append({"variant": str(variant), "refused": True})
            continue
        out.fill_(torch.nan)
        try:
            ms = median_ms(run, repeats)
        except RuntimeError as error:
            found.append({"variant": str(variant), "refused": str(error)})
            continue
        found.append(
            {
                "variant": str(variant),
                "ms": ms,
                "floor_ms": floor(case, variant.planes),
                "kernels_ms": kernel_times(run),
                "errors": errors(out[:1], exact),
                "finite": bool(out.isfinite().all()),
                "repeats": repeats_bitwise(run, out),
            }
        )
    record["variants"] = found
    return record


def print_record(record: dict[str, object]) -> None:
    """A short line for each variant."""
    gflop, eager = record["gflop"], record["eager_ms"]
    print(
        f"{record['case']:>3} {gflop:7.1f} GF eager {eager:7.3f} err "
        f"{record['eager_errors'][0]:.2e} {record['eager_errors'][1]:.2e} "
        f"fp16cl {record['half_channels_last_ms']:.3f}",
        flush=True,
    )
    for v in record["variants"]:
        if "refused" in v:
            print(f"    {v['variant']:34} refused: {v['refused']}")
            continue
        kernels = " ".join(f"{ms:.3f}" for ms in v["kernels_ms"].values())
        faults = "" if v["finite"] and v["repeats"] else "NOT FINITE OR NOT THE SAME AGAIN"
        rms, most = v["errors"]
        print(
            f"    {v['variant']:34} {v['ms']:7.3f} ms x{eager / v['ms']:5.2f} "
            f"floor {v['floor_ms'] / v['ms']:4.0%} [{kernels}] err {rms:.2e} {most:.2e} {faults}",
            flush=True,
        )


def print_best(records: list[dict[str, object]]) -> None:
    """The best variant of each case."""
    for record in records:
        measured = [v for v in record["variants"] if "ms" in v]
        if not measured:
            print(f"{record['case']:>3} no variant takes it")
            continue
        best = min(measured, key=lambda v: v["ms"])
        kernels = " ".join(f"{ms:.3f}" for ms in best["kernels_ms"].values())
        own = best["errors"][0] / record["eager_errors"][0]
        most = best["errors"][1] / record["eager_errors"][1]
        others = " ".join(f"{v['ms']:.3f}" for v in measured)
        print(
            f"{record['case']:>3} eager {record['eager_ms']:7.3f} best {best['ms']:7.3f} "
            f"x{record['eager_ms'] / best['ms']:5.2f} floor {best['floor_ms'] / best['ms']:4.0%} "
            f"[{kernels}] err x{own:.2f} x{most:.2f} {best['variant']} | {others} "
            f"{'' if best['finite'] and best['repeats'] else 'WRONG'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="", help="numbers, separated by commas")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--libraries", type=Path, default=Path("/tmp/kernelwright_convolutions"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--only-built", action="store_true", help="no variant that must be built")
    parser.add_argument("--jobs", type=int, default=8)
    options = parser.parse_args()
    names = options.cases.split(",") if options.cases else [case.name for case in CASES]
    cases = [case for case in CASES if case.name in names]
    plan = {case: variants(case) for case in cases}
    if options.only_built:
        there = {path.name for path in options.libraries.glob("*.so")}
        plan = {case: [v for v in vs if v.file_name() in there] for case, vs in plan.items()}
    needed = sorted({v for vs in plan.values() for v in vs}, key=str)
    side_by_side(lambda variant: build(variant, options.libraries), needed, options.jobs)
    if options.build_only:
        return
    records = []
    for case, chosen in plan.items():
        records.append(measure(case, chosen, options.libraries, options.repeats))
        print_record(records[-1])
        torch.cuda.empty_cache()
    print_best(records)
    if options.output:
        content = {"provenance": provenance(), "records": records}
        options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
