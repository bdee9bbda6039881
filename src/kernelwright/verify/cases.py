"""Input cases: which values, weights, layouts and sizes a candidate is run on.

A `Case` is a few words. Every child process makes the same tensors from them, so no inputs have
to travel: the problem's own `get_inputs` under the case's seed, then, for the other distributions,
the floating-point values replaced in place. `str(case)` is what a user pastes to run it again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

import torch
from torch import Tensor

from kernelwright.verify.distributions import REFILL, Distribution
from kernelwright.verify.nesting import map_tensors

Sizes = tuple[tuple[str, int], ...]
"""Module-level constants of a problem and their values, sorted by name."""


class Weights(Enum):
    """Where parameters and buffers come from."""

    MADE = "made"
    """The constructor, under the seed that KernelBench uses."""
    OTHER = "other"
    """The constructor under another seed, which follows the case's."""
    DRAWN = "drawn"
    """Random numbers also where layers put ones and zeros: gains, biases, statistics."""
    LOADED = "loaded"
    """Loaded by `load_state_dict` after a first call, all of them other than before."""


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
    weights: Weights = Weights.MADE
    sizes: Sizes = ()
    """Module-level constants of the problem with another value, by name."""

    def __str__(self) -> str:
        words = [
            f"seed={self.seed}",
            f"distribution={self.distribution.value}",
            f"layout={self.layout.value}",
            f"weights={self.weights.value}",
        ]
        return " ".join(words + [f"size:{name}={value}" for name, value in self.sizes])

    @classmethod
    def parse(cls, text: str) -> "Case":
        """The case that `str` wrote, what is left out at its default; ValueError if malformed."""
        case_, sizes = cls(), []
        for word in text.split():
            match word.partition("="):
                case ("seed", "=", value):
                    case_ = replace(case_, seed=int(value))
                case ("distribution", "=", value):
                    case_ = replace(case_, distribution=Distribution(value))
                case ("layout", "=", value):
                    case_ = replace(case_, layout=Layout(value))
                case ("weights", "=", value):
                    case_ = replace(case_, weights=Weights(value))
                case (key, "=", value) if key.startswith("size:"):
                    sizes.append((key.removeprefix("size:"), int(value)))
                case _:
                    raise ValueError(f"{word!r} is not a part of a case")
        return replace(case_, sizes=tuple(sizes))


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
    distributions: Demand = Demand.REQUIRED
    """Right values on the other distributions: scaled, heavy-tailed, integers, cancelling."""
    weights: Demand = Demand.REQUIRED
    """Right values with other weights than those of KernelBench's seed."""
    nan: Demand = Demand.REQUIRED
    """NaN in the inputs comes out where the reference has it."""
    infinite: Demand = Demand.REPORTED
    """Inf comes out so, too. Sums in another order or by parts, and softmax in one go, meet
    Inf - Inf where the reference does not: PyTorch's fused attention differs from its formula."""
    other_sizes: Demand = Demand.REQUIRED
    """Right values at other sizes that divide as the problem's own do, by powers of two up to 32.
    Refusing them with an exception is not a failure."""
    ragged_sizes: Demand = Demand.REPORTED
    """Right values at all other sizes: a file may rely on what the problem promises."""
    layouts: Demand = Demand.REPORTED
    """Right values on strided and misaligned inputs."""
    drop_in: Demand = Demand.REPORTED
    """It has the reference's parameters and buffers in order, with its values under one seed, and
    right values after `load_state_dict`."""

    def asking(self, words: Iterable[str]) -> "Demands":
        """These with others in their place; ValueError if malformed.

        Each as `nan=reported`; a name alone is required, and `drop-in` is `drop_in`.
        """
        pairs = [word.partition("=") for word in words]
        others = {
            name.replace("-", "_"): value if equals else Demand.REQUIRED.value
            for name, equals, value in pairs
        }
        names = [it.name for it in fields(self)]
        for name in others:
            if name not in names:
                raise ValueError(f"no demand is named {name!r}; there are {', '.join(names)}")
        return replace(self, **{name: Demand(value) for name, value in others.items()})

    def less_than(self, usual: "Demands") -> tuple[str, ...]:
        """Where less is asked than `usual` does, each as `asking` takes it."""
        order = list(Demand)
        pairs = [(it.name, getattr(self, it.name), getattr(usual, it.name)) for it in fields(self)]
        return tuple(
            f"{name}={mine.value}"
            for name, mine, theirs in pairs
            if order.index(mine) > order.index(theirs)
        )


STRICT = Demands(
    layouts=Demand.REQUIRED,
    infinite=Demand.REQUIRED,
    ragged_sizes=Demand.REQUIRED,
    drop_in=Demand.REQUIRED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase:
    """A case and what its failure means."""

    case: Case
    demand: Demand
    purpose: str
    """What the case shows, for the progress line and the report."""
    refusal: Demand = Demand.REQUIRED
    """What it means that the candidate raises an exception; SKIPPED where it may refuse."""
    instead: Case | None = None
    """What to run where the candidate refuses: the same at the sizes under judgement."""


def plan_cases(
    *,
    seeds: int,
    demands: Demands,
    own_sizes: Sizes,
    other_sizes: Sequence[Sizes],
    ragged: Collection[Sizes] = (),
) -> tuple[PlannedCase, ...]:
    """The cases of one verdict, those that find most first.

    `own_sizes` are the constants to replace for the sizes under judgement (none on a GPU, the
    shrunk ones on the emulator); each of `other_sizes` is one more variant of the problem, and
    those in `ragged` do not divide as its own do.
    """
    own = Case(sizes=own_sizes)
    rows = [
        *_seeded(own, range(seeds), demands),
        *_varied(own, seeds, demands),
        *(
            (demands.ragged_sizes, "sizes that divide otherwise", Case(sizes=sizes))
            if sizes in ragged
            else (demands.other_sizes, "other sizes", Case(sizes=sizes))
            for sizes in other_sizes
        ),
        # Last, so that a file which fails only here is known to be right everywhere else.
        (demands.nan, "NaN", replace(own, distribution=Distribution.NAN)),
        (demands.infinite, "Inf", replace(own, distribution=Distribution.INFINITE)),
    ]
    return _planned(rows, own_sizes)


def _planned(rows: "Iterable[Row]", own_sizes: Sizes) -> tuple[PlannedCase, ...]:
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


_FURTHER_SEEDS = 2


def plan_constructions(
    *, seeds: int, demands: Demands, own_sizes: Sizes
) -> tuple[PlannedCase, ...]:
    """What else is asked of a file that is no drop-in: to be made under further seeds.

    No weights can be loaded into it for sure, so those of its constructor have to do.
    """
    own = Case(sizes=own_sizes, weights=Weights.OTHER)
    further = (replace(own, seed=seeds + 3 + number) for number in range(_FURTHER_SEEDS))
    rows = ((demands.weights, "weights of further seeds", case) for case in further)
    return _planned(rows, own_sizes)


LARGE_SEEDS = 2
"""Seeds of the problem's own inputs at full size, where one call touches gigabytes."""


def plan_large(
    *,
    seeds: int,
    demands: Demands,
    other_sizes: Sequence[Sizes],
    ragged: Collection[Sizes] = (),
) -> tuple[PlannedCase, ...]:
    """The cases for a problem so large that its full size is run on a few inputs only.

    Everything else is asked at the first of `other_sizes`. A candidate that refuses those is asked
    at full size, but for further seeds of what has been run at full size already.
    """
    full = _seeded(Case(), range(min(seeds, LARGE_SEEDS)), demands)[: LARGE_SEEDS + 1]
    planned = [
        PlannedCase(case=case, demand=demand, purpose=f"{purpose}, full size")
        for demand, purpose, case in full
        if demand is not Demand.SKIPPED
    ]
    reduced = plan_cases(
        seeds=seeds,
        demands=demands,
        own_sizes=other_sizes[0],
        other_sizes=other_sizes[1:],
        ragged=ragged,
    )
    for plan in reduced:
        asked = plan.case.sizes == other_sizes[0] and not _is_seeded(plan.case)
        at_full_size = replace(plan.case, sizes=()) if asked else None
        planned.append(replace(plan, refusal=Demand.SKIPPED, instead=at_full_size))
    return tuple(planned)


def _is_seeded(case: Case) -> bool:
    """Whether it is one of `_seeded`."""
    plain = Case(seed=case.seed, sizes=case.sizes)
    return case in (plain, replace(plain, distribution=Distribution.NORMAL))


Row = tuple[Demand, str, Case]


def _seeded(own: Case, seeds: range, demands: Demands) -> list[Row]:
    """The problem's own inputs, and zero-mean ones, under several seeds."""
    rows: list[Row] = [(Demand.REQUIRED, "own inputs", replace(own, seed=seed)) for seed in seeds]
    for seed in seeds:
        normal = replace(own, seed=seed, distribution=Distribution.NORMAL)
        rows.append((demands.normal, "zero-mean inputs", normal))
    return rows


_FURTHER = (
    Distribution.SMALL,
    Distribution.LARGE,
    Distribution.HEAVY,
    Distribution.INTEGERS,
    Distribution.CANCELLING,
)


def _varied(own: Case, seeds: int, demands: Demands) -> list[Row]:
    """Other distributions, weights and layouts, one of each."""
    rows: list[Row] = [
        (demands.distributions, f"{kind.value} inputs", replace(own, distribution=kind))
        for kind in _FURTHER
    ]
    # Seeds that no other case has: what was remembered of earlier inputs is of no use here.
    other = replace(own, seed=seeds, weights=Weights.OTHER)
    drawn = replace(own, seed=seeds + 1, weights=Weights.DRAWN, distribution=Distribution.NORMAL)
    loaded = replace(own, seed=seeds + 2, weights=Weights.LOADED)
    rows += [
        (demands.weights, "weights of another seed", other),
        (demands.drop_in, "weights loaded later", loaded),
        (demands.weights, "gains, biases and statistics drawn", drawn),
    ]
    for layout in (Layout.STRIDED, Layout.MISALIGNED):
        rows.append((demands.layouts, f"{layout.value} inputs", replace(own, layout=layout)))
    return rows


@torch.no_grad()
def arrange(arguments: Sequence[object], case: Case) -> list[object]:
    """The arguments of `forward` that `case` asks for, from those that `get_inputs` made.

    Values are replaced in place, so dtypes, shapes and strides stay; another layout is a copy.
    """
    refill = REFILL[case.distribution]
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


_REARRANGE: dict[Layout, Callable[[Tensor], Tensor]] = {
    Layout.AS_MADE: _as_made,
    Layout.STRIDED: _strided,
    Layout.MISALIGNED: _misaligned,
}
