"""Builds kernels.cu, checks every config against float64, times them; one call does all.

    python benchmarks/kernels/kernels.py [--output benchmarks/results/kernels_h200.json]

Needs nvcc, a GPU and torch. Prints a table; writes the numbers with where they come from.
"""

import argparse
import ctypes
import datetime
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src" / "kernelwright" / "kernels"

GEMM_CONFIGS = (
    "128x128x16 8x8 s2 p512",
    "128x128x16 8x8 s3",
    "128x128x32 8x8 s2",
    "128x128x16 16x8 s2 p512",
    "128x128x16 8x16 s2 p512",
    "128x256x16 8x16 s3 p512",
    "256x128x16 16x8 s3 p512",
    "64x128x16 8x8 s3 p512",
    "64x64x16 4x4 s3 p512",
    "32x64x16 4x4 s3 p512",
    "32x32x32 4x4 s4 p512",
)
"""Tile, accumulators of a thread, stages, products per promotion."""
GENERAL_CONFIGS = ("64x64x16 4x4 s3 p512", "32x64x16 4x4 s3 p512", "32x32x32 4x4 s4 p512")
"""Those for any strides."""
POINTWISE_CONFIGS = (
    "256x1x4",
    "256x2x4",
    "256x4x4",
    "512x1x4",
    "512x2x4",
    "1024x1x4",
    "128x1x4",
    "128x2x4",
)
"""Threads, accesses in flight, elements of one access."""
GENERAL = 4
"""The layout in which nothing is assumed."""


class Checks:
    """Counts what was compared and keeps what differed."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[str] = []

    def expect(self, what: str, differing: int, detail: object = "") -> None:
        """One comparison."""
        self.count += 1
        if differing:
            self.failures.append(f"{what} {detail}")

    def equal(self, what: str, actual: torch.Tensor, expected: torch.Tensor) -> None:
        """The same values; any NaN equals any other."""
        self.close(what, actual, expected, 0.0)

    def close(self, what: str, actual: torch.Tensor, expected: torch.Tensor, rtol: float) -> None:
        """Element by element; NaN and infinities where expected."""
        near = torch.isclose(actual, expected, rtol=rtol, atol=rtol / 8, equal_nan=True)
        differing = int((~near).sum())
        self.expect(what, differing, f"{differing} of {near.numel()} differ")

    def accurate(self, what: str, actual: torch.Tensor, exact: torch.Tensor, bound: float) -> None:
        """Relative Frobenius error below `bound`."""
        error = relative_error(actual, exact)
        self.expect(what, int(not error < bound), error)


class Library:
    """The entry points of kernels.cu."""

    def __init__(self, folder: Path) -> None:
        target = folder / "kernels.so"
        major, minor = torch.cuda.get_device_capability()
        arch = f"{major}{minor}" + ("a" if major >= 9 else "")
        command = ["nvcc", "-std=c++17", "-O3", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
        command += ["-Xcompiler", "-fPIC", "-shared", f"-I{SOURCES}", "-o", str(target)]
        subprocess.run([*command, str(HERE / "kernels.cu")], check=True)
        self.library = ctypes.CDLL(str(target))
        self.library.error_name.restype = ctypes.c_char_p

    def __call__(self, name: str, *arguments: torch.Tensor | float | int) -> None:
        """Launch `name`; raise RuntimeError on a CUDA error."""
        stream = torch.cuda.current_stream().cuda_stream
        words = [torch.cuda.current_device(), stream]
        for value in arguments:
            if isinstance(value, torch.Tensor):
                words += [value.data_ptr(), value.dim(), *value.shape, *value.stride()]
            elif isinstance(value, float):
                words += struct.unpack("q", struct.pack("d", value))
            else:
                words.append(value)
        status = getattr(self.library, name)(struct.pack(f"{len(words)}q", *words))
        if status:
            raise RuntimeError(f"{name}: {self.library.error_name(status).decode()}")


# --- Checks --------------------------------------------------------------------------------------


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output in which an element that was not written shows."""
    if dtype.is_floating_point:
        return torch.full(shape, float("nan"), dtype=dtype, device="cuda")
    return torch.full(shape, 77, device="cuda").to(dtype)


def misaligned(*shape: int) -> torch.Tensor:
    """Contiguous normal numbers whose address is 4 bytes past a 16-byte boundary."""
    count = torch.Size(shape).numel()
    return torch.randn(count + 1, device="cuda")[1:].view(shape)


def check_pointwise(run: Library, checks: Checks) -> None:
    """Every config on sizes that fill vectors and do not, every index path; number of checks."""
    for config in range(len(POINTWISE_CONFIGS)):
        for count in (0, 1, 3, 17, 1000, 4097, 1 << 20, (1 << 20) + 3):
            for a in (torch.randn(count, device="cuda"), misaligned(count)):
                out = poisoned(count)
                run("scale_float", config, out, a, 3.14)
                checks.equal(f"scale {config} {count}", out, a * 3.14)
        special = torch.tensor([float("nan"), float("inf"), -0.0, 1e-42, 3e38] * 1001).cuda()
        out = poisoned(special.numel())
        run("scale_float", config, out, special, 2.0)
        checks.equal("special values", out, special * 2.0)
        for a, b in broadcast_pairs():
            expected = a * b
            out = poisoned(*expected.shape)
            run("multiply_float", config, out, a, b)
            checks.equal(f"multiply {config} {a.shape} {b.shape}", out, expected)
    check_other_types(run, checks)


def broadcast_pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Operands that broadcast, are transposed, sliced, expanded, scalar, misaligned."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda")

    return [
        (normal(512, 1), normal(512, 1024)),
        (normal(512, 1024), normal(1024)),
        (normal(17, 1), normal(17, 4097)),
        (normal(300, 1), misaligned(300, 1000)),
        (normal(256, 384), normal(384, 256).t()),
        (normal(384, 256).t(), normal(384, 256).t()),
        (normal(100, 200)[:, ::2], normal(100, 100)),
        (normal(128, 260)[:, :256], normal(128, 256)),
        (normal(4, 1, 8, 16), normal(5, 8, 1)),
        (normal(2, 3, 4, 5, 6).permute(4, 2, 0, 3, 1), normal(6, 4, 2, 5, 3)),
        (normal(1), normal(1001)),
        (normal(()), normal(64, 64)),
        (normal(()), normal(())),
        (normal(0, 5), normal(5)),
        (normal(3, 1).expand(3, 40), normal(1, 40)),
        (normal(2, 1, 2, 1, 2, 1, 2, 1), normal(1, 3, 1, 3, 1, 3, 1, 4)),
    ]


def check_other_types(run: Library, checks: Checks) -> None:
    """Types of 1, 2 and 8 bytes, and operands of several types at once."""
    types = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool)
    for index, dtype in enumerate(types):
        for shape in ((1000,), (4097,), (64, 384), (33, 77)):
            a = (torch.randn(*shape, device="cuda") * 5).to(dtype)
            b = (torch.randn(shape[-1], device="cuda") * 5).to(dtype)
            out = poisoned(*shape, dtype=dtype)
            run("multiply_other", index, out, a, b)
            checks.equal(f"multiply {dtype} {shape}", out, a * b)
    a = torch.randn(33, 64, device="cuda").half()
    b = torch.randn(33, 1, device="cuda")
    c = torch.arange(64, device="cuda", dtype=torch.int32)
    out = poisoned(33, 64)
    run("multiply_add_mixed", out, a, b, c)
    checks.close("several types", out, a.float() * b + c, 1e-6)


def check_large(run: Library, checks: Checks) -> None:
    """More than 2^31 elements on each index path: 8-bit elements keep it small."""
    rows, columns = 70_000, 32_768
    a = torch.rand(rows, columns, device="cuda") > 0.5
    row = torch.rand(rows, 1, device="cuda") > 0.5
    for b in (a, row, a.as_strided((rows, columns), (columns, 1), 0)[:, :-1]):
        left = a[:, : b.shape[1]] if b.shape[1] > 1 else a
        out = torch.zeros(left.shape, dtype=torch.bool, device="cuda")
        run("multiply_other", 4, out, left, b)
        checks.expect(f"large {tuple(b.shape)}", int((out != (left & b)).sum()))


F = torch.nn.functional
MATH: tuple[tuple[str, Callable[..., torch.Tensor]], ...] = (
    ("relu", lambda x, y: F.relu(x)),
    ("sigmoid", lambda x, y: torch.sigmoid(x)),
    ("silu", lambda x, y: F.silu(x)),
    ("gelu", lambda x, y: F.gelu(x)),
    ("gelu_tanh", lambda x, y: F.gelu(x, approximate="tanh")),
    ("softplus", lambda x, y: F.softplus(x, 1.5, 20.0)),
    ("mish", lambda x, y: F.mish(x)),
    ("hardswish", lambda x, y: F.hardswish(x)),
    ("hardsigmoid", lambda x, y: F.hardsigmoid(x)),
    ("hardtanh", lambda x, y: F.hardtanh(x, -0.5, 2.0)),
    ("leaky_relu", lambda x, y: F.leaky_relu(x)),
    ("elu", lambda x, y: F.elu(x, 1.5)),
    ("softsign", lambda x, y: F.softsign(x)),
    ("log_sigmoid", lambda x, y: F.logsigmoid(x)),
    ("clamp", lambda x, y: x.clamp(-1, 1)),
    ("sign", lambda x, y: torch.sign(x)),
    ("floor_divide", lambda x, y: torch.floor_divide(x, y)),
    ("floor_remainder", lambda x, y: torch.remainder(x, y)),
    ("maximum", lambda x, y: torch.maximum(x, y)),
    ("minimum", lambda x, y: torch.minimum(x, y)),
    ("power", lambda x, y: torch.pow(x, y)),
)
INTEGER: tuple[Callable[..., torch.Tensor], ...] = (
    lambda x, y: torch.div(x, y, rounding_mode="floor"),
    torch.remainder,
    torch.pow,
    lambda x, y: x.abs(),
    lambda x, y: x.clamp(-3, 3),
)


def check_math(run: Library, checks: Checks) -> None:
    """Every function against PyTorch, with NaN, infinities, zeros of both signs and subnormals.

    PyTorch multiplies by a float 1/6 in hardswish and hardsigmoid, also for double.
    """
    edge = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-42, 90.0, -90.0, 20.0, 1.0]
    for name, dtype, rtol in (("math_float", torch.float32, 2e-6), ("math_double", None, 1e-14)):
        values = torch.cat([torch.tensor(edge), torch.randn(4000) * 4, torch.linspace(-8, 8, 161)])
        x = values.to("cuda", dtype or torch.float64)
        y = torch.where(torch.arange(x.numel()) % 3 == 0, 0.75, -1.5).to(x)
        y[-500:] = 2.0
        for which, (label, reference) in enumerate(MATH):
            out = poisoned(x.numel(), dtype=x.dtype)
            run(name, which, out, x, y)
            bound = 1e-7 if dtype is None and label in ("hardswish", "hardsigmoid") else rtol
            checks.close(f"{name} {label}", out, reference(x, y), bound)
    x = torch.arange(-40, 41, device="cuda").repeat(4)
    y = torch.tensor([3, -3, 7, 2, 5], device="cuda").repeat(65)[: x.numel()]
    for which, reference_integer in enumerate(INTEGER):
        out = poisoned(x.numel(), dtype=torch.int64)
        run("math_integer", which, out, x, y)
        checks.equal(f"integer {which}", out, reference_integer(x, y).cuda())


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Frobenius norm of the error over that of the exact result; NaN counts as infinite."""
    norm = exact.norm().item() or 1.0
    error = (actual.double() - exact).norm().item() / norm
    return error if error == error else float("inf")


def factors(layout: int, m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform [0, 1) factors lying as NN, NT, TN, TT, or with no unit stride."""
    if layout == GENERAL:
        lhs = torch.rand(m, 2 * k + 1, device="cuda")[:, 1::2][:, :k]
        return lhs, torch.rand(k, 3 * n, device="cuda")[:, ::3]
    lhs = torch.rand(k, m, device="cuda").t() if layout & 2 else torch.rand(m, k, device="cuda")
    rhs = torch.rand(n, k, device="cuda").t() if layout & 1 else torch.rand(k, n, device="cuda")
    return lhs, rhs


def admitted(layout: int, m: int, n: int) -> bool:
    """Whether vectors along M (N) divide it, where the layout relies on them."""
    return (layout not in (2, 3) or m % 4 == 0) and (layout not in (0, 2) or n % 4 == 0)


def check_gemm(run: Library, checks: Checks) -> None:
    """Every config and layout on small, odd and degenerate sizes."""
    sizes = [(1, 1, 1), (3, 17, 5), (17, 1000, 33), (128, 128, 0), (132, 260, 72), (300, 4, 1000)]
    sizes += [(1, 4096, 700), (4097, 1, 130), (1000, 516, 1500), (0, 4, 8)]
    for layout in range(5):
        names = GENERAL_CONFIGS if layout == GENERAL else GEMM_CONFIGS
        for config, name in enumerate(names):
            for m, n, k in sizes:
                if not admitted(layout, m, n):
                    continue
                lhs, rhs = factors(layout, m, n, k)
                out = poisoned(m, n)
                run("gemm_float", layout, config, out, lhs, rhs)
                what = f"gemm {name} layout {layout} {m}x{n}x{k}"
                checks.accurate(what, out, lhs.double() @ rhs.double(), 1e-6)
    check_batched(run, checks)
    check_gemm_types(run, checks)


def check_batched(run: Library, checks: Checks) -> None:
    """Batch dimensions: plain, permuted, shared by one operand, empty; strided result."""
    pairs = [
        (torch.randn(3, 70, 40), torch.randn(3, 40, 36)),
        (torch.randn(5, 2, 33, 40), torch.randn(1, 2, 40, 20)),
        (torch.randn(7, 33, 40), torch.randn(40, 20)),
        (torch.randn(40, 4, 3, 9).permute(2, 1, 3, 0), torch.randn(3, 4, 40, 8)),
        (torch.randn(2, 1, 3, 1, 5, 6), torch.randn(1, 4, 1, 2, 6, 7)),
        (torch.randn(0, 5, 6), torch.randn(0, 6, 7)),
    ]
    for lhs, rhs in pairs:
        exact = lhs.double() @ rhs.double()
        out = poisoned(*exact.shape)
        run("gemm_float", GENERAL, 0, out, lhs.cuda(), rhs.cuda())
        what = f"batched {tuple(lhs.shape)} {tuple(rhs.shape)}"
        checks.accurate(what, out, exact.cuda(), 1e-6)
    lhs, rhs = torch.randn(65, 40).cuda(), torch.randn(40, 66).cuda()
    out = poisoned(66, 65).t()
    run("gemm_float", GENERAL, 0, out, lhs, rhs)
    checks.accurate("transposed result", out, lhs.double() @ rhs.double(), 1e-6)
    x, weight, bias = torch.randn(7, 9, 130).cuda(), torch.randn(71, 130).cuda(), torch.randn(71)
    for config in range(2):
        out = poisoned(7, 9, 71)
        run("linear_relu_div", config, out, x, weight, bias.cuda(), 2.0)
        exact = F.relu(F.linear(x.double(), weight.double(), bias.double().cuda())) / 2.0
        checks.accurate("linear_relu_div", out, exact, 1e-6)


def check_gemm_types(run: Library, checks: Checks) -> None:
    """double, half and bfloat16 in the general and two contiguous layouts."""
    types = (("double", torch.float64, 1e-15), ("half", torch.float16, 4e-4))
    for name, dtype, bound in (*types, ("bfloat16", torch.bfloat16, 3e-3)):
        for index, layout in enumerate((GENERAL, 0, 3)):
            for m, n, k in ((65, 33, 100), (128, 256, 600), (72, 80, 1)):
                if layout != GENERAL and (m % 8 or n % 8):
                    continue
                lhs, rhs = (factor.to(dtype) for factor in factors(layout, m, n, k))
                out = poisoned(m, n, dtype=dtype)
                run(f"gemm_{name}", index, out, lhs, rhs)
                what = f"gemm {name} layout {layout} {m}x{n}x{k}"
                checks.accurate(what, out, lhs.double() @ rhs.double(), bound)


# --- Times ---------------------------------------------------------------------------------------


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
    times = {
        "torch": timer(lambda: F.relu(F.linear(x, weight, bias)) / 2.0, 8),
        "ours": timer(lambda: run("linear_relu_div", 0, out, x, weight, bias, 2.0), 8),
    }
    report("linear_relu_div (us, TFLOP/s)", times, lambda s: flops / s / 1e12)
    return {"linear_relu_div_s": times}


def write(*parts: object, sep: str = " ") -> None:
    """To standard output, at once."""
    print(*parts, sep=sep, flush=True)  # noqa: T201


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
        "command": "python " + " ".join(sys.argv),
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
