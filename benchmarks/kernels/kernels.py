"""Builds kernels.cu, checks every config against float64, times them; one call does all.

    python benchmarks/kernels/kernels.py [--output benchmarks/results/kernels_h200.json]

Needs nvcc, a GPU and torch. Prints a table; writes the numbers with where they come from.
"""

import argparse
import datetime
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from checks import Checks, check_gemm, check_large, check_math, check_pointwise
from library import (
    GEMM_CONFIGS,
    GENERAL,
    GENERAL_CONFIGS,
    LINEAR_CONFIGS,
    POINTWISE_CONFIGS,
    Library,
    admitted,
    factors,
    relative_error,
)


class Timer:
    """Medians of event-timed single launches, the L2 cache overwritten before each."""

    def __init__(self) -> None:
        self.flush = torch.empty(256 * 2**20, dtype=torch.uint8, device="cuda")

    def __call__(self, function: Callable[[], object], repeats: int = 40) -> float:
        """Seconds."""
        for _ in range(3):
            function()
        events = []
        for _ in range(repeats):
            self.flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            stop.record()
            events.append((start, stop))
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(stop) for start, stop in events) / 1e3


def time_arithmetic(run: Library, timer: Timer) -> dict[str, object]:
    """Independent chains of multiply-adds on every CUDA core: the ceiling of the SIMT products."""
    rates: dict[str, object] = {}
    for dtype in (torch.float32, torch.float64):
        out = torch.zeros(132 * 16 * 256, dtype=dtype, device="cuda")
        call = ("multiply_add_rate", out, out.element_size(), 4096)
        rate = 2 * 16 * 4096 * out.numel() / timer(lambda call=call: run(*call), 5)
        rates[f"{dtype}_simt_flops"] = rate
        write(f"{dtype} multiply-adds: {rate / 1e12:.1f} TFLOP/s")
    return rates


def time_pointwise(run: Library, timer: Timer) -> dict[str, object]:
    """Scaling a large matrix and scaling rows, against torch and the copy of the same bytes."""
    a = torch.rand(16384, 4096, device="cuda")
    out = torch.empty_like(a)
    size = 2 * a.numel() * 4
    scale = {"copy": timer(lambda: out.copy_(a)), "torch.mul": timer(lambda: torch.mul(a, 3.14))}
    scale["torch.mul out="] = timer(lambda: torch.mul(a, 3.14, out=out))
    for index, name in enumerate(POINTWISE_CONFIGS):
        scale[name] = timer(lambda index=index: run("scale_float", index, out, a, 3.14))
    scale["copy again"] = timer(lambda: out.copy_(a))
    b = torch.rand(4096, 4096, device="cuda")
    diagonal = torch.rand(4096, 1, device="cuda")
    small = torch.empty_like(b)
    rows = {"copy": timer(lambda: small.copy_(b)), "torch": timer(lambda: diagonal * b)}
    for index, name in enumerate(POINTWISE_CONFIGS):
        rows[name] = timer(lambda index=index: run("multiply_float", index, small, diagonal, b))
    rows["copy again"] = timer(lambda: small.copy_(b))
    odd = torch.rand(4096, 4097, device="cuda")
    odd_out = torch.empty_like(odd)
    rows["strided 4097 256x4x4"] = timer(lambda: run("multiply_float", 2, odd_out, diagonal, odd))
    report("scale 16384x4096 (us, TB/s)", scale, lambda seconds: size / seconds / 1e12)
    small_size = 2 * b.numel() * 4 + diagonal.numel() * 4
    report("rows 4096x4096 (us, TB/s)", rows, lambda seconds: small_size / seconds / 1e12)
    return {"scale_16384x4096_s": scale, "row_scale_4096x4096_s": rows}


def time_gemm(run: Library, timer: Timer) -> dict[str, object]:
    """Every config on 2048 x 8192 x 4096 in the four layouts, and small problems."""
    results: dict[str, object] = {}
    for layout, label in enumerate(("NN", "NT", "TN", "TT")):
        times, errors = time_layout(run, timer, layout, label)
        results[f"gemm_{label}_s"] = times
        results[f"gemm_{label}_relative_error"] = errors
    for m, k, n in (
        (1, 8192, 4096),
        (4096, 8192, 1),
        (256, 1024, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
    ):
        results[f"gemm_{m}x{k}x{n}_s"] = time_small(run, timer, m, k, n)
    return results | time_linear(run, timer)


def time_layout(
    run: Library, timer: Timer, layout: int, label: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds and relative errors of every config in one layout."""
    m, k, n = 2048, 8192, 4096
    lhs, rhs = factors(layout, m, n, k)
    out = torch.empty(m, n, device="cuda")
    exact = lhs.double() @ rhs.double()
    times = {"torch.mm": timer(lambda: torch.mm(lhs, rhs), 8)}
    errors = {"torch.mm": relative_error(torch.mm(lhs, rhs), exact)}
    for index, name in enumerate(GEMM_CONFIGS):
        call = ("gemm_float", layout, index, out, lhs, rhs)
        times[name] = timer(lambda call=call: run(*call), 8)
        errors[name] = relative_error(out, exact)
    for index, name in enumerate(GENERAL_CONFIGS):
        call = ("gemm_float", GENERAL, index, out, lhs, rhs)
        times[f"general {name}"] = timer(lambda call=call: run(*call), 5)
    flops = 2 * m * n * k
    report(f"gemm {label} {m}x{k}x{n} (us, TFLOP/s)", times, lambda s: flops / s / 1e12)
    write("  relative errors:", *(f"{error:.2e}" for error in errors.values()))
    return times, errors


def time_small(run: Library, timer: Timer, m: int, k: int, n: int) -> dict[str, float]:
    """Few tiles: seconds of some configs."""
    lhs, rhs = factors(0, m, n, k)
    out = torch.empty(m, n, device="cuda")
    times = {"torch.mm": timer(lambda: torch.mm(lhs, rhs))}
    variants = [(0, i, GEMM_CONFIGS[i]) for i in (0, 8, 9, 10)]
    variants += [(GENERAL, i, f"general {name}") for i, name in enumerate(GENERAL_CONFIGS)]
    for layout, index, name in variants:
        if admitted(layout, m, n):
            call = ("gemm_float", layout, index, out, lhs, rhs)
            times[name] = timer(lambda call=call: run(*call))
    report(f"gemm NN {m}x{k}x{n} (us, GFLOP/s)", times, lambda s: 2 * m * n * k / s / 1e9)
    return times


def time_linear(run: Library, timer: Timer) -> dict[str, object]:
    """Linear + ReLU + division at 1024 x 8192 x 8192."""
    x, weight = torch.rand(1024, 8192, device="cuda"), torch.rand(8192, 8192, device="cuda") - 0.5
    bias, out = torch.rand(8192, device="cuda"), torch.empty(1024, 8192, device="cuda")
    flops = 2 * 1024 * 8192 * 8192
    reference = torch.nn.Linear(8192, 8192, device="cuda")
    with torch.no_grad():
        times = {"torch": timer(lambda: torch.relu(reference(x)) / 2.0, 8)}
    for index, name in enumerate(LINEAR_CONFIGS):
        call = ("linear_relu_div", index, out, x, weight, bias, 2.0)
        times[name] = timer(lambda call=call: run(*call), 8)
    report("linear_relu_div (us, TFLOP/s)", times, lambda s: flops / s / 1e12)
    return {"linear_relu_div_s": times}


def write(*parts: object, sep: str = " ") -> None:
    """To standard output, at once."""
    print(*parts, sep=sep, flush=True)


def report(title: str, times: dict[str, float], rate: Callable[[float], float]) -> None:
    """One line for each time: microseconds and a rate."""
    write(title)
    for name, seconds in times.items():
        write(f"  {name:28s} {seconds * 1e6:10.1f} {rate(seconds):8.2f}")


def provenance() -> dict[str, object]:
    """What produced the numbers."""
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": "python benchmarks/kernels/kernels.py",
        "protocol": "CUDA events around one launch, 256 MiB written before each, median",
    }


def main() -> None:
    """Build, check, time, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        run = Library(Path(folder))
    checks = Checks()
    for check in (check_pointwise, check_math, check_gemm, check_large):
        check(run, checks)
        torch.cuda.synchronize()
    write(f"{checks.count} checks, {len(checks.failures)} failed")
    write(*checks.failures[:60], sep="\n")
    timer = Timer()
    results = time_arithmetic(run, timer) | time_pointwise(run, timer) | time_gemm(run, timer)
    if arguments.output:
        record = {
            "provenance": provenance(),
            "checks": checks.count,
            "failures": checks.failures,
            **results,
        }
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
