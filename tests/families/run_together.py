"""Child of test_families.py: products of one left factor whose operands differ in kind.

Arguments: emitted file, type. Prints the largest error of each case, relative to |x| |w| + |bias|,
and what the emulator found.
"""

import importlib.util
import json
import sys

import torch

from kernelwright.emulator import Session

DTYPE = getattr(torch, sys.argv[2])
# In 16 bits rows lie in vectors.
M, K, N = (20, 70, 36) if torch.float32 == DTYPE else (20, 72, 40)
NAN, INF = float("nan"), float("inf")


def operands() -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(M, K), (K, N), (K, N), (K, N), (N,), (N,)]
    return [torch.rand(shape).to(DTYPE) for shape in shapes]


def with_element(at: int, value: float) -> list[torch.Tensor]:
    """The operands, with this value somewhere in one of them."""
    made = operands()
    made[at][3, 5] = value
    return made


def scaled(*factors: float) -> list[torch.Tensor]:
    """The right factors scaled, which together no scale would suit."""
    x, *rights, bias, other = operands()
    each = [right * factor for right, factor in zip(rights, factors, strict=True)]
    return [x, *each, bias * min(factors), other * min(factors)]


def turned() -> list[torch.Tensor]:
    """One right factor lies along another dimension than the others."""
    x, a, b, *rest = operands()
    return [x, a, b.t().contiguous().t(), *rest]


def misaligned() -> list[torch.Tensor]:
    """One right factor and one bias begin between vectors."""
    x, a, b, c, bias, other = operands()
    shifted = [torch.cat([it.new_zeros(1), it.reshape(-1)])[1:].view(it.shape) for it in (c, other)]
    return [x, a, b, shifted[0], bias, shifted[1]]


def small_row() -> list[torch.Tensor]:
    """A row of small numbers in one right factor, which the guard sees."""
    made = operands()
    made[2][7] *= 2.0**-30
    return made


CASES = {
    "turned": turned(),
    "misaligned": misaligned(),
    "scaled": scaled(2.0**-40, 1.0, 2.0**30),
    "small row": small_row(),
    "NaN left": with_element(0, NAN),
    "NaN right": with_element(2, NAN),
    "infinity right": with_element(3, INF),
}


def error_of(result: torch.Tensor, exact: torch.Tensor, size: torch.Tensor) -> float:
    """Of what is finite; infinities and NaN have to be where they belong."""
    finite = exact.isfinite()
    assert torch.equal(result[~finite].double().nan_to_num(1.5), exact[~finite].nan_to_num(1.5))
    return ((result.double() - exact).abs() / size)[finite].max().item()


def errors_of(results: tuple[torch.Tensor, ...], given: list[torch.Tensor]) -> float:
    x, a, b, c, bias, other = (it.double() for it in given)
    pairs = zip(results[:3], ((a, bias), (b, other), (c, bias)), strict=True)
    return max(
        error_of(result, x @ right + its, x.abs() @ right.abs() + its.abs())
        for result, (right, its) in pairs
    )


def main() -> None:
    spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with Session(order_seed=1, threads=1) as session, torch.no_grad():
        spec.loader.exec_module(module)
        model = module.ModelNew()
        worst = {name: errors_of(model(*given), given) for name, given in CASES.items()}
    print(json.dumps({"worst": worst, "findings": [str(f) for f in session.findings]}))


if __name__ == "__main__":
    main()
