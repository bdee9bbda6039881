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
from kernelwright.ir.kinds import Contract, Reshape, Write
from kernelwright.ir.plan import Kernel, Launch, Reinterpret, Step, reads
from kernelwright.ir.types import DType, TensorType
from kernelwright.machine import Machine
from kernelwright.schedule.families.gemm import GEMM
from kernelwright.schedule.families.joint import JOINT, joint_configs
from kernelwright.schedule.families.pointwise import POINTWISE
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.joint_halves import (
    Made,
    Sizes,
    contiguous,
    epilogues_of,
    halves_of,
    is_split_of,
    plain,
    viewed,
)
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
    """Of their steps."""

    @property
    def last(self) -> Launch:
        return self.launches[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Followed:
    """What is made of a product in halves."""

    launches: tuple[Launch, ...]
    """The one that makes it, and the copy of it; none where it is the product itself."""
    made: Made
    numbers: frozenset[int]
    """Of their steps, and of the views between."""
    product: Launch | None = None

    @property
    def last(self) -> Launch:
        """The launch whose result is written."""
        if self.launches:
            return self.launches[-1]
        assert self.product is not None
        return self.product


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
        self._steps = steps
        self._machine = machine
        self._places: dict[str, int] = {}
        self._readers: dict[str, set[int]] = {}
        for at, step in enumerate(steps):
            for name in step.results if isinstance(step, Launch) else (step.result,):
                self._places[name] = at
            for name in reads(step):
                self._readers.setdefault(name, set()).add(at)
        updated = (update.value for update in graph.updates)
        self._shown = {*graph.results, *updated}
        self._fixed = graph.readers_of_mutable()

    def found(self) -> Iterator[_Joint]:
        """Launches in place of several, each step in one of them."""
        by_rows: dict[str, list[int]] = {}
        for at, step in enumerate(self._steps):
            if isinstance(step, Launch) and self._fits(step):
                by_rows.setdefault(step.inputs[0], []).append(at)
        for rows, numbers in by_rows.items():
            parts = sorted(self._parts(numbers), key=lambda it: (len(it.launches), it.numbers))
            norm = self._norm(rows, numbers)
            groups = [
                tuple(it)[:_MOST_RESULTS] for _, it in groupby(parts, lambda it: len(it.launches))
            ]
            # Rows that only some of their readers make again have a launch all the same.
            is_whole = sum(len(it.numbers) for group in groups for it in group) == len(numbers)
            made = [self._joint(it, norm if is_whole else None) for it in groups]
            if norm is not None and is_whole and all(made):
                norm_place = self._places[rows]
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
                if joint is not None and len(joint.replaced) > 1 and self._is_faster(joint):
                    yield joint

    def _is_faster(self, joint: _Joint) -> bool:
        apart = sum(self._seconds(at) for at in joint.replaced)
        return (JOINT.seconds(joint.launch.kernel, self._machine) or 0) < apart

    def _seconds(self, number: int) -> float:
        step = self._steps[number]
        if not isinstance(step, Launch):
            return 0
        if step.kernel.family == GEMM.name:
            return GEMM.seconds(step.kernel, self._machine) or 0
        return self._machine.launches.added_seconds

    def _fits(self, step: Launch) -> bool:
        """Whether a step is a product of few rows that lie along K, by a matrix."""
        kernel = step.kernel
        if kernel.family != GEMM.name or kernel.triangle is not None:
            return False
        contract, kinds = kernel.anchored(Contract), kernel.inputs
        tensors = [it for it in kinds if isinstance(it, TensorType)]
        if len(tensors) != len(kinds) or not self._fixed.isdisjoint((*step.inputs, *step.results)):
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

    def _parts(self, numbers: Sequence[int]) -> Iterator[_Part]:
        """The products of these steps, those together of which one is another's sum."""
        launches = {at: it for at in numbers if isinstance(it := self._steps[at], Launch)}
        by_reader: dict[int, int] = {}
        for at, launch in launches.items():
            reader = self._only_reader(launch)
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

    def _only_reader(self, launch: Launch) -> int | None:
        """The step that alone reads a product's result, as a product with a factor of its shape."""
        name = launch.result
        readers = self._readers.get(name, set())
        if len(readers) != 1 or name in self._shown:
            return None
        (number,) = readers
        step = self._steps[number]
        is_alike = (
            isinstance(step, Launch)
            and step.kernel.inputs[1:2] == launch.kernel.inputs[1:2]
            and step.kernel.output.shape == launch.kernel.output.shape
            and step.kernel.anchor == launch.kernel.anchor
            and name in step.inputs[2:]
        )
        return number if is_alike else None

    def _norm(self, rows: str, numbers: Sequence[int]) -> Launch | None:
        """The launch that makes the rows, for these steps alone, row by row."""
        at = self._places.get(rows)
        step = None if at is None else self._steps[at]
        if not isinstance(step, Launch) or step.kernel.family != ROWS.name:
            return None
        kernel = step.kernel
        program = kernel.anchored(RowProgram)
        fits = (
            rows not in self._shown
            and rows not in self._fixed
            and self._fixed.isdisjoint(step.inputs)
            and self._readers[rows] == set(numbers)
            and len(program.results) == 1
            and program.results[0].extent is Extent.ELEMENT
            and program.dims == (len(program.shape) - 1,)
            and all(isinstance(it, TensorType) for it in kernel.inputs)
            and _is_simple(kernel.expressions)
        )
        return step if fits else None

    def _joint(self, parts: Sequence[_Part], norm: Launch | None) -> _Joint | None:
        """The launch of these products, where what it reads is there before the first of them."""
        followed = self._followed(parts)
        if followed is not None:
            joint = self._joint_of(parts, followed, norm)
            if joint is not None:
                return joint
        return self._joint_of(parts, (None,) * len(parts), norm)

    def _joint_of(
        self, parts: Sequence[_Part], followed: Sequence[_Followed | None], norm: Launch | None
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
        views = self._views_before(inputs.names, first)
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
        if not self._may_come_first([it.result for it in lasts], first, replaced):
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

    def _views_before(self, names: Sequence[str], first: int) -> tuple[int, ...] | None:
        """The views among the steps from number `first` on that make these values of what is there
        before; None where one is no such view."""
        found = set[int]()
        left = list(names)
        for name in left:
            at = self._places.get(name, -1)
            if at < first:
                continue
            step = self._steps[at]
            if not isinstance(step, Reinterpret):
                return None
            found.add(at)
            left.append(step.input)
        return tuple(sorted(found))

    def _followed(self, parts: Sequence[_Part]) -> tuple[_Followed, ...] | None:
        """What is made of the products in halves of runs of columns; None where nothing is."""
        if any(len(part.launches) > 1 for part in parts):
            return None
        found = [self._after(part.last) for part in parts]
        if not any(found):
            return None
        pairs = zip(parts, found, strict=True)
        made = [_as_it_is(part.last) if after is None else after for part, after in pairs]
        return tuple(it for it in made if it is not None) if all(made) else None

    def _after(self, launch: Launch) -> _Followed | None:
        """The launch that alone reads a product, through views, and the copy of what it makes."""
        sizes = Sizes()
        numbers = sizes.of(launch.kernel.output.shape)
        if numbers is None or not isinstance(launch.kernel.epilogue, Accumulator):
            return None
        seen, names, steps = {launch.result: contiguous(numbers)}, [launch.result], set[int]()
        readers: set[int] = set()
        for name in names:
            if name in self._shown:
                return None
            for at in self._readers.get(name, ()):
                step = self._steps[at]
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
        last = self._pointwise(readers)
        if last is None:
            return None
        read = {at: seen[name] for at, name in enumerate(last.inputs) if name in seen}
        made = halves_of(last.kernel.output.shape, seen[launch.result], read, sizes)
        is_split = made is not None and made.halves.shape != last.kernel.output.shape
        if made is None or (is_split and len(read) < len(last.inputs)):
            return None
        followed = _Followed(launches=(last,), made=made, numbers=frozenset(steps | readers))
        return self._with_copy(followed)

    def _with_copy(self, own: _Followed) -> _Followed:
        """The same with the copy that alone reads the result, as one that is written in place."""
        copied, numbers = own.last.result, set(own.numbers)
        for _ in range(2):
            readers = self._readers.get(copied, set())
            if copied in self._shown or len(readers) != 1:
                return own
            numbers |= readers
            step = self._steps[min(readers)]
            if isinstance(step, Reinterpret) and isinstance(step.map, Reshape):
                copied = step.result
                continue
            copy = self._pointwise(readers)
            is_copy = copy is not None and isinstance(copy.kernel.epilogue, Operand)
            if (
                copy is None
                or not is_copy
                or not is_split_of(copy.kernel.output.shape, own.made.halves)
            ):
                return own
            return replace(own, launches=(*own.launches, copy), numbers=frozenset(numbers))
        return own

    def _pointwise(self, numbers: Set[int]) -> Launch | None:
        """The only one of these steps, if it computes element by element, of tensors."""
        if len(numbers) != 1:
            return None
        (number,) = numbers
        step = self._steps[number]
        if not isinstance(step, Launch) or step.kernel.family != POINTWISE.name:
            return None
        kernel = step.kernel
        sizes = [it for expr in kernel.expressions for it in walk(expr) if isinstance(it, Size)]
        are_tensors = all(isinstance(it, TensorType) for it in kernel.inputs)
        is_movable = self._fixed.isdisjoint((*step.inputs, *step.results))
        return step if are_tensors and is_movable and not sizes else None

    def _may_come_first(self, results: Sequence[str], first: int, replaced: Set[int]) -> bool:
        """Whether the results may be there before step number `first`: what is written in place is
        not written before others have read, or written, what was there."""
        users = self._graph.users()
        writes = [
            node
            for name in results
            for node in map(self._graph.__getitem__, users.get(name, ()))
            if isinstance(node.kind, Write)
        ]
        if not writes:
            return True
        paths = [it.kind.path for it in writes if isinstance(it.kind, Write)]
        last = max(self._places[name] for name in results)
        between = [
            it
            for at, it in enumerate(self._steps[first:last], first)
            if at not in replaced and not isinstance(it, Reinterpret)
        ]
        return len(set(paths)) == len(paths) and not any(
            name in self._fixed or isinstance(self._graph[user].kind, Write)
            for it in between
            for name in (it.results if isinstance(it, Launch) else (it.result,))
            for user in (name, *users.get(name, ()))
        )


def _as_it_is(launch: Launch) -> _Followed | None:
    """A product whose own result is the last."""
    assert launch.kernel.epilogue is not None
    made = plain(launch.kernel.output, Sizes())
    if made is None or any(isinstance(it, Operand) for it in walk(launch.kernel.epilogue)):
        return None
    return _Followed(launches=(), made=made, numbers=frozenset(), product=launch)


def _halved(part: _Part, after: _Followed, inputs: _Inputs) -> JointProduct | None:
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
