"""What is computed in the order of memory after a convolution on channels-last operands.

Such a value's last dimensions are the channels.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from kernelwright.ir.expr import Call, Operand
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Concat,
    Contract,
    Conv,
    Kind,
    Patches,
    Permute,
    Pointwise,
    Pooling,
    Reshape,
    Squeeze,
    ViewMap,
    Window,
)
from kernelwright.ir.library_calls import call_of_concat
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.hoisting import Hoisted, hoisted
from kernelwright.lower.layouts import relayout, view_of
from kernelwright.lower.placed import to_last
from kernelwright.lower.split_reductions import has_stages, in_stages


class Nodes:
    """Nodes of the new graph, under names that nothing else has."""

    def __init__(self, graph: Graph) -> None:
        self.made: dict[str, Node] = {}
        self.taken = {node.name for node in graph.nodes}

    def permuted(self, stem: str, source: str, order: tuple[int, ...], near: Node) -> str:
        """A view with the dimensions in another order; its name."""
        kind = self.type_of(source)
        shape = tuple(kind.shape[dim] for dim in order)
        return self.viewed(stem, source, Permute(order), shape, near)

    def viewed(self, stem: str, source: str, how: ViewMap, shape: Sequence[Dim], near: Node) -> str:
        """A view of a node; its name."""
        name = fresh_name(stem, self.taken)
        return self.add(view_of(name, self.made[source], how, shape, near))

    def copy(self, stem: str, source: str, near: Node) -> str:
        """The value of a node in memory of its own; its name."""
        return self.add(relayout(fresh_name(stem, self.taken), self.made[source], near))

    def step(
        self,
        node: Node,
        stem: str,
        kind: Kind,
        shape: Sequence[Dim],
        inputs: tuple[str, ...],
        dtype: DType | None = None,
    ) -> str:
        """A node that does part of what this one did."""
        made = replace(
            node,
            name=fresh_name(stem, self.taken),
            kind=kind,
            type=TensorType(dtype or node.tensor.dtype, tuple(shape)),
            inputs=inputs,
            origin=None,
            part_of=None,
        )
        return self.add(made)

    def type_of(self, name: str) -> TensorType:
        """What a node gives, which is one tensor."""
        return self.made[name].tensor

    def keep_unanchored(self, *names: str) -> None:
        """Only kernels without an anchor compute these nodes."""
        self.made |= {name: replace(self.made[name], unanchored=True) for name in names}

    def add(self, node: Node) -> str:
        """The name of a node, which is in the graph from now on."""
        self.made[node.name] = node
        return node.name


class MemoryOrder:
    """Values in the order of memory, of nodes of the old graph."""

    def __init__(
        self,
        known: dict[str, Node],
        channels: Mapping[str, int],
        early: Set[str],
        nodes: Nodes,
    ) -> None:
        self._known = known
        """Nodes of the old graph, and parts of them that are computed by themselves."""
        self._channels = channels
        self._early = early
        self._nodes = nodes
        self.places: dict[str, tuple[str, ...]] = {}
        """Their names, one for each total, by the original's name."""
        self._seen: dict[tuple[str, tuple[int, ...]], str] = {}
        """Operands as steps in the order of memory see them, likewise, by that order."""
        self._rows_of_filters: dict[str, str] = {}

    def operand(self, name: str, reader: Node) -> str:
        """An input as a reader of this rank sees it in the order of memory."""
        if name in self.places and self._made_rank(name) == reader.tensor.rank:
            return self.places[name][0]
        kind = self._known[name].type
        if not isinstance(kind, TensorType) or kind.rank == 0:
            return name
        rank = reader.tensor.rank
        order = to_last(rank, self._channels[reader.name])
        if (name, order) not in self._seen:
            source = name
            if kind.rank < rank:
                shape = (ONE,) * (rank - kind.rank) + kind.shape
                source = self._nodes.viewed(f"{name}_as_{rank}d", name, Reshape(), shape, reader)
            self._seen[name, order] = self._nodes.permuted(
                f"{name}_by_place", source, order, reader
            )
        return self._seen[name, order]

    def _made_rank(self, name: str) -> int:
        return self._nodes.made[self.places[name][0]].tensor.rank

    def view(self, node: Node, kind: ViewMap) -> str:
        """The view of a value in the order of memory."""
        (place,) = self.places[node.inputs[0]]
        source = self._known[node.inputs[0]]
        order = to_last(node.tensor.rank, self._channels[node.name])
        if isinstance(kind, Squeeze):
            before = to_last(source.tensor.rank, self._channels[source.name])
            kind = Squeeze(tuple(sorted(before.index(dim) for dim in kind.dims)))
        shape = tuple(node.tensor.shape[dim] for dim in order)
        return self._nodes.viewed(f"{node.name}_by_place", place, kind, shape, node)

    def like(self, node: Node, kind: Pointwise | Window | Concat, inputs: tuple[str, ...]) -> str:
        """A node that computes the original's value in the order of memory."""
        order = to_last(node.tensor.rank, self._channels[node.name])
        shape = tuple(node.tensor.shape[dim] for dim in order)
        return self._nodes.step(node, f"{node.name}_by_place", kind, shape, inputs)

    def convolve(self, node: Node, images: str) -> str:
        """The convolution as a product of patches; of pixels where each place has its own."""
        conv = node.kind
        assert isinstance(conv, Conv) and conv.by_place is not None
        weight = self._known[node.inputs[1]].tensor
        out_channels, _, *taps = weight.shape
        filters = self._filters(node.inputs[1], node)
        patches = Patches(
            taps=(taps[0].hint, taps[1].hint),
            stride=_pair(conv.stride),
            padding=_pair(conv.padding),
            dilation=_pair(conv.dilation),
            rounds_from=conv.by_place.rounds_from,
        )
        kind = Contract("nhwk", "ok", "nhwo", patches)
        batch, _, *sides = node.tensor.shape
        shape = (batch, *sides, out_channels)
        made = self._nodes.step(node, f"{node.name}_by_place", kind, shape, (images, filters))
        if len(node.inputs) < 3:
            return made
        dtype = node.tensor.dtype
        added = Pointwise(Call("add", (Operand(0, dtype), Operand(1, dtype)), dtype))
        inputs = (made, node.inputs[2])
        return self._nodes.step(node, f"{node.name}_by_place", added, shape, inputs)

    def _filters(self, name: str, reader: Node) -> str:
        """Filters as rows, all channels of each tap side by side: once for all readers."""
        if name not in self._rows_of_filters:
            kind = self._known[name].tensor
            taps, channels = product(kind.shape[2:]), kind.shape[1]
            turned = name
            if taps != ONE and channels != ONE:
                seen = self._nodes.permuted(f"{name}_by_tap", name, (0, 2, 3, 1), reader)
                turned = self._nodes.copy(f"{name}_taps_first", seen, reader)
            shape = (kind.shape[0], product((taps, channels)))
            self._rows_of_filters[name] = self._nodes.viewed(
                f"{name}_rows", turned, Reshape(), shape, reader
            )
        return self._rows_of_filters[name]

    def join(self, node: Node) -> str:
        """The channels of several values one after the other."""
        inputs = tuple(self.operand(name, node) for name in node.inputs)
        dim = node.tensor.rank - 1
        name = self.like(node, Concat(dim), inputs)
        made = self._nodes.made[name]
        return self._nodes.add(replace(made, origin=call_of_concat(inputs, dim)))

    def pool(self, node: Node, window: Window) -> str:
        """The pooling in two dimensions and the channels; along a third of what is left."""
        (place,) = self.places[node.inputs[0]]
        if window.op is Pooling.DOT:
            taps = self._nodes.permuted(f"{node.name}_taps", node.inputs[1], (1, 2, 0), node)
            by_channel = replace(_with_single(window), op=Pooling.DOT_LAST)
            return self.like(node, by_channel, (place, taps))
        if len(window.size) == 2:
            return self.like(node, _with_single(window), (place,))
        deep, across = _depth_and_plane(window)
        batch, channels, depth, *sides = node.tensor.shape
        before = self._nodes.made[place].tensor.shape[1]
        shape = (batch, before, *sides, channels)
        planes = self._nodes.step(
            node, f"{node.name}_planes", _with_single(across), shape, (place,)
        )
        line = product((*sides, channels))
        lines = self._nodes.viewed(
            f"{node.name}_lines", planes, Reshape(), (batch, before, line), node
        )
        flat = (batch, depth, line)
        pooled = self._nodes.step(node, f"{node.name}_pooled", _with_single(deep), flat, (lines,))
        shape = (batch, depth, *sides, channels)
        return self._nodes.viewed(f"{node.name}_by_place", pooled, Reshape(), shape, node)

    def reduce(self, node: Node, start: str, dims: tuple[int, ...]) -> tuple[str, ...]:
        """Totals along places that are a run in memory, then along others, then along channels."""
        kind = self._nodes.made[start].tensor
        places = tuple(d for d in dims if d < kind.rank - self._channels[node.inputs[0]])
        is_run = dims == tuple(range(kind.rank - len(dims), kind.rank))
        if is_run or not places or not has_stages(node):
            stages = [dims]
        else:
            apart = [
                at for at, dim in enumerate(places) if places[-1] - dim != len(places) - 1 - at
            ]
            first = apart[-1] + 1 if apart else 0
            groups = (places[first:], places[:first], dims[len(places) :])
            stages = [stage for stage in groups if stage]
        stem = f"{node.name}_by_place"
        found = in_stages(node, self._nodes.made[start], stages, self._nodes.taken, stem)
        for made in found.nodes:
            self._nodes.add(made)
        return tuple(total.name for total in found.totals)

    def without_parts(self, node: Node) -> Hoisted:
        """The step, which reads what few elements decide, and the steps that decide it: they are
        computed with the reductions that they depend on. What depends on none stays in the step."""
        types = {name: self._known[name].type for name in node.inputs}
        found = hoisted(node, types, fresh_name(f"{node.name}_part", self._nodes.taken))
        read = {name for part in found.parts for name in part.inputs}
        if node.name not in self._early and read.isdisjoint(self.places):
            # Of parameters alone: no kernel of another value makes them, and a launch takes longer.
            return Hoisted(parts=(), rest=node)
        channels = self._channels[node.name]
        for part in found.parts:
            # What is turned early reads totals of values in PyTorch's order, and so do its parts.
            if part.tensor.rank < node.tensor.rank or node.name in self._early:
                self._known[self._nodes.add(part)] = part
                continue
            shape = tuple(part.tensor.shape[dim] for dim in to_last(part.tensor.rank, channels))
            inputs = tuple(self.operand(name, node) for name in part.inputs)
            stem, dtype = f"{part.name}_by_place", part.tensor.dtype
            self.places[part.name] = (
                self._nodes.step(node, stem, part.kind, shape, inputs, dtype),
            )
        return found


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    down, across = sizes
    return down, across


def _with_single(window: Window) -> Window:
    """The window with one more dimension, in which it has one element."""
    return Window(
        op=window.op,
        size=(*window.size, 1),
        stride=(*window.stride, 1),
        padding=(*window.padding, 0),
        dilation=(*window.dilation, 1),
    )


def _depth_and_plane(window: Window) -> tuple[Window, Window]:
    """A window in three dimensions as one in the first and one in the others."""
    deep, across = (
        Window(
            op=window.op,
            size=window.size[part],
            stride=window.stride[part],
            padding=window.padding[part],
            dilation=window.dilation[part],
        )
        for part in (slice(0, 1), slice(1, 3))
    )
    return deep, across
