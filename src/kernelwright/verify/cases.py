"""Input cases: which values, layouts and sizes a candidate is run on, and how they are made.

A `Case` is a few words. Every child process makes the same tensors from them, so no inputs have
to travel: the problem's own `get_inputs` under the case's seed, then, for the other distributions,
the floating-point values replaced in place. `str(case)` is what a user pastes to run it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from kernelwright.verify.nesting import map_tensors

Sizes = tuple[tuple[str, int], ...]
"""Module-level constants of a problem and their values, sorted by name."""


class Distribution(Enum):
    """Where the floating-point values of the inputs come from; integers stay as made."""

    OWN = "own"
    """What `get_inputs` makes."""
    NORMAL = "normal"
    """Zero mean, unit variance: sums cancel, so lost low bits show."""
    NONFINITE = "nonfinite"
    """What `get_inputs` makes, with one NaN, one +Inf and one -Inf in every tensor."""


class Layout(Enum):
    """How the input tensors lie in memory; the values do not depend on it."""

    AS_MADE = "as-made"
    STRIDED = "strided"
    """Every other element of a buffer twice as long: no tensor is contiguous."""
    MISALIGNED = "misaligned"
    """Contiguous, one element past the start of the allocation: no vector load is aligned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One set of inputs, made the same way in every process."""

    seed: int = 0
    """Seeds torch before `get_inputs` and again before each call of the module."""
    distribution: Distribution = Distribution.OWN
    layout: Layout = Layout.AS_MADE
    sizes: Sizes = ()
    """Module-level constants of the problem with another value, by name."""

    def __str__(self) -> str:
        words = [
            f"seed={self.seed}",
            f"distribution={self.distribution.value}",
            f"layout={self.layout.value}",
        ]
        return " ".join(words + [f"size:{name}={value}" for name, value in self.sizes])

    @classmethod
    def parse(cls, text: str) -> "Case":
        """The case that `str` wrote, what is left out at its default; ValueError if malformed."""
        seed, distribution, layout, sizes = 0, Distribution.OWN, Layout.AS_MADE, []
        for word in text.split():
            match word.partition("="):
                case ("seed", "=", value):
                    seed = int(value)
                case ("distribution", "=", value):
                    distribution = Distribution(value)
                case ("layout", "=", value):
                    layout = Layout(value)
                case (key, "=", value) if key.startswith("size:"):
                    sizes.append((key.removeprefix("size:"), int(value)))
                case _:
                    raise ValueError(f"{word!r} is not a part of a case")
        return cls(seed=seed, distribution=distribution, layout=layout, sizes=tuple(sizes))


class Demand(Enum):
    """What becomes of the verdict when a kind of check fails."""

    REQUIRED = "required"
    """A failure is the verdict."""
    REPORTED = "reported"
    """A failure is a warning."""
    SKIPPED = "skipped"
    """Not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What is asked of a candidate beyond right values on the problem's own inputs.

    The defaults are what any file in KernelBench's format has to keep; `STRICT` is what our own
    files promise.
    """

    normal: Demand = Demand.REQUIRED
    """Right values on zero-mean inputs."""
    nonfinite: Demand = Demand.REQUIRED
    """NaN and Inf in the inputs come out where the reference has them."""
    other_sizes: Demand = Demand.REQUIRED
    """Right values at other sizes. Refusing them with an exception is not a failure."""
    layouts: Demand = Demand.REPORTED
    """Right values on strided and misaligned inputs."""
    state: Demand = Demand.REQUIRED
    """The same parameters and buffers, in the same order, with the same values under one seed."""


STRICT = Demands(layouts=Demand.REQUIRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """A case and what its failure means."""

    case: Case
    demand: Demand
    purpose: str
    """What the case shows, for the progress line and the report."""
    refusal: Demand = Demand.REQUIRED
    """What it means that the candidate raises an exception; SKIPPED where it may refuse."""


def plan_cases(
    *,
    seeds: int,
    demands: Demands,
    own_sizes: Sizes,
    other_sizes: Sequence[Sizes],
) -> tuple[PlannedCase, ...]:
    """The cases of one verdict, those that find most first.

    `own_sizes` are the constants to replace for the sizes under judgement (none on a GPU, the
    shrunk ones on the emulator); each of `other_sizes` is one more variant of the problem.
    """
    rows: list[tuple[Demand, str, Case]] = []
    for seed in range(seeds):
        rows.append((Demand.REQUIRED, "own inputs", Case(seed=seed, sizes=own_sizes)))
    for seed in range(seeds):
        normal = Case(seed=seed, distribution=Distribution.NORMAL, sizes=own_sizes)
        rows.append((demands.normal, "zero-mean inputs", normal))
    special = Case(distribution=Distribution.NONFINITE, sizes=own_sizes)
    rows.append((demands.nonfinite, "NaN and Inf", special))
    for layout in (Layout.STRIDED, Layout.MISALIGNED):
        case = Case(layout=layout, sizes=own_sizes)
        rows.append((demands.layouts, f"{layout.value} inputs", case))
    for sizes in other_sizes:
        rows.append((demands.other_sizes, "other sizes", Case(sizes=sizes)))
    return tuple(
        PlannedCase(
            case=case,
            demand=demand,
            purpose=purpose,
            refusal=Demand.REQUIRED if case.sizes == own_sizes else Demand.SKIPPED,
        )
        for demand, purpose, case in rows
        if demand is not Demand.SKIPPED
    )


@torch.no_grad()
def arrange(arguments: Sequence[object], case: Case) -> list[object]:
    """The arguments of `forward` that `case` asks for, from those that `get_inputs` made.

    Values are replaced in place, so dtypes, shapes and strides stay; another layout is a copy.
    """
    refill = _REFILL[case.distribution]
    rearrange = _REARRANGE[case.layout]
    arranged = []
    for place, argument in enumerate(arguments):
        generator_seed = case.seed * 1000 + place

        def change(tensor: Tensor, seed: int = generator_seed) -> Tensor:
            if tensor.is_floating_point() and tensor.element_size() > 1 and tensor.numel() > 0:
                refill(tensor, seed)
            return rearrange(tensor)

        arranged.append(map_tensors(argument, change))
    return arranged


def _keep(tensor: Tensor, seed: int) -> None:
    del tensor, seed


def _fill_normal(tensor: Tensor, seed: int) -> None:
    # Drawn on the CPU wherever the tensor lies, so that every process draws the same.
    generator = torch.Generator()
    generator.manual_seed(seed)
    target = _unexpanded(tensor)
    target.copy_(torch.empty(target.shape, dtype=target.dtype).normal_(generator=generator))


def _fill_nonfinite(tensor: Tensor, seed: int) -> None:
    generator = torch.Generator()
    generator.manual_seed(seed)
    target = _unexpanded(tensor)
    for value in (float("nan"), float("inf"), float("-inf")):
        place = tuple(
            int(torch.randint(size, (), generator=generator).item()) for size in target.shape
        )
        target[place] = value


def _unexpanded(tensor: Tensor) -> Tensor:
    """A view with one element of each that `expand` repeats: writing through it is allowed."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _as_made(tensor: Tensor) -> Tensor:
    return tensor


def _strided(tensor: Tensor) -> Tensor:
    if tensor.dim() == 0:
        return tensor
    *outer, last = tensor.shape
    buffer = torch.zeros((*outer, last * 2), dtype=tensor.dtype, device=tensor.device)
    view = buffer[..., ::2]
    return view.copy_(tensor)


def _misaligned(tensor: Tensor) -> Tensor:
    buffer = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return buffer[1:].view(tensor.shape).copy_(tensor)


_REFILL: dict[Distribution, Callable[[Tensor, int], None]] = {
    Distribution.OWN: _keep,
    Distribution.NORMAL: _fill_normal,
    Distribution.NONFINITE: _fill_nonfinite,
}
_REARRANGE: dict[Layout, Callable[[Tensor], Tensor]] = {
    Layout.AS_MADE: _as_made,
    Layout.STRIDED: _strided,
    Layout.MISALIGNED: _misaligned,
}
