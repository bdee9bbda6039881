"""Steps on channels in groups whose readers have the channels as one dimension.

A norm of groups ends in such a step. Where a pooling follows, the step is done on whole channels:
the pooling computes it on the way.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from kernelwright.ir.expr import Operand, has_coordinates
from kernelwright.ir.graph import (
    Expand,
    Graph,
    Node,
    Pointwise,
    Reshape,
    View,
    ViewMap,
    Window,
    rename_inputs,
)
from kernelwright.ir.types import Dim, TensorType
from kernelwright.rewrite.driver import drop_unread
from kernelwright.rewrite.sizes import ONE, product
from kernelwright.schedule.naming import fresh_name

_READERS = (Window,)
"""What gains by it. Totals over channels do not: of a norm, tanh and logsumexp such a kernel took
3.7 ms for 0.5 GB, where all that is besides the convolution had taken 0.9 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ungrouped:
    """A graph with steps on whole channels; the values are the same."""

    graph: Graph
    small: frozenset[str]
    """Copies with a value for each channel of what groups have one of."""


def without_groups(graph: Graph, fixed: Collection[str]) -> Ungrouped:
    """The graph with such steps on whole channels, but for those in `fixed`."""
    small: set[str] = set()
    whole: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in fixed or not _is_grouped(node) or node.name in graph.results:
            continue
        users = graph.users()
        views = [graph[name] for name in users[node.name]]
        readers = [graph[name] for view in views for name in users[view.name]]
        is_on_the_way = any(isinstance(it.kind, _READERS) or it.name in whole for it in readers)
        is_seen = any(view.name in graph.results for view in views)
        if is_on_the_way and not is_seen and all(_is_merged(view, node) for view in views):
            writer = _Writer(graph, node)
            graph = writer.written(views)
            small |= writer.small
            whole.add(writer.name)
    return Ungrouped(graph=graph, small=frozenset(small))


def _is_grouped(node: Node) -> bool:
    """Whether it can be a step on groups of channels, of places in at least one dimension."""
    return (
        isinstance(node.kind, Pointwise)
        and isinstance(node.type, TensorType)
        and node.type.rank > 3
        and not has_coordinates(node.kind.expr)
    )


def _is_merged(view: Node, node: Node) -> bool:
    """Whether it shows the node with one dimension of channels."""
    is_view = isinstance(view.kind, View) and isinstance(view.kind.map, Reshape)
    return is_view and view.tensor.shape == _merged(node.tensor.shape)


def _merged(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return (shape[0], product(shape[1:3]), *shape[3:])


class _Writer:
    """One step on whole channels, and its operands."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node
        self._taken = {it.name for it in graph.nodes}
        self._made: dict[str, Node] = {}
        self.name = fresh_name(f"{node.name}_whole", self._taken)
        self.small: set[str] = set()

    def written(self, views: list[Node]) -> Graph:
        """The graph with the step in place of the views of it."""
        inputs = tuple(self._whole(name) for name in self._node.inputs)
        whole = replace(
            self._node, name=self.name, type=views[0].type, inputs=inputs, origin=None, part_of=None
        )
        names = {view.name: self.name for view in views}
        nodes: list[Node] = []
        for node in self._graph.nodes:
            if node.name == self._node.name:
                nodes += [*self._made.values(), whole]
            else:
                nodes.append(rename_inputs(node, names))
        return drop_unread(replace(self._graph, nodes=tuple(nodes)))

    def _whole(self, name: str) -> str:
        """An operand with the channels as one dimension."""
        source = self._graph[name]
        rank = self._node.tensor.rank
        if not isinstance(source.type, TensorType) or source.type.rank == 0:
            return name
        shape = (ONE,) * (rank - source.type.rank) + source.type.shape
        if isinstance(source.kind, View) and isinstance(source.kind.map, Reshape):
            before = self._graph[source.inputs[0]]
            if before.tensor.shape == _merged(shape):
                return before.name
        if (shape[1] == ONE) != (shape[2] == ONE):
            name = self._for_each_channel(name, shape)
            shape = self._made[name].tensor.shape
        return self._viewed(f"{name}_whole", name, Reshape(), _merged(shape))

    def _for_each_channel(self, name: str, shape: tuple[Dim, ...]) -> str:
        """A copy with a value for each channel of what groups, or the same ones of all, share."""
        wide = (shape[0], *self._node.tensor.shape[1:3], *shape[3:])
        seen = self._viewed(f"{name}_of_channels", name, Expand(), wide)
        copy = replace(
            self._made[seen],
            name=fresh_name(f"{name}_each", self._taken),
            kind=Pointwise(Operand(0, self._made[seen].tensor.dtype)),
            inputs=(seen,),
            operators=("contiguous",),
        )
        self._made[copy.name] = copy
        self.small.add(copy.name)
        return copy.name

    def _viewed(self, stem: str, source: str, how: ViewMap, shape: tuple[Dim, ...]) -> str:
        seen = self._made[source] if source in self._made else self._graph[source]
        view = Node(
            name=fresh_name(stem, self._taken),
            kind=View(how),
            type=TensorType(seen.tensor.dtype, shape),
            inputs=(source,),
            source=self._node.source,
        )
        self._made[view.name] = view
        return view.name
