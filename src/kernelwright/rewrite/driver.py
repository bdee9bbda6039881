"""One driver for every table of rules."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kernelwright.ir.calls import rename
from kernelwright.ir.graph import (
    Concat,
    Contract,
    Graph,
    Input,
    Node,
    Opaque,
    Pointwise,
    Project,
    Reduce,
    Scan,
    Update,
    View,
    Window,
    made_of,
    rename_inputs,
)
from kernelwright.ir.spec import check
from kernelwright.ir.types import Dim, TensorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of a table: where it applies and what it puts there."""

    name: str
    """For reports: "product with a diagonal matrix is a scaling"."""
    match: "Callable[[Surroundings, Node], tuple[Node, ...] | None]"
    """The nodes that replace one node, the last of which stands for it; None: does not apply."""
    algebraic: bool = False
    """Changes the number of operations by more than 2x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One application of a rule, for people."""

    rule: str
    operators: tuple[str, ...]
    """The operators that the new node stands for."""
    source: str | None
    """`file:line` of the replaced node."""
    algebraic: bool

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{' + '.join(self.operators)}{where}: {self.rule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A graph and how it came about."""

    graph: Graph
    applied: tuple[Applied, ...]

    @property
    def algebraic(self) -> bool:
        """True when any rule changed the amount of work by more than 2x."""
        return any(item.algebraic for item in self.applied)


class Surroundings:
    """What a rule sees besides its node: the graph's other nodes by name, and fresh names."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in graph.nodes}
        self._results = set(graph.results)
        self._ordered = graph.readers_of_mutable()
        self._all = graph.nodes
        self._graph = graph

    def node(self, name: str) -> Node:
        """The node called `name`."""
        return self._nodes[name]

    def unseen(self, name: str) -> bool:
        """True when the caller never sees this value."""
        return name not in self._results

    def readers(self, name: str) -> int:
        """How many nodes read this value."""
        return sum(name in node.inputs for node in self._all)

    def is_read_only_as(self, name: str, view: Node) -> bool:
        """True if all that reads the value is this view, or others like it."""
        readers = (node for node in self._all if name in node.inputs)
        return all(node.kind == view.kind and node.type == view.type for node in readers)

    def is_reduced(self, name: str) -> bool:
        """True if a reduction reads the value as it is."""
        return any(isinstance(node.kind, Reduce) and name in node.inputs for node in self._all)

    def is_read_by_kernel(self, name: str) -> bool:
        """True if all that reads the value, through views or at once, are kernels of ours."""
        if not self.unseen(name):
            return False
        readers = [node for node in self._all if name in node.inputs]
        return bool(readers) and all(
            self.is_read_by_kernel(node.name)
            if isinstance(node.kind, View)
            else isinstance(node.kind, Concat | Pointwise | Reduce | Scan | Window)
            for node in readers
        )

    def may_move(self, node: Node) -> bool:
        """False when the value depends on when it is computed: something it reads is changed."""
        return node.name not in self._ordered

    def earlier_twin(self, node: Node) -> Node | None:
        """The first node that computes the very same thing, if that is not `node` itself."""
        first = self._firsts[_meaning(node)]
        return None if first.name == node.name else first

    def is_from_anchor(self, name: str) -> bool:
        """True for what a product, a reduction, a scan or a pooling makes, and for what is made of
        it element by element: work on it joins their kernel."""
        return name in self._from_anchors

    @cached_property
    def _from_anchors(self) -> frozenset[str]:
        totals = self._totals
        anchors = {
            node.name for node in self._all if isinstance(node.kind, Contract | Scan | Window)
        }
        on_totals = {
            node.name
            for node in self._all
            if isinstance(node.kind, Pointwise) and not totals.isdisjoint(node.inputs)
        }
        return made_of(anchors | totals | on_totals, self._graph)

    @cached_property
    def _totals(self) -> set[str]:
        """What reductions make, and what is made of nothing else."""
        found: set[str] = set()
        for node in self._all:
            match node.kind:
                case Reduce():
                    found.add(node.name)
                case Project() | Pointwise() if node.inputs and found.issuperset(node.inputs):
                    found.add(node.name)
        return found

    def joins_reduction(self, name: str) -> bool:
        """True if a reduction reads the value, or what is made of it element by element."""
        return name in self._before_reductions

    @cached_property
    def _before_reductions(self) -> set[str]:
        found: set[str] = set()
        for node in reversed(self._all):
            match node.kind:
                case Reduce():
                    found.update(node.inputs)
                case Pointwise() if node.name in found:
                    same = (
                        name for name in node.inputs if _shape(self._nodes[name]) == _shape(node)
                    )
                    found.update(same)
        return found

    def joins_product(self, name: str) -> bool:
        """True if all that reads the value, or what is made of it element by element, is work on a
        product, which it may join."""
        return name in self._beside_products

    @cached_property
    def _beside_products(self) -> set[str]:
        products = {node.name for node in self._all if isinstance(node.kind, Contract)}
        on_products = made_of(products, self._graph)
        users = self._graph.users()
        found: set[str] = set()
        for node in reversed(self._all):
            readers = [self._nodes[name] for name in users[node.name]]
            if (
                readers
                and self.unseen(node.name)
                and node.name not in on_products
                and all(
                    isinstance(reader.kind, Pointwise)
                    and _shape(reader) == _shape(node)
                    and (reader.name in on_products or reader.name in found)
                    for reader in readers
                )
            ):
                found.add(node.name)
        return found

    @cached_property
    def _firsts(self) -> dict[object, Node]:
        """The first node of each meaning; few rules ask."""
        return {_meaning(node): node for node in reversed(self._all)}

    def fresh(self, stem: str) -> str:
        """A name no node has; each call gives another."""
        number = 1
        while f"{stem}_{number}" in self._nodes:
            number += 1
        name = f"{stem}_{number}"
        self._nodes[name] = self._nodes[stem]
        return name


def _shape(node: Node) -> tuple[Dim, ...] | None:
    return node.type.shape if isinstance(node.type, TensorType) else None


def _meaning(node: Node) -> object:
    """Equal for nodes that compute the same thing; kinds without attributes mean their origin.

    As text, in which 1, 1.0 and True differ, and 0.0 and -0.0.
    """
    call = node.origin if isinstance(node.kind, Opaque) else None
    return (repr(node.kind), node.inputs, node.type, repr(call))


def apply(rules: Sequence[Rule], graph: Graph) -> Rewritten:
    """Apply the rules to every node until none applies."""
    applied: list[Applied] = []
    while (step := _first_match(rules, graph)) is not None:
        graph, record = step
        applied.append(record)
    return Rewritten(graph=check(drop_unread(graph)), applied=tuple(applied))


def _first_match(rules: Sequence[Rule], graph: Graph) -> tuple[Graph, Applied] | None:
    around = Surroundings(graph)
    for node in graph.nodes:
        for rule in rules:
            new = rule.match(around, node)
            if new is None:
                continue
            record = Applied(
                rule=rule.name,
                operators=new[-1].operators,
                source=node.source,
                algebraic=rule.algebraic,
            )
            # What is read by nobody any more may not keep a rule from applying to its inputs.
            return drop_unread(substitute(graph, node, new)), record
    return None


def substitute(graph: Graph, old: Node, new: tuple[Node, ...]) -> Graph:
    """`graph` with `new` in place of `old`; readers of `old` read the last of `new`.

    `new` may end in a node that is already in the graph, which then simply takes over.
    """
    present = {node.name for node in graph.nodes}
    fresh = [node for node in new if node.name not in present or node.name == old.name]
    names = {old.name: new[-1].name}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name == old.name:
            nodes.extend(fresh)
        else:
            nodes.append(rename_inputs(node, names))
    return replace(
        graph,
        nodes=tuple(nodes),
        returns=rename(graph.returns, names),
        updates=tuple(
            Update(path=update.path, value=names.get(update.value, update.value))
            for update in graph.updates
        ),
    )


def drop_unread(graph: Graph) -> Graph:
    """Without the nodes that neither the caller nor an effect needs; inputs always stay."""
    needed = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in needed or _has_effect(node):
            needed.update(node.inputs)
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))


def _has_effect(node: Node) -> bool:
    match node.kind:
        case Input():
            return True
        case Opaque(mutates, random):
            return bool(mutates) or random
    return False
