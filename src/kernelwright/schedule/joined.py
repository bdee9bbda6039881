"""Tensors put side by side without a copy: kernels write their results where the whole has them.

The whole is allocated first. A kernel that computes element by element writes its part of it as
well as a tensor of its own; every other part is copied to its place, as PyTorch's call would do. A
whole that is a run of the parts of another one is a view of that: the features of a dense block
are in memory once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import Concat, Contract, Reshape
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.plan import (
    Launch,
    Plan,
    Reinterpret,
    Room,
    Step,
    TorchCall,
    Within,
    reads,
)
from kernelwright.ir.sizes import total
from kernelwright.lower.layouts import relayout
from kernelwright.machine import Machine
from kernelwright.schedule.families import family_of
from kernelwright.schedule.families.pointwise import launch_copy


def with_parts_in_place(
    graph: Graph,
    steps: Sequence[Step],
    machine: Machine,
    wanted: frozenset[str] | None = None,
    anyway: frozenset[str] = frozenset(),
) -> tuple[Graph, list[Step]]:
    """The steps without the calls in `wanted` that put tensors side by side; None: those that are
    slower than kernels, and those in `anyway`.

    The graph has the copies that are left as nodes.
    """
    finder = _Finder(graph, steps, wanted, anyway, machine)
    families = list(finder.families())
    if wanted is None:
        families = [
            it
            for it in families
            if not anyway.isdisjoint(it.wholes) or _is_worth_it(it, graph, machine)
        ]
    return _Writer(graph, families).written(steps)


def joined_in_place(plan: Plan) -> frozenset[str]:
    """The nodes whose parts launches write where they belong."""
    return frozenset(
        step.result
        for step in plan.steps
        if isinstance(step, Room)
        and (node := plan.graph.find(step.result)) is not None
        and isinstance(node.kind, Concat)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """A whole, and others that are part of it."""

    wholes: list[str] = field(default_factory=list)
    homes: dict[str, Within] = field(default_factory=dict)
    """Where the parts are that need no copy."""
    copied: dict[tuple[str, int], Within] = field(default_factory=dict)
    """Where the others go, by their whole and their number in it."""


def _is_worth_it(family: _Family, graph: Graph, machine: Machine) -> bool:
    # A part that is where it belongs is neither read nor written once more.
    saved = 2 * sum(graph[name].tensor.bytes_hint for name in family.homes)
    more_launches = max(0, len(family.copied) - len(family.wholes))
    rates = machine.launches
    least = rates.joined_seconds + rates.added_seconds * more_launches
    return saved / machine.copy_bandwidth > least


# --- What is put where -------------------------------------------------------------------------


class _Finder:
    def __init__(
        self,
        graph: Graph,
        steps: Sequence[Step],
        wanted: frozenset[str] | None,
        anyway: frozenset[str],
        machine: Machine,
    ) -> None:
        self._graph = graph
        self._makers = {name: it for it in steps if isinstance(it, Launch) for name in it.results}
        calls = [graph[it.result] for it in steps if isinstance(it, TorchCall)]
        ordered = graph.readers_of_mutable()
        self._wholes = {
            node.name: node
            for node in calls
            if isinstance(node.kind, Concat)
            and node.name not in ordered
            and (
                node.name in anyway or self._has_long_parts(node, machine)
                if wanted is None
                else node.name in wanted
            )
        }
        self._numbers = {name: number for number, name in enumerate(self._wholes)}
        self._by_first: dict[str, list[str]] = {}
        for whole in self._wholes.values():
            self._by_first.setdefault(whole.inputs[0], []).append(whole.name)
        self._in_one_piece = set(graph.results)
        for step in reversed(steps):
            if step.result not in self._wholes and self._wants_one_piece(step):
                self._in_one_piece.update(reads(step))
        self._taken: set[str] = set()

    def families(self) -> Iterator[_Family]:
        """Every whole in one of them; the last wholes are the largest."""
        for name in reversed(self._wholes):
            if name not in self._taken:
                family = _Family()
                self._place(name, family)
                yield family

    def _wants_one_piece(self, step: Step) -> bool:
        """Launches read what lies apart as they read anything else; PyTorch's calls copy it."""
        match step:
            case Launch():
                return False
            case Reinterpret(result=result, map=index_map):
                return isinstance(index_map, Reshape) or result in self._in_one_piece
        return True

    def _place(self, name: str, family: _Family) -> None:
        """Find the places of the parts of a whole."""
        whole = self._wholes[name]
        self._taken.add(name)
        family.wholes.append(name)
        missing = set(range(len(whole.inputs)))
        for other in self._alike(whole):
            run = self._run_of(other, whole)
            if run and missing.issuperset(run) and self._may_lie_apart(other):
                family.homes[other] = self._within(whole, run)
                missing.difference_update(run)
                self._place(other, family)
        for number in sorted(missing):
            part, home = whole.inputs[number], self._within(whole, range(number, number + 1))
            if self._is_written_anywhere(part):
                self._taken.add(part)
                family.homes[part] = home
            else:
                family.copied[name, number] = home

    def _alike(self, whole: Node) -> list[str]:
        """The wholes that may be a run of this one's parts, the last one first."""
        found = {name for name in whole.inputs if name in self._wholes}
        found.update(name for part in whole.inputs for name in self._by_first.get(part, ()))
        return sorted(found, key=self._numbers.__getitem__, reverse=True)

    def _run_of(self, other: str, whole: Node) -> range:
        """Which parts of a whole another one is, or is made of; none if it is neither."""
        parts, whole_parts = self._wholes[other].inputs, whole.inputs
        if other in whole_parts:
            at = whole_parts.index(other)
            return range(at, at + 1)
        if other == whole.name or self._wholes[other].kind != whole.kind:
            return range(0)
        for start in range(len(whole_parts) - len(parts) + 1):
            if whole_parts[start : start + len(parts)] == parts:
                return range(start, start + len(parts))
        return range(0)

    def _within(self, whole: Node, run: range) -> Within:
        assert isinstance(whole.kind, Concat)
        dim = whole.kind.dim
        sizes = [self._graph[name].tensor.shape[dim] for name in whole.inputs]
        start, stop = total(sizes[: run.start]), total(sizes[: run.stop])
        return Within(whole=whole.name, dim=dim, start=start, stop=stop)

    def _may_lie_apart(self, name: str) -> bool:
        return name not in self._taken and name not in self._in_one_piece

    def _is_written_anywhere(self, name: str) -> bool:
        """Whether the kernel that makes it writes to any strides, and its readers read any."""
        maker = self._makers.get(name)
        if maker is None or not self._may_lie_apart(name):
            return False
        return family_of(maker.kernel).writes_anywhere(maker.kernel)

    def _has_long_parts(self, node: Node, machine: Machine) -> bool:
        assert isinstance(node.kind, Concat)
        dim, parts = node.kind.dim, [self._graph[name].tensor for name in node.inputs]
        runs = [prod(size.hint for size in it.shape[dim:]) * it.dtype.itemsize for it in parts]
        makers = [self._makers[name].kernel for name in node.inputs if name in self._makers]
        by_rows = any(isinstance(it.anchor, Contract) and it.anchor.patches for it in makers)
        rates = machine.launches
        return min(runs) >= (rates.joined_row_bytes if by_rows else rates.joined_run_bytes)


# --- The steps ---------------------------------------------------------------------------------


class _Writer:
    def __init__(self, graph: Graph, families: Sequence[_Family]) -> None:
        self._graph = graph
        self._wholes = {name for family in families for name in family.wholes}
        self._homes = {name: home for it in families for name, home in it.homes.items()}
        self._copied = {place: home for it in families for place, home in it.copied.items()}
        self._names = {node.name for node in graph.nodes}
        self._copies: dict[str, list[Node]] = {}
        """Copies of parts, by their whole."""
        self._allocated: set[str] = set()

    def written(self, steps: Sequence[Step]) -> tuple[Graph, list[Step]]:
        written = [it for step in steps for it in self._step(step)]
        nodes = (it for node in self._graph.nodes for it in self._with_copies(node))
        return replace(self._graph, nodes=tuple(nodes)), written

    def _step(self, step: Step) -> Iterator[Step]:
        if isinstance(step, TorchCall) and step.result in self._wholes:
            yield from self._filled(self._graph[step.result])
            return
        if isinstance(step, Launch):
            for name in step.results:
                if name in self._homes:
                    yield from self._rooms(self._graph[name])
        yield step

    def _filled(self, whole: Node) -> Iterator[Step]:
        """What is left to do for a whole when its parts are known."""
        yield from self._rooms(whole)
        copies = self._copies[whole.name] = []
        for number, part in enumerate(whole.inputs):
            home = self._copied.get((whole.name, number))
            if home is None:
                continue
            copy = self._copy_of(self._graph[part], whole)
            copies.append(copy)
            self._homes[copy.name] = home
            yield from self._rooms(copy)
            yield launch_copy(copy, self._graph[part])

    def _copy_of(self, part: Node, whole: Node) -> Node:
        copy = relayout(fresh_name(f"{part.name}_part", self._names), part, whole)
        return replace(copy, operators=("cat",))

    def _rooms(self, node: Node) -> Iterator[Step]:
        """Memory for a value, and before it for what it is part of."""
        if node.name in self._allocated:
            return
        self._allocated.add(node.name)
        home = self._homes.get(node.name)
        if home is not None:
            yield from self._rooms(self._graph[home.whole])
        yield Room(result=node.name, type=node.tensor, within=home)

    def _with_copies(self, node: Node) -> Iterator[Node]:
        """The node after the copies that it needs now."""
        if not self._copies.get(node.name):
            yield node
            return
        copies = iter(self._copies[node.name])
        yield from self._copies[node.name]
        inputs = tuple(
            next(copies).name if (node.name, number) in self._copied else name
            for number, name in enumerate(node.inputs)
        )
        yield replace(node, inputs=inputs, origin=None, part_of=None)
