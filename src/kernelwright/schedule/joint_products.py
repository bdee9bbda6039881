"""Launches of products of few rows made one: those that have the rows in common, and their norm.

A decode step multiplies a row, or one of each of a few texts, with one matrix after the other.
Memory sets the speed, and each launch costs as much as some megabytes. So products of the same rows
take one launch; a product whose result is read by another one of them alone, as the gate of SwiGLU,
is one more sum of that one; and where nobody else reads the rows, each block makes them by itself.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod

from kernelwright.ir.anchors import Extent, RowProgram
from kernelwright.ir.expr import (
    Accumulator,
    Call,
    Expr,
    Operand,
    Size,
    has_coordinates,
    transform,
    walk,
)
from kernelwright.ir.graph import Graph
from kernelwright.ir.joint import JointConfig, JointProduct, JointProducts
from kernelwright.ir.kinds import Contract, Write
from kernelwright.ir.plan import Kernel, Launch, Reinterpret, Step
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families.gemm import GEMM
from kernelwright.schedule.families.joint import FEW_ROWS, JOINT, joint_configs, rows_of
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.joint_after import Followed, KnownSteps, all_followed
from kernelwright.schedule.joint_halves import epilogues_of
from kernelwright.schedule.naming import merge_operators

_MOST_RESULTS = 4
_MOST_INPUTS = 10
"""Inputs of a kernel: what it is told of each has to fit in its parameters."""


def with_joint_products(graph: Graph, steps: Sequence[Step], machine: Machine) -> list[Step]:
    """The steps with products of the same few rows in one launch where that is faster, modelled."""
    finder = _Finder(graph, steps, machine)
    made: dict[int, list[Step]] = {}
    gone: set[int] = set()
    for joint in finder.found():
        views = [steps[at] for at in joint.views if at not in gone]
        made.setdefault(joint.first, []).extend((*views, joint.launch))
        gone |= joint.replaced.union(joint.views)
    return [
        it
        for at, step in enumerate(steps)
        for it in (*made.get(at, ()), *(() if at in gone else (step,)))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """One launch in place of several."""

    launch: Launch
    first: int
    """The number of the first step that it replaces and that multiplies."""
    replaced: frozenset[int]
    views: tuple[int, ...]
    """Steps that it reads and that come before it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A product, or two of which the second one reads the first one's result."""

    launches: tuple[Launch, ...]
    numbers: tuple[int, ...]
    """The numbers of their steps."""

    @property
    def last(self) -> Launch:
        return self.launches[-1]


@dataclass(slots=True, kw_only=True)
class _Inputs:
    """The inputs of a kernel, each once."""

    names: list[str] = field(default_factory=list)

    def index(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


class _Finder:
    def __init__(self, graph: Graph, steps: Sequence[Step], machine: Machine) -> None:
        self._graph = graph
        self._machine = machine
        self._known = KnownSteps.of(graph, steps)

    def found(self) -> Iterator[_Joint]:
        """Launches in place of several, each step in one of them."""
        by_rows: dict[str, list[int]] = {}
        for at, step in enumerate(self._known.steps):
            if isinstance(step, Launch) and _fits(step, self._known.fixed):
                by_rows.setdefault(step.inputs[0], []).append(at)
        for rows, numbers in by_rows.items():
            parts = sorted(
                _parts(numbers, self._known), key=lambda it: (len(it.launches), it.numbers)
            )
            norm = self._norm(rows, numbers)
            groups = [
                tuple(it)[:_MOST_RESULTS] for _, it in groupby(parts, lambda it: len(it.launches))
            ]
            # Rows that only some of their readers make again have a launch all the same.
            is_whole = sum(len(it.numbers) for group in groups for it in group) == len(numbers)
            made = [self._joint(it, norm if is_whole else None) for it in groups]
            if norm is not None and is_whole and all(made):
                norm_place = self._known.places[rows]
                seconds = sum(
                    JOINT.seconds(it.launch.kernel, self._machine) or 0 for it in made if it
                )
                apart = sum(self._seconds(at) for at in (*numbers, norm_place))
                if seconds < apart:
                    yield from (
                        replace(it, replaced=it.replaced | {norm_place}) for it in made if it
                    )
                    continue
            for group in groups:
                joint = self._joint(group, None)
                if joint is not None and self._is_faster(joint):
                    yield joint

    def _is_faster(self, joint: _Joint) -> bool:
        if len(joint.replaced) == 1:  # Its factor comes while the kernel before runs.
            return rows_of(joint.launch.kernel) <= FEW_ROWS
        apart = sum(self._seconds(at) for at in joint.replaced)
        return (JOINT.seconds(joint.launch.kernel, self._machine) or 0) < apart

    def _seconds(self, number: int) -> float:
        step = self._known.steps[number]
        if not isinstance(step, Launch):
            return 0
        if step.kernel.family == GEMM.name:
            return GEMM.seconds(step.kernel, self._machine) or 0
        return self._machine.launches.added_seconds

    def _norm(self, rows: str, numbers: Sequence[int]) -> Launch | None:
        """The launch that makes the rows, for these steps alone, row by row."""
        at = self._known.places.get(rows)
        step = None if at is None else self._known.steps[at]
        if not isinstance(step, Launch) or step.kernel.family != ROWS.name:
            return None
        kernel = step.kernel
        program = kernel.anchored(RowProgram)
        fits = (
            rows not in self._known.shown
            and rows not in self._known.fixed
            and self._known.fixed.isdisjoint(step.inputs)
            and self._known.readers[rows] == set(numbers)
            and not any(rows in _inputs_of(self._known.steps[at])[1:] for at in numbers)
            and len(program.results) == 1
            and program.results[0].extent is Extent.ELEMENT
            and program.dims == (len(program.shape) - 1,)
            and all(isinstance(it, TensorType) for it in kernel.inputs)
            and _is_simple(kernel.expressions)
        )
        return step if fits else None

    def _joint(self, parts: Sequence[_Part], norm: Launch | None) -> _Joint | None:
        """The launch of these products, where what it reads is there before the first of them."""
        followed = None
        if all(len(part.launches) == 1 for part in parts):
            followed = all_followed([part.last for part in parts], self._known)
        if followed is not None:
            joint = self._joint_of(parts, followed, norm)
            if joint is not None:
                return joint
        return self._joint_of(parts, (None,) * len(parts), norm)

    def _joint_of(
        self, parts: Sequence[_Part], followed: Sequence[Followed | None], norm: Launch | None
    ) -> _Joint | None:
        first = min(at for part in parts for at in part.numbers)
        inputs = _Inputs()
        inputs.names += (parts[0].last.inputs[0],) if norm is None else norm.inputs
        row_inputs = len(inputs.names)
        products = []
        for part, after in zip(parts, followed, strict=True):
            product = _product(part, inputs) if after is None else _halved(part, after, inputs)
            if product is None:
                return None
            products.append(product)
        if len(inputs.names) > _MOST_INPUTS:
            return None
        views = _views_before(inputs.names, first, self._known)
        if views is None:
            return None
        lasts = [
            part.last if after is None else after.last
            for part, after in zip(parts, followed, strict=True)
        ]
        launches = [
            *([norm] if norm else []),
            *(it for part in parts for it in part.launches),
            *(it for after in followed if after is not None for it in after.launches),
        ]
        replaced = {at for part in parts for at in part.numbers}
        replaced |= {at for after in followed if after is not None for at in after.numbers}
        if not _may_come_first(
            [it.result for it in lasts], first, replaced, self._graph, self._known
        ):
            return None
        sources = dict.fromkeys(it for launch in launches for it in launch.kernel.sources)
        kernel = Kernel(
            name="",
            family=JOINT.name,
            anchor=JointProducts(
                rows=None if norm is None else norm.kernel.anchored(RowProgram),
                row_inputs=row_inputs,
                products=tuple(products),
            ),
            inputs=tuple(self._graph[name].type for name in inputs.names),
            epilogue=None,
            outputs=tuple(it.kernel.output for it in lasts),
            operators=merge_operators(*(it.kernel.operators for it in launches)),
            sources=tuple(sources),
            config=launches[-1].kernel.config,
        )
        configs = joint_configs(kernel, self._machine)
        if not configs:
            return None
        launch = Launch(
            results=tuple(it.result for it in lasts),
            kernel=replace(kernel, config=configs[0][1]),
            inputs=tuple(inputs.names),
        )
        return _Joint(launch=launch, first=first, replaced=frozenset(replaced), views=views)


def _fits(step: Launch, fixed: Set[str]) -> bool:
    """Whether a step is a product of few rows that lie along K, by a matrix."""
    kernel = step.kernel
    if kernel.family != GEMM.name or not kernel.is_whole:
        return False
    contract, kinds = kernel.anchored(Contract), kernel.inputs
    tensors = [it for it in kinds if isinstance(it, TensorType)]
    if len(tensors) != len(kinds) or not fixed.isdisjoint((*step.inputs, *step.results)):
        return False
    rows, factor = tensors[:2]
    kept, summed = contract.lhs[:-1], contract.lhs[-1]
    depth, count = rows.shape[-1], prod(it.hint for it in rows.shape[:-1])
    return (
        contract.patches is None
        and contract.out == contract.lhs[:-1] + contract.out[-1]
        and contract.out[-1] not in kept
        and sorted(contract.rhs) == sorted((summed, contract.out[-1]))
        and factor.dtype in (DType.F16, DType.BF16)
        and depth.is_static
        and depth.hint % 8 == 0
        and 0 < count <= JointConfig.ROWS
        and _is_simple(kernel.expressions)
    )


def _parts(numbers: Sequence[int], known: KnownSteps) -> Iterator[_Part]:
    """The products of these steps, those together of which one is another's sum."""
    launches = {at: it for at in numbers if isinstance(it := known.steps[at], Launch)}
    by_reader: dict[int, int] = {}
    for at, launch in launches.items():
        reader = _only_reader(launch, known)
        if reader in launches and reader not in by_reader and at not in by_reader:
            by_reader[reader] = at
    # What is a sum of another one has none itself.
    firsts = set(by_reader.values())
    for at, launch in launches.items():
        first = by_reader.get(at)
        if at in firsts:
            continue
        if first is None:
            yield _Part(launches=(launch,), numbers=(at,))
        else:
            yield _Part(launches=(launches[first], launch), numbers=(first, at))


def _only_reader(launch: Launch, known: KnownSteps) -> int | None:
    """The step that alone reads a product's result, as a product with a factor of its shape."""
    name = launch.result
    readers = known.readers.get(name, set())
    if len(readers) != 1 or name in known.shown:
        return None
    (number,) = readers
    step = known.steps[number]
    is_alike = (
        isinstance(step, Launch)
        and step.kernel.inputs[1:2] == launch.kernel.inputs[1:2]
        and step.kernel.output.shape == launch.kernel.output.shape
        and step.kernel.anchor == launch.kernel.anchor
        and name in step.inputs[2:]
    )
    return number if is_alike else None


def _views_before(names: Sequence[str], first: int, known: KnownSteps) -> tuple[int, ...] | None:
    """The views among the steps from number `first` on that make these values of what is there
    before; None where one is no such view."""
    found = set[int]()
    left = list(names)
    for name in left:
        at = known.places.get(name, -1)
        if at < first:
            continue
        step = known.steps[at]
        if not isinstance(step, Reinterpret):
            return None
        found.add(at)
        left.append(step.input)
    return tuple(sorted(found))


def _may_come_first(
    results: Sequence[str], first: int, replaced: Set[int], graph: Graph, known: KnownSteps
) -> bool:
    """Whether the results may be there before step number `first`: what is written in place is
    not written before others have read, or written, what was there."""
    users = graph.users()
    writes = [
        node
        for name in results
        for node in map(graph.__getitem__, users.get(name, ()))
        if isinstance(node.kind, Write)
    ]
    if not writes:
        return True
    paths = [it.kind.path for it in writes if isinstance(it.kind, Write)]
    last = max(known.places[name] for name in results)
    between = [
        it
        for at, it in enumerate(known.steps[first:last], first)
        if at not in replaced and not isinstance(it, Reinterpret)
    ]
    return len(set(paths)) == len(paths) and not any(
        name in known.fixed or isinstance(graph[user].kind, Write)
        for it in between
        for name in (it.results if isinstance(it, Launch) else (it.result,))
        for user in (name, *users.get(name, ()))
    )


def _halved(part: _Part, after: Followed, inputs: _Inputs) -> JointProduct | None:
    """A result in halves."""
    kernel = part.last.kernel
    contract, factor = kernel.anchored(Contract), inputs.index(part.last.inputs[1])
    if after.launches:
        made = after.launches[0]
        assert made.kernel.epilogue is not None
        found = epilogues_of(
            after.made,
            made.kernel.epilogue,
            kernel.output.dtype,
            lambda at: inputs.index(made.inputs[at]),
        )
    else:
        found = tuple(_numbered(kernel.epilogue, number) for number in range(2))
    if found is None:
        return None
    return JointProduct(
        contract=contract, factors=(factor,), epilogues=found, halves=after.made.halves
    )


def _numbered(epilogue: Expr | None, number: int) -> Expr:
    """The epilogue of another accumulator."""
    assert epilogue is not None
    return transform(
        epilogue, lambda it: Accumulator(it.dtype, number) if isinstance(it, Accumulator) else it
    )


def _inputs_of(step: Step) -> tuple[str, ...]:
    return step.inputs if isinstance(step, Launch) else ()


def _is_simple(expressions: Sequence[Expr]) -> bool:
    """Whether expressions are of elements alone: not of places or of sizes known at call time."""
    parts = [part for it in expressions for part in walk(it)]
    sizes = any(isinstance(part, Size) and not part.dim.is_static for part in parts)
    return not sizes and not any(map(has_coordinates, expressions))


def _product(part: _Part, inputs: _Inputs) -> JointProduct:
    """A result, of accumulators: a sum that was another kernel's result is rounded as that was."""
    factors = tuple(inputs.index(it.inputs[1]) for it in part.launches)
    made: Mapping[str, Expr] = {}
    for number, launch in enumerate(part.launches):
        value = _placed(launch, number, made, inputs)
        made = {launch.result: _rounded(value, launch.kernel.output.dtype)}
        last = value
    contract = part.last.kernel.anchored(Contract)
    return JointProduct(contract=contract, factors=factors, epilogues=(last,))


def _placed(launch: Launch, number: int, made: Mapping[str, Expr], inputs: _Inputs) -> Expr:
    """The epilogue of one of a part's launches, of the joint kernel's inputs."""

    def place(leaf: Expr) -> Expr:
        match leaf:
            case Accumulator(dtype):
                return Accumulator(dtype, number)
            case Operand(index, dtype):
                name = launch.inputs[index]
                return made[name] if name in made else Operand(inputs.index(name), dtype)
        return leaf

    assert launch.kernel.epilogue is not None
    return transform(launch.kernel.epilogue, place)


def _rounded(value: Expr, dtype: DType) -> Expr:
    """The value as the kernel would have stored it."""
    match value:
        case Accumulator(_, number):
            return Call("cast", (Accumulator(DType.F32, number),), dtype)
    return value
