"""Steps on channels as one dimension whose readers have them in groups, and the other way round.

A norm of groups ends in such a step. Where a pooling follows, the step is done on whole channels:
the pooling computes it on the way.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from kernelwright.ir.editing import drop_unread
from kernelwright.ir.expr import Operand, has_coordinates
from kernelwright.ir.graph import (
    Conv,
    Expand,
    Graph,
    Input,
    Node,
    Opaque,
    Pointwise,
    Reduce,
    Reshape,
    View,
    ViewMap,
    Window,
    rename_inputs,
)
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, TensorType
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


# --- The other way -------------------------------------------------------------------------------


def with_groups(graph: Graph, fixed: Collection[str]) -> Graph:
    """The graph with steps on what a call returns, such as its bias, on groups where all that read
    them do so, but for those in `fixed`: the readers compute them on the way."""
    for node in reversed(graph.nodes):
        if node.name in fixed or not _is_on_calls(node, graph):
            continue
        users = graph.users()
        views = [graph[name] for name in users[node.name]]
        readers = [graph[name] for view in views for name in users[view.name]]
        names = {node.name, *(view.name for view in views)}
        if (
            len({view.type for view in views}) == 1
            and all(_splits(view, node) for view in views)
            and all(isinstance(reader.kind, Pointwise | Reduce) for reader in readers)
            and names.isdisjoint(graph.results)
        ):
            graph = _grouped(graph, node, views) or graph
    return graph


def _is_on_calls(node: Node, graph: Graph) -> bool:
    """Whether it is a step that reads nothing of its size but what is in memory anyway."""
    if not isinstance(node.kind, Pointwise) or has_coordinates(node.kind.expr):
        return False
    wide = [graph[name] for name in node.inputs if graph[name].type == node.type]
    return bool(wide) and all(isinstance(it.kind, Opaque | Conv | Input) for it in wide)


def _splits(view: Node, node: Node) -> bool:
    """Whether it shows the node with its channels in groups."""
    is_view = isinstance(view.kind, View) and isinstance(view.kind.map, Reshape)
    return is_view and view.tensor.rank > 3 and _merged(view.tensor.shape) == node.tensor.shape


def _grouped(graph: Graph, node: Node, views: list[Node]) -> Graph | None:
    """The graph with this step on groups in place of the views of it, if its operands have some."""
    whole, parts = node.tensor.shape, views[0].tensor.shape
    taken = {it.name for it in graph.nodes}
    at = min(graph.nodes.index(view) for view in views)
    made: list[Node] = []
    inputs: list[str] = []
    for name in node.inputs:
        kind = graph[name].type
        if not isinstance(kind, TensorType) or kind.rank < len(whole) - 1:
            inputs.append(name)  # What has no channels is the same for all.
            continue
        shape = (ONE,) * (len(whole) - kind.rank) + kind.shape
        if shape[1] not in (ONE, whole[1]):
            return None
        own = parts[1:3] if shape[1] == whole[1] else (ONE, ONE)
        view = Node(
            name=f"{name}_grouped",
            kind=View(Reshape()),
            type=TensorType(kind.dtype, (shape[0], *own, *shape[2:])),
            inputs=(name,),
            source=node.source,
        )
        twin = next((it for it in graph.nodes[:at] if _same_view(it, view)), None)
        if twin is None:
            made.append(replace(view, name=fresh_name(view.name, taken)))
        inputs.append(made[-1].name if twin is None else twin.name)
    name = fresh_name(f"{node.name}_grouped", taken)
    step = replace(
        node, name=name, type=views[0].type, inputs=tuple(inputs), origin=None, part_of=None
    )
    names = {view.name: name for view in views}
    nodes = [rename_inputs(it, names) for it in graph.nodes]
    return drop_unread(replace(graph, nodes=(*nodes[:at], *made, step, *nodes[at:])))


def _same_view(one: Node, other: Node) -> bool:
    return (one.kind, one.type, one.inputs) == (other.kind, other.type, other.inputs)
