"""Smaller sizes of a problem, found by trying: for the emulator, and for verification.

A constant is changed only where the model still constructs and runs; where two values serve, the
odd one is taken, so that the last, partly filled tile of every kernel gets exercised.
"""

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._pytree import tree_leaves

from kernelwright.problem.cost import Cost, measure
from kernelwright.problem.errors import ProblemError
from kernelwright.problem.execution import execute, instantiate, user_code
from kernelwright.problem.record import Problem
from kernelwright.problem.resizing import resize


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The largest cost of one call that is still small enough."""

    bytes: int = 4 << 20
    """Inputs, parameters, buffers and outputs together."""
    flops: int = 1 << 24
    """As `Cost.flops` counts."""

    def excess(self, cost: Cost) -> float:
        """How many times the budget a cost is; at most 1 fits."""
        return max(cost.bytes / self.bytes, cost.flops / self.flops)


# Below this a call is also run with real numbers: it takes milliseconds, and finds what shapes do
# not show (an index out of range, the variance of a single value).
_RUNNABLE = Budget(bytes=64 << 20, flops=1 << 29)

# Large constants first: a kernel size or a number of heads is part of what the problem is, so the
# floor is lowered only when the large ones alone do not bring the cost down.
_FLOORS = (16, 4, 1)

_PRIMES = (17, 13, 19, 11, 23, 7, 29, 5, 31, 3)

_WORTHWHILE = 0.97
"""A step must bring the cost below this share of what it was: where parameters of fixed size make
up most of it, the data is left at a sensible size."""

Validity = Callable[[Problem], Cost | None]
"""The cost of a problem that will do, None for one that will not."""

_LARGE = 8
"""A constant above this is a size of data rather than the shape of an operator."""


def shrink(problem: Problem, budget: Budget) -> Problem:
    """The problem with smaller constants, so that one call fits the budget.

    Returns the problem itself if it fits, and the cheapest that was found if none does. Raises
    what `measure` raises when the problem does not run as it is.
    """
    return _shrink(problem, budget, _cost_if_valid)


def shrink_data(problem: Problem, budget: Budget) -> Problem:
    """As `shrink`, with nothing changed that the constructor is given.

    For files that are specialised to its arguments. What parameters take stays, so the result may
    be far above the budget.
    """
    given = _constructor_arguments(problem)

    def cost_if_same(variant: Problem) -> Cost | None:
        cost = _cost_if_valid(variant)
        return cost if cost is not None and _constructor_arguments(variant) == given else None

    return _shrink(problem, budget, cost_if_same)


def size_variants(problem: Problem, budget: Budget) -> tuple[Problem, ...]:
    """The problem at several sizes that fit the budget, for verification; no two alike.

    First `shrink(problem, budget)`; then, as far as the model allows each: multiples of 16 (where
    vector loads and whole tiles apply), small unequal primes, and sizes of one.
    """
    base = shrink(problem, budget)
    sizes = [name for name in _by_size(base) if problem.constants[name] > _LARGE]
    primes = dict(zip(sizes, _PRIMES, strict=False))
    wishes: tuple[Callable[[str, int], int], ...] = (
        lambda _, value: max(16, value // 16 * 16),
        lambda name, value: primes.get(name, value),
        lambda _, value: 1,
    )
    found = {base.source: base}
    for wish in wishes:
        variant = base
        for name in sizes:
            variant = _try(variant, {name: wish(name, variant.constants[name])}, budget) or variant
        found.setdefault(variant.source, variant)
    return tuple(found.values())


def round_up(
    problem: Problem, unit: int, budget: Budget, names: Collection[str] | None = None
) -> Problem:
    """The problem with its sizes at the next multiples of `unit`, as far as the model allows each.

    Still within the budget, if it was: for kernels that read only rows of whole vectors. Of `names`
    alone, where they are given.
    """
    for name in _by_size(problem):
        size = problem.constants[name]
        if size > _LARGE and (names is None or name in names):
            problem = _try(problem, {name: -(-size // unit) * unit}, budget) or problem
    return problem


def _cost_if_valid(problem: Problem) -> Cost | None:
    """The cost of a problem that works at its sizes, else None."""
    try:
        with _quiet():
            cost = measure(problem)
        if _RUNNABLE.excess(cost) <= 1 and not _gives_numbers(problem):
            return None
    except ProblemError:
        return None
    return cost


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging a trace for every size that does not work."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _gives_numbers(problem: Problem) -> bool:
    """Run the problem with real numbers: True if no result holds a NaN."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _seed()
        instance = instantiate(problem)
        with user_code(problem, "`forward`"):
            outputs = instance.module(*instance.inputs)
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    return not any(bool(torch.isnan(tensor).any()) for tensor in tensors)


def _seed() -> None:
    """Seed the processor's generator alone, which the callers restore.

    torch.manual_seed formats a stack for each kind of card that is not in use: milliseconds for
    each of dozens of sizes.
    """
    torch.default_generator.manual_seed(0)


def _shrink(problem: Problem, budget: Budget, cost_if_valid: Validity) -> Problem:
    cost = measure(problem)
    if budget.excess(cost) <= 1:
        return problem
    for floor in _FLOORS:
        stuck: set[str] = set()
        while budget.excess(cost) > 1:
            step = _step(problem, cost, budget, floor, stuck, cost_if_valid)
            if step is None:
                break
            problem, cost = step
    return _make_unequal(problem, budget, cost_if_valid)


def _constructor_arguments(problem: Problem) -> str:
    """In words: what is made of the same numbers reads the same."""
    with torch.random.fork_rng(devices=[]):
        _seed()
        return repr(execute(problem).make_init_inputs())


def _step(
    problem: Problem,
    cost: Cost,
    budget: Budget,
    floor: int,
    stuck: set[str],
    cost_if_valid: Validity,
) -> tuple[Problem, Cost] | None:
    """The problem with its largest constant that can be lowered made lower, with the new cost.

    Names that cannot be lowered, or to no avail, are added to `stuck`; None when all are.
    """
    for name in _by_size(problem):
        if name in stuck or problem.constants[name] <= floor:
            continue
        for sizes in _lower(problem, name, floor, budget.excess(cost)):
            smaller = resize(problem, sizes)
            smaller_cost = cost_if_valid(smaller)
            if smaller_cost and budget.excess(smaller_cost) < _WORTHWHILE * budget.excess(cost):
                return smaller, smaller_cost
        stuck.add(name)
    return None


def _lower(problem: Problem, name: str, floor: int, excess: float) -> Iterator[dict[str, int]]:
    """Changes to try: a long way down first, the odd neighbour first, the name alone first.

    Then together with all constants of its value: they may have to be equal.
    """
    value = problem.constants[name]
    shift = max(1, int(math.log2(excess)) // 2)
    halves = dict.fromkeys((max(value >> shift, floor), max(value >> 1, floor)))
    targets = [odd for half in halves for odd in dict.fromkeys((half | 1, half)) if odd < value]
    yield from ({name: target} for target in targets)
    equal = [other for other, size in problem.constants.items() if size == value]
    if len(equal) > 1:
        yield from (dict.fromkeys(equal, target) for target in targets)


def _make_unequal(problem: Problem, budget: Budget, cost_if_valid: Validity) -> Problem:
    """Move apart large constants that have the same value, where the model allows it.

    A kernel that mixes up two sizes goes unnoticed as long as they are equal.
    """
    taken: set[int] = set()
    for name in _by_size(problem):
        value = problem.constants[name]
        if value in taken and value > _LARGE:
            for other in (value + 2, value - 2, value + 4, value - 4):
                if other in taken:
                    continue
                moved = _try(problem, {name: other}, budget, cost_if_valid)
                if moved is not None:
                    problem = moved
                    break
        taken.add(problem.constants[name])
    return problem


def _by_size(problem: Problem) -> list[str]:
    """Names of the constants above 1, the largest first."""
    names = [name for name, value in problem.constants.items() if value > 1]
    return sorted(names, key=lambda name: -problem.constants[name])


def _try(
    problem: Problem,
    sizes: Mapping[str, int],
    budget: Budget,
    cost_if_valid: Validity = _cost_if_valid,
) -> Problem | None:
    """The problem at these sizes, None if they do not fit the budget or do not work."""
    resized = resize(problem, sizes)
    cost = cost_if_valid(resized)
    return resized if cost is not None and budget.excess(cost) <= 1 else None
