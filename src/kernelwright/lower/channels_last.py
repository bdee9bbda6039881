"""Convolutions on channels-last operands, and what becomes of their results.

Such a result lies place by place, all channels of one after those of another. What reduces or pools
it is computed in that order, on tensors whose last dimensions the channels are; other steps read it
where it lies and write as PyTorch would.
"""

from collections.abc import Collection
from dataclasses import replace

from kernelwright.ir.editing import drop_unread
from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import (
    Concat,
    Expand,
    Input,
    Permute,
    Pointwise,
    Project,
    Reduce,
    Reshape,
    View,
    Window,
)
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Layout, TensorType
from kernelwright.lower.layouts import relayout
from kernelwright.lower.memory_format import is_on_channels_last
from kernelwright.lower.memory_order import MemoryOrder, Nodes
from kernelwright.lower.placed import (
    by_place,
    from_last,
    is_by_place,
    is_dear,
    joined_by_place,
    placed,
    to_last,
    turned_early,
)
from kernelwright.lower.transposed import TransposedValues


def with_channels_last(graph: Graph) -> Graph:
    """The graph with such operands for the convolutions that are to have them."""
    convolutions = {
        node.name for node in graph.nodes if is_on_channels_last(node) or is_by_place(node)
    }
    return _Writer(graph, convolutions).written() if convolutions else graph


class _Writer:
    def __init__(self, graph: Graph, convolutions: Collection[str]) -> None:
        self._graph = graph
        self._known = {node.name: node for node in graph.nodes}
        self._convolutions = frozenset(convolutions)
        channels = placed(graph, convolutions)
        joined = joined_by_place(graph, self._convolutions, channels)
        if joined:
            channels = placed(graph, convolutions, joined)
        self._early = turned_early(graph, self._convolutions, channels, joined)
        self._wanted = by_place(graph, convolutions, channels) | self._early
        self._channels = channels | dict.fromkeys(self._early, 1)
        self._users = graph.users()
        self._results = frozenset(graph.results)
        self._nodes = Nodes(graph)
        self._order = MemoryOrder(self._known, self._channels, self._early, self._nodes)
        self._placed = self._order.places
        self._copied: dict[str, str] = {}
        """Values in that order that were not computed so, by the original's name."""
        self._turned: dict[str, str] = {}
        """Values that convolutions read, once for all of them, by the original's name."""
        self._transposed = TransposedValues(self._nodes)

    def written(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._convolutions:
                self._convolve(node)
            elif node.name in self._wanted:
                self._compute(node)
            else:
                self._keep(node)
        # What a step's parts read is not read by the step itself any more.
        return drop_unread(replace(self._graph, nodes=tuple(self._nodes.made.values())))

    # --- What is computed in the order of memory ------------------------------------------------

    def _convolve(self, node: Node) -> None:
        name, rank = node.inputs[0], node.tensor.rank
        place = self._by_place(name, node)
        if is_by_place(node):
            made = self._order.convolve(node, place)
            self._placed[node.name] = (made,)
            if node.name in self._results or self._is_read_outside(node):
                self._show(node, made, from_last(rank))
            return
        if name not in self._turned:
            self._turned[name] = self._nodes.permuted(
                f"{name}_turned", place, from_last(rank), node
            )
        self._nodes.add(self._on_operand(node, self._turned[name]))
        self._transposed.add(node.name, Layout.channels_last(rank))
        self._placed[node.name] = (
            self._nodes.permuted(f"{node.name}_by_place", node.name, to_last(rank), node),
        )

    def _by_place(self, name: str, reader: Node) -> str:
        """What a convolution reads, in the order of memory; a copy where it lies otherwise."""
        if name in self._placed and self._channels[name] == 1:
            (place,) = self._placed[name]
            return place
        if name not in self._copied:
            kind = self._known[name].tensor
            seen = self._nodes.permuted(f"{name}_by_place", name, to_last(kind.rank), reader)
            lies_so = kind.layout == Layout.channels_last(kind.rank)
            copied = seen if lies_so else self._nodes.copy(f"{name}_channels_last", seen, reader)
            self._copied[name] = copied
        return self._copied[name]

    def _on_operand(self, node: Node, operand: str) -> Node:
        """The convolution on the operand, and on the user's at sizes other than today's."""
        source = self._known[node.inputs[0]]
        turned = rename_inputs(node, {source.name: operand})
        # What is only an argument of a kernel is not written for this; the operand can be turned.
        given = source.name if isinstance(source.kind, Input) else operand
        return replace(turned, inputs=(*turned.inputs[:-1], given))

    def _compute(self, node: Node) -> None:
        channels = self._channels[node.name]
        match node.kind:
            case Project(index):
                self._placed[node.name] = (self._placed[node.inputs[0]][index],)
            case Reduce(dims=dims):
                source = self._known[node.inputs[0]].tensor
                order = to_last(source.rank, self._channels[node.inputs[0]])
                places = tuple(sorted(order.index(dim) for dim in dims))
                start = self._placed[node.inputs[0]][0]
                self._placed[node.name] = self._order.reduce(node, start, places)
            case Window() as window:
                self._placed[node.name] = (self._order.pool(node, window),)
            case Concat():
                self._placed[node.name] = (self._order.join(node),)
            case View(kind):
                self._placed[node.name] = (self._order.view(node, kind),)
            case Pointwise():
                rest = self._order.without_parts(node).rest
                assert isinstance(rest.kind, Pointwise)
                inputs = tuple(self._order.operand(name, node) for name in rest.inputs)
                self._placed[node.name] = (self._order.like(node, rest.kind, inputs),)
                is_written = self._is_read_outside(node) and is_dear(node, self._known)
                if node.name in self._early or is_written:
                    self._nodes.keep_unanchored(*self._placed[node.name])
        if isinstance(node.type, TensorType) and (
            node.name in self._results or self._is_read_outside(node)
        ):
            order = from_last(node.tensor.rank, channels)
            self._show(node, self._placed[node.name][0], order)

    def _is_read_outside(self, node: Node) -> bool:
        """Whether what stays in PyTorch's order reads it."""
        return not self._wanted.issuperset(self._users[node.name])

    def _show(self, node: Node, place: str, order: tuple[int, ...]) -> None:
        """The value under its own name."""
        is_same = _moves_ones(self._nodes.type_of(place), order)
        if node.name in self._results and not is_same:
            seen = self._nodes.permuted(f"{node.name}_turned", place, order, node)
            self._nodes.add(relayout(node.name, self._nodes.made[seen], node))
            return
        kind = View(Reshape() if is_same else Permute(order))
        self._nodes.add(replace(node, kind=kind, inputs=(place,), origin=None, part_of=None))
        layout = Layout(tuple(map(order.index, range(len(order)))))
        self._transposed.add(node.name, layout, lies_first=is_same)

    # --- What stays in PyTorch's order ----------------------------------------------------------

    def _keep(self, node: Node) -> None:
        own = [name for name in node.inputs if name in self._transposed]
        if own and self._reads_transposed(node):
            self._read_transposed(node)
            return
        if own and node.name not in self._results and self._transposed.has_view(node):
            return
        firsts = {name: self._transposed.first_of(name) for name in own}
        self._nodes.add(rename_inputs(node, firsts))

    def _reads_transposed(self, node: Node) -> bool:
        """Whether the node does with any strides: steps, and groups of channels that they read."""
        if isinstance(node.kind, Pointwise):
            return True
        is_group = isinstance(node.kind, View) and isinstance(node.kind.map, Reshape)
        return (
            is_group
            and node.name in self._channels
            and node.name not in self._results
            and all(self._reads_transposed(self._known[name]) for name in self._users[node.name])
        )

    def _read_transposed(self, node: Node) -> None:
        if not isinstance(node.kind, Pointwise):
            self._nodes.add(node)
            self._transposed.add(node.name, None)
            return
        if node.name in self._channels:
            found = self._order.without_parts(node)
            for part in found.parts:
                if part.name in self._placed:
                    order = from_last(part.tensor.rank, self._channels[node.name])
                    self._show(part, self._placed[part.name][0], order)
            node = found.rest
        names = {name: self._for_each_channel(name, node) for name in node.inputs}
        self._nodes.add(replace(rename_inputs(node, names), unanchored=True))

    def _for_each_channel(self, name: str, reader: Node) -> str:
        """An input with one value for several channels, or for the same one of all groups, with its
        own for each: then the channels are one dimension for the kernel that reads it."""
        kind = self._nodes.made[name].type
        if self._channels.get(reader.name) != 2 or not isinstance(kind, TensorType):
            return name
        lacking = reader.tensor.rank - kind.rank
        own = [kind.shape[dim - lacking] for dim in (1, 2) if dim >= lacking]
        if len(own) < 2 or (own[0] == ONE) == (own[1] == ONE):
            return name
        shape = list(kind.shape)
        shape[1 - lacking : 3 - lacking] = reader.tensor.shape[1:3]
        wide = self._nodes.viewed(f"{name}_of_channels", name, Expand(), tuple(shape), reader)
        return self._nodes.copy(f"{name}_each", wide, reader)


def _moves_ones(kind: TensorType, order: tuple[int, ...]) -> bool:
    """Whether dimensions in another order leave every element where it is."""
    long = [dim for dim in order if kind.shape[dim] != ONE]
    return long == sorted(long)
