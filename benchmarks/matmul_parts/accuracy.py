"""How wrong a product is, as a share of what rounding could do to it, beside the library's error.

The error of an element is measured against the same module in float64 and divided by |A| |B|, the
module in float64 on absolute values: (|x| |W| + |bias|) / 2 for relu(linear(x)) / 2. The rule:

    max, rms <= the library's + 2^-24        |mean| <= max(the library's, 3 * 2^-24)

and every NaN, Inf and -Inf is where float64 arithmetic has it.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

UNIT = 2.0**-24
_RUNS = 10
"""Runs that have to agree in every bit."""
_CHUNK = 1 << 26
"""Elements looked at together: 0.5 GB in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of one result, over the elements that are finite in float32, as shares of |A| |B|."""

    max: float
    rms: float
    mean: float
    """Signed: what rounding always in one direction shows."""
    misplaced: int
    """Elements that are NaN, Inf or -Inf, or finite, and should be another of the four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours beside the library's on one set of values."""

    ours: Errors
    library: Errors
    nonfinite: int
    """Elements that have to be NaN, Inf or -Inf."""
    runs_agree: bool
    """Whether ten runs gave the same bits."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The clauses of the rule that ours breaks, in a word each."""
        clauses = {
            "max": self.ours.max <= self.library.max + UNIT,
            "rms": self.ours.rms <= self.library.rms + UNIT,
            "mean": abs(self.ours.mean) <= max(abs(self.library.mean), 3 * UNIT),
            "placement": self.ours.misplaced == 0,
            "determinism": self.runs_agree,
        }
        return tuple(name for name, kept in clauses.items() if not kept)

    def to_json(self) -> dict[str, object]:
        """The numbers and the verdict."""
        return asdict(self) | {"broken": list(self.broken)}


@torch.no_grad()
def compare(reference: nn.Module, ours: nn.Module, inputs: list[Tensor]) -> Comparison:
    """Run both modules on CUDA tensors, and the reference in float64 twice."""
    result = ours(*inputs)
    agree = all(_same_bits(result, ours(*inputs)) for _ in range(_RUNS - 1))
    exact = _double(reference)(*(tensor.double() for tensor in inputs))
    bound = _absolute(reference)(*(tensor.double().abs() for tensor in inputs))
    largest = torch.finfo(result.dtype).max
    return Comparison(
        ours=_errors(result, exact, bound),
        library=_errors(reference(*inputs), exact, bound),
        nonfinite=sum(int((~(part.abs() <= largest)).sum().item()) for (part,) in _chunks(exact)),
        runs_agree=agree,
    )


def _double(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).double()


def _absolute(module: nn.Module) -> nn.Module:
    wide = _double(module)
    for parameter in wide.parameters():
        parameter.abs_()
    return wide


def _errors(result: Tensor, exact: Tensor, bound: Tensor) -> Errors:
    largest, squares, total, count, misplaced = 0.0, 0.0, 0.0, 0, 0
    for part, wanted, scale in _chunks(result, exact, bound):
        # Rounded to the result's type first: what overflows it has to be Inf.
        finite = wanted.to(part.dtype).isfinite()
        misplaced += int((_class_of(part) != _class_of(wanted.to(part.dtype))).sum().item())
        error = part.double() - wanted
        share = torch.where(error == 0, error, error / scale)[finite]
        share = share.nan_to_num(nan=math.inf)
        if share.numel():
            largest = max(largest, share.abs().max().item())
            squares += share.square().sum().item()
            total += share.sum().item()
            count += share.numel()
    count = max(count, 1)
    return Errors(
        max=largest, rms=math.sqrt(squares / count), mean=total / count, misplaced=misplaced
    )


def _class_of(values: Tensor) -> Tensor:
    """0 for finite, 1 for Inf, 2 for -Inf, 3 for NaN."""
    return values.isposinf() + 2 * values.isneginf() + 3 * values.isnan().to(torch.int8)


def _same_bits(left: Tensor, right: Tensor) -> bool:
    words = {2: torch.int16, 4: torch.int32}[left.element_size()]
    return torch.equal(left.view(words), right.view(words))


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    yield from zip(*(tensor.reshape(-1).split(_CHUNK) for tensor in tensors), strict=True)
