"""Moments of the columns of a result for the norm that reads it: the kernel that makes the result
has it in registers, and what the norm's first kernel would read it for is known when it is done.

So it is for products, such as convolutions by place, and for depthwise convolutions of channels
that are last, before a batch norm in training whose maps are small: more rows have more parts than
are worth reading again. A norm of what several products write side by side has moments of all of
them, which lie side by side as well: those of a layer of a dense block are made once, and read by
every norm after it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelwright.ir.graph import Graph
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import Launch, Plan, Room, Step, Within
from kernelwright.ir.types import Dim, TensorType
from kernelwright.schedule.families.family import MOMENT_COLUMNS
from kernelwright.schedule.families.rows import ROWS
from kernelwright.schedule.moment_makers import (
    moments_in,
    moments_of,
    most_parts,
    normalised,
)


def with_column_moments(
    graph: Graph, steps: Sequence[Step], wanted: frozenset[str] | None = None
) -> list[Step]:
    """The steps, in which the norms in `wanted` begin with moments of what they read; None: those
    of so few parts that this is faster."""
    columns = _columns_of(steps)
    writer = _Writer(
        taken={node.name for node in graph.nodes},
        widths={it.name: Dim.static(it.stop) for it in columns.values() if it.root == it.name},
    )
    for step in steps:
        if not isinstance(step, Launch) or (at := normalised(step.kernel)) is None:
            continue
        own = columns.get(step.inputs[at])
        made = None if own is None else _makers(own, columns)
        if own is None or made is None:
            continue
        is_faster = made[0].kind.shape[0].hint <= most_parts(step.kernel)
        if is_faster if wanted is None else step.result in wanted:
            writer.add(step, own, made)
    return list(writer.written(steps))


def having_moments(plan: Plan) -> frozenset[str]:
    """The norms that begin with moments of what they read, by their first results."""
    launches = (step for step in plan.steps if isinstance(step, Launch))
    return frozenset(
        it.result for it in launches if it.kernel.moments and it.kernel.family == ROWS.name
    )


def with_parts_of_configs(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps whose kernels have other configurations than they were planned with, and with that
    perhaps moments in other parts."""
    kinds: dict[str, TensorType] = {}
    changed: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and step.kernel.moments:
            kernel = step.kernel
            if kernel.makes_moments:
                results = kernel.outputs[:-1]
                kind = moments_of(replace(kernel, moments=False, outputs=results))
                assert kind is not None, "the configuration makes moments"
                kinds[step.results[-1]] = kind
                kernel = replace(kernel, outputs=(*results, kind))
            elif step.inputs[-1] in kinds:
                inputs = (*kernel.inputs[:-1], kinds[step.inputs[-1]])
                kernel = replace(kernel, inputs=inputs)
            step = replace(step, kernel=kernel)
        changed.append(step)
    return tuple(changed)


# --- What is made by whom ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Columns of a tensor that have a name: all of a new one, or some within another."""

    name: str
    root: str
    """The tensor that is in no other."""
    start: int
    stop: int
    launch: Launch | None
    """What writes them."""

    @property
    def is_whole(self) -> bool:
        """Whether one launch writes all of the tensor."""
        return self.launch is not None and self.root == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """A launch that makes moments of the columns that it writes."""

    columns: _Columns
    kind: TensorType


def _columns_of(steps: Sequence[Step]) -> dict[str, _Columns]:
    """Results of launches and rooms whose columns are known, by name."""
    launches = {step.result: step for step in steps if isinstance(step, Launch)}
    rooms = {step.result: step for step in steps if isinstance(step, Room)}
    kinds = {name: it.kernel.outputs[0] for name, it in launches.items()}
    kinds |= {name: it.type for name, it in rooms.items()}
    found: dict[str, _Columns] = {}
    for name, kind in kinds.items():
        place = _place(name, kind, rooms)
        if place is not None:
            root, start = place
            stop = start + kind.shape[-1].hint
            launch = launches.get(name)
            found[name] = _Columns(name=name, root=root, start=start, stop=stop, launch=launch)
    return found


def _place(name: str, kind: TensorType, rooms: Mapping[str, Room]) -> tuple[str, int] | None:
    """Where a value's columns are: in which tensor, and from which of its columns on; None where
    that is not known."""
    if kind.rank == 0 or not kind.shape[-1].is_static:
        return None
    start, root = 0, name
    while root in rooms and (within := rooms[root].within) is not None:
        if within.dim != kind.rank - 1 or not within.start.is_static:
            return None
        start, root = start + within.start.hint, within.whole
    return root, start


def _makers(own: _Columns, columns: Mapping[str, _Columns]) -> list[_Maker] | None:
    """The launches that make the moments of these columns, from left to right, in parts of the same
    rows; None where some columns have none."""
    writing = sorted(
        (it for it in columns.values() if it.root == own.root and it.launch is not None),
        key=lambda it: it.start,
    )
    inside = [it for it in writing if own.start <= it.start < own.stop]
    edges = [own.start, *(it.stop for it in inside)]
    if not inside or edges != [*(it.start for it in inside), own.stop]:
        return None
    if any(it.start % MOMENT_COLUMNS for it in inside):
        return None
    found = []
    for it in inside:
        kind = None if it.launch is None else moments_of(it.launch.kernel)
        if kind is None:
            return None
        found.append(_Maker(columns=it, kind=kind))
    return found if len({it.kind.shape[0] for it in found}) == 1 else None


# --- Steps ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Writer:
    """Names of moments, and who writes and reads them."""

    taken: set[str]
    widths: Mapping[str, Dim]
    """Columns of each root."""
    names: dict[str, str] = field(default_factory=dict)
    """Names of the moments of a tensor that several launches write, by its own."""
    roots: dict[str, Room] = field(default_factory=dict)
    """Memory of these that is not there yet, by their names."""
    rooms: dict[str, Room] = field(default_factory=dict)
    """Where a launch writes moments, or a norm reads them, by what has these columns."""
    made: dict[str, tuple[str, TensorType]] = field(default_factory=dict)
    """Moments by the launch that writes them."""
    read: dict[str, tuple[str, str, TensorType]] = field(default_factory=dict)
    """Whose moments a norm reads, and these, by the norm's first result."""

    def add(self, norm: Launch, own: _Columns, makers: Sequence[_Maker]) -> None:
        """Moments of these launches, with which a norm begins."""
        parts = makers[0].kind.shape[0]
        for maker in makers:
            columns = maker.columns
            if columns.name not in self.made:
                name = self._named(columns, parts, is_alone=own.is_whole)
                self.made[columns.name] = (name, maker.kind)
        if own.name in self.made:
            name, kind = self.made[own.name]
        else:
            name = self._named(own, parts, is_alone=False)
            kind = self.rooms[own.name].type
        self.read[norm.result] = (own.name, name, kind)

    def written(self, steps: Sequence[Step]) -> Iterator[Step]:
        """The steps with the memory of moments, and with launches that write and read them."""
        waiting = dict(self.rooms)
        for step in steps:
            if not isinstance(step, Launch):
                yield step
                continue
            about = self.read[step.result][0] if step.result in self.read else step.result
            if (room := waiting.pop(about, None)) is not None:
                assert room.within is not None
                if (root := self.roots.pop(room.within.whole, None)) is not None:
                    yield root
                yield room
            kernel = step.kernel
            if step.result in self.made:
                name, kind = self.made[step.result]
                kernel = replace(kernel, moments=True, outputs=(*kernel.outputs, kind))
                step = replace(step, kernel=kernel, results=(*step.results, name))
            elif step.result in self.read:
                _, name, kind = self.read[step.result]
                kernel = replace(kernel, moments=True, inputs=(*kernel.inputs, kind))
                step = replace(step, kernel=kernel, inputs=(*step.inputs, name))
            yield step

    def _named(self, columns: _Columns, parts: Dim, *, is_alone: bool) -> str:
        """A name for moments of these columns, and where they are if not alone."""
        if columns.name in self.rooms:
            return self.rooms[columns.name].result
        name = fresh_name(f"{columns.name}_moments", self.taken)
        if not is_alone:
            whole = self._root(columns.root, parts)
            start, stop = Dim.static(columns.start), Dim.static(columns.stop)
            self.rooms[columns.name] = Room(
                result=name,
                type=moments_in(parts, Dim.static(columns.stop - columns.start)),
                within=Within(whole=whole, dim=1, start=start, stop=stop),
            )
        return name

    def _root(self, root: str, parts: Dim) -> str:
        name = self.names.get(root)
        if name is None:
            name = self.names[root] = fresh_name(f"{root}_moments", self.taken)
            kind = moments_in(parts, self.widths[root])
            self.roots[name] = Room(result=name, type=kind, within=None)
        return name
