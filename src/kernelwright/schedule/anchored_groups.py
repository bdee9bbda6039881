"""Grouping around a scan or a pooling: the steps before it and after it that cost no launch."""

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.ir.expr import Accumulator, Expr, Operand, operations, transform
from kernelwright.ir.graph import Graph, Node, epilogues_of, widens
from kernelwright.ir.kinds import Contract, Conv, Pointwise, Pooling, Scan, Window
from kernelwright.ir.types import Dim
from kernelwright.schedule.in_order import InOrder

_CHEAP = 4
"""Operations that are worth repeating in every window that an element is in."""
_CHEAP_ONCE = 16
"""Operations that are worth repeating where a thread keeps the elements of a window."""
_LONGEST_EXPRESSION = 96
"""Operations, repetitions counted, of an expression."""
_MOST_INPUTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchoredGroup:
    """A scan or a pooling with what goes into it and what becomes of its result."""

    anchor: Node
    before: tuple[Node, ...]
    """Pointwise nodes whose last one the anchor reads, in the order of the graph."""
    after: tuple[Node, ...]
    """Pointwise nodes that end in the result, in the same order."""

    @property
    def members(self) -> tuple[Node, ...]:
        """All nodes of the group, in the order of the graph."""
        return (*self.before, self.anchor, *self.after)

    @property
    def root(self) -> Node:
        """The node whose value is written."""
        return self.members[-1]


def anchored_groups(
    graph: Graph, ours: frozenset[str], kinds: tuple[type, ...] = (Scan, Window)
) -> tuple[AnchoredGroup, ...]:
    """The groups of a graph around nodes of these kinds; `ours`: nodes that kernels may have."""
    found: list[AnchoredGroup] = []
    taken: set[str] = set()
    # A product of ours can compute these with its result, which costs nothing; but what it only
    # widens it writes in more bytes.
    products = (node.name for node in graph.nodes if isinstance(node.kind, Contract | Conv))
    epilogues = epilogues_of(ours.intersection(products), graph)
    for node in graph.nodes:
        if isinstance(node.kind, kinds):
            group = _Growth(graph, node, ours - taken, epilogues).grown()
            found.append(group)
            taken.update(member.name for member in group.members)
    return tuple(found)


class _Growth:
    def __init__(
        self, graph: Graph, anchor: Node, ours: frozenset[str], epilogues: frozenset[str]
    ) -> None:
        self._graph = graph
        self._users = graph.users()
        self._results = frozenset(graph.results)
        self._ours = ours
        self._epilogues = epilogues
        self._anchor = anchor

    def grown(self) -> AnchoredGroup:
        before = self._before()
        return AnchoredGroup(anchor=self._anchor, before=before, after=self._after(before))

    def _before(self) -> tuple[Node, ...]:
        """Producers of the same shape that nobody else reads."""
        inside = {self._anchor.name}
        source = self._graph[self._anchor.inputs[0]]
        found: list[Node] = []
        length = 0
        queue = InOrder(self._graph.places(), forwards=False)
        queue.add(self._anchor.inputs)
        for node in map(self._graph.__getitem__, queue):
            readers = self._users[node.name]
            joins = (
                node.name in self._ours
                and isinstance(node.kind, Pointwise)
                and node.name not in self._results
                and all(name in inside for name in readers)
                and node.tensor.shape == source.tensor.shape
                and (node.name not in self._epilogues or widens(node, self._graph.__getitem__))
            )
            if not joins:
                continue
            assert isinstance(node.kind, Pointwise)
            length += operations(node.kind.expr)
            if length > self._longest_before():
                break
            inside.add(node.name)
            queue.add(node.inputs)
            found.append(node)
        return tuple(reversed(found))

    def _longest_before(self) -> int:
        """An element that is in several windows is computed for each of them."""
        match self._anchor.kind:
            case Window(op=Pooling.DOT | Pooling.DOT_LAST):
                return _CHEAP_ONCE
            case Window(size=size, stride=stride) if any(
                of > step for of, step in zip(size, stride, strict=True)
            ):
                return _CHEAP
        return _LONGEST_EXPRESSION

    def _after(self, before: tuple[Node, ...]) -> tuple[Node, ...]:
        """Consumers, as long as the last node has one reader, of its shape, that waits for nothing
        that is made of the group outside of it."""
        found: list[Node] = []
        last = self._anchor
        inside = {node.name for node in (*before, self._anchor)}
        read = {name for node in (*before, self._anchor) for name in node.inputs}
        while True:
            readers = self._users[last.name]
            if len(readers) != 1 or last.name in self._results:
                return tuple(found)
            node = self._graph[readers[0]]
            read |= set(node.inputs)
            joins = (
                node.name in self._ours
                and isinstance(node.kind, Pointwise)
                and node.tensor.shape == last.tensor.shape
                and len(read - inside) <= _MOST_INPUTS
            )
            if not joins:
                return tuple(found)
            found.append(node)
            inside.add(node.name)
            last = node


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """The expressions of a group and the nodes whose values are its operands."""

    inputs: tuple[Node, ...]
    prologue_inputs: int
    """How many of the inputs, the first ones, the prologue reads."""
    prologue: Expr
    epilogue: Expr


def expressions_of(group: AnchoredGroup, graph: Graph) -> Anchored:
    """Prologue and epilogue; an input that both read is there twice."""
    inputs: list[Node] = []
    members = {node.name: node for node in group.members}

    def place(first: int, node: Node) -> Expr:
        if node.name in members:
            return expand(first, node)
        if node not in inputs[first:]:
            inputs.append(node)
        dtype = getattr(node.type, "dtype", None)
        assert dtype is not None, f"{node.name} is {node.type}, which no kernel reads"
        return Operand(first + inputs[first:].index(node), dtype)

    def expand(first: int, node: Node) -> Expr:
        if node is group.anchor:
            return Accumulator(node.tensor.dtype)
        assert isinstance(node.kind, Pointwise)
        return transform(node.kind.expr, _placing(node, first, place, graph))

    prologue = place(0, graph[group.anchor.inputs[0]])
    count = len(inputs)
    epilogue = expand(count, group.root)
    inputs += [graph[name] for name in group.anchor.inputs[1:]]  # weights
    return Anchored(
        inputs=tuple(inputs), prologue_inputs=count, prologue=prologue, epilogue=epilogue
    )


def _placing(
    node: Node, first: int, place: Callable[[int, Node], Expr], graph: Graph
) -> Callable[[Expr], Expr]:
    def placed(leaf: Expr) -> Expr:
        if not isinstance(leaf, Operand):
            return leaf
        return place(first, graph[node.inputs[leaf.index]])

    return placed


def source_shape(group: AnchoredGroup, graph: Graph) -> tuple[Dim, ...]:
    """Shape of what the anchor reads."""
    return graph[group.anchor.inputs[0]].tensor.shape
