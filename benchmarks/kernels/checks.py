"""Every config of kernels.cu against PyTorch and float64, on fitting and odd sizes."""

from collections.abc import Callable

import torch
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
    for config in range(len(LINEAR_CONFIGS)):
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
