"""The steps after a product that make something of it in halves of runs of columns."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from kernelwright.ir.expr import Accumulator, Operand, Size, walk
from kernelwright.ir.graph import Graph
from kernelwright.ir.kinds import Reshape
from kernelwright.ir.plan import Launch, Reinterpret, Step, reads
from kernelwright.ir.types import TensorType
from kernelwright.schedule.families.pointwise import POINTWISE
from kernelwright.schedule.joint_halves import (
    Made,
    Sizes,
    contiguous,
    halves_of,
    is_split_of,
    plain,
    viewed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSteps:
    """Steps, and who makes and reads what."""

    steps: Sequence[Step]
    places: Mapping[str, int]
    """The number of the step that makes a value."""
    readers: Mapping[str, Set[int]]
    """The numbers of the steps that read it."""
    shown: Set[str]
    """Values that the caller sees."""
    fixed: Set[str]
    """Values whose steps keep their place: they read what calls change in place."""

    @staticmethod
    def of(graph: Graph, steps: Sequence[Step]) -> "KnownSteps":
        """What is known of the steps of a graph."""
        places: dict[str, int] = {}
        readers: dict[str, set[int]] = {}
        for at, step in enumerate(steps):
            for name in step.results if isinstance(step, Launch) else (step.result,):
                places[name] = at
            for name in reads(step):
                readers.setdefault(name, set()).add(at)
        updated = (update.value for update in graph.updates)
        return KnownSteps(
            steps=steps,
            places=places,
            readers=readers,
            shown={*graph.results, *updated},
            fixed=graph.readers_of_mutable(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What is made of a product in halves."""

    launches: tuple[Launch, ...]
    """The one that makes it, and the copy of it; none where it is the product itself."""
    made: Made
    numbers: frozenset[int]
    """The numbers of their steps, and of the views between."""
    product: Launch | None = None

    @property
    def last(self) -> Launch:
        """The launch whose result is written."""
        if self.launches:
            return self.launches[-1]
        assert self.product is not None
        return self.product


def all_followed(products: Sequence[Launch], known: KnownSteps) -> tuple[Followed, ...] | None:
    """What is made of the products in halves of runs of columns; None where nothing is."""
    found = [_after(it, known) for it in products]
    if not any(found):
        return None
    pairs = zip(products, found, strict=True)
    made = [_as_it_is(it) if after is None else after for it, after in pairs]
    return tuple(it for it in made if it is not None) if all(made) else None


def _after(launch: Launch, known: KnownSteps) -> Followed | None:
    """The launch that alone reads a product, through views, and the copy of what it makes."""
    sizes = Sizes()
    numbers = sizes.of(launch.kernel.output.shape)
    if numbers is None or not isinstance(launch.kernel.epilogue, Accumulator):
        return None
    seen, names, steps = {launch.result: contiguous(numbers)}, [launch.result], set[int]()
    readers: set[int] = set()
    for name in names:
        if name in known.shown:
            return None
        for at in known.readers.get(name, ()):
            step = known.steps[at]
            if isinstance(step, Launch):
                readers.add(at)
                continue
            if not isinstance(step, Reinterpret):
                return None
            own = sizes.of(step.type.shape)
            view = None if own is None else viewed(seen[name], step.map, own)
            if view is None:
                return None
            seen[step.result] = view
            names.append(step.result)
            steps.add(at)
    last = _pointwise(readers, known)
    if last is None:
        return None
    read = {at: seen[name] for at, name in enumerate(last.inputs) if name in seen}
    made = halves_of(last.kernel.output.shape, seen[launch.result], read, sizes)
    is_split = made is not None and made.halves.shape != last.kernel.output.shape
    if made is None or (is_split and len(read) < len(last.inputs)):
        return None
    followed = Followed(launches=(last,), made=made, numbers=frozenset(steps | readers))
    return _with_copy(followed, known)


def _with_copy(own: Followed, known: KnownSteps) -> Followed:
    """What was found with the copy that alone reads the result, as one that is written in place."""
    copied, numbers = own.last.result, set(own.numbers)
    for _ in range(2):
        readers = known.readers.get(copied, set())
        if copied in known.shown or len(readers) != 1:
            return own
        numbers |= readers
        step = known.steps[min(readers)]
        if isinstance(step, Reinterpret) and isinstance(step.map, Reshape):
            copied = step.result
            continue
        copy = _pointwise(readers, known)
        is_copy = copy is not None and isinstance(copy.kernel.epilogue, Operand)
        if (
            copy is None
            or not is_copy
            or not is_split_of(copy.kernel.output.shape, own.made.halves)
        ):
            return own
        return replace(own, launches=(*own.launches, copy), numbers=frozenset(numbers))
    return own


def _pointwise(numbers: Set[int], known: KnownSteps) -> Launch | None:
    """The only one of these steps, if it computes element by element, of tensors."""
    if len(numbers) != 1:
        return None
    (number,) = numbers
    step = known.steps[number]
    if not isinstance(step, Launch) or step.kernel.family != POINTWISE.name:
        return None
    kernel = step.kernel
    sizes = [it for expr in kernel.expressions for it in walk(expr) if isinstance(it, Size)]
    are_tensors = all(isinstance(it, TensorType) for it in kernel.inputs)
    is_movable = known.fixed.isdisjoint((*step.inputs, *step.results))
    return step if are_tensors and is_movable and not sizes else None


def _as_it_is(launch: Launch) -> Followed | None:
    """A product whose own result is the last."""
    assert launch.kernel.epilogue is not None
    made = plain(launch.kernel.output, Sizes())
    if made is None or any(isinstance(it, Operand) for it in walk(launch.kernel.epilogue)):
        return None
    return Followed(launches=(), made=made, numbers=frozenset(), product=launch)
