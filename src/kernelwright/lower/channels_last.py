"""Convolutions on channels-last operands, and what becomes of their results.

Such a result lies place by place, all channels of one after those of another. What reduces or pools
it is computed in that order, on tensors whose last dimensions the channels are; other steps read it
where it lies and write as PyTorch would.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from kernelwright.ir.editing import drop_unread
from kernelwright.ir.expr import Operand
from kernelwright.ir.graph import Graph, Node, rename_inputs
from kernelwright.ir.kinds import (
    Conv,
    Expand,
    Input,
    Kind,
    Permute,
    Pointwise,
    Project,
    Reduce,
    Reshape,
    Squeeze,
    View,
    ViewMap,
    Window,
)
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.hoisting import Hoisted, hoisted
from kernelwright.lower.lowered import Lowered
from kernelwright.lower.placed import (
    by_place,
    from_last,
    is_dear,
    placed,
    to_last,
    turned_early,
)
from kernelwright.lower.split_reductions import has_stages, in_stages


def with_channels_last(lowered: Lowered) -> Lowered:
    """The graph with such operands for the convolutions that are to have them.

    At other sizes one of these names can be a product: that stays as it is.
    """
    graph = lowered.graph
    calls = {node.name for node in graph.nodes if isinstance(node.kind, Conv)}
    convolutions = calls.intersection(lowered.channels_last)
    if not convolutions:
        return lowered
    writer = _Writer(graph, convolutions)
    return replace(
        lowered,
        graph=writer.written(),
        turning=frozenset(writer.turning),
        small=frozenset(writer.small),
        apart=frozenset(writer.apart),
    )


class _Writer:
    def __init__(self, graph: Graph, convolutions: Collection[str]) -> None:
        self._graph = graph
        self._known = {node.name: node for node in graph.nodes}
        self._convolutions = frozenset(convolutions)
        channels = placed(graph, convolutions)
        self._early = turned_early(graph, self._convolutions, channels)
        self._wanted = by_place(graph, convolutions, channels) | self._early
        self._channels = channels | dict.fromkeys(self._early, 1)
        self._users = graph.users()
        self._results = frozenset(graph.results)
        self._made: dict[str, Node] = {}
        self._taken = {node.name for node in graph.nodes}
        self._placed: dict[str, tuple[str, ...]] = {}
        """The values in the order of memory, one name for each total, by the original's name."""
        self._turned: dict[str, str] = {}
        """Those that convolutions read, once for all of them, likewise."""
        self._first: dict[str, str] = {}
        """Those copied to where PyTorch would have them, likewise."""
        self._seen: dict[tuple[str, tuple[int, ...]], str] = {}
        """Operands as steps in the order of memory see them, likewise, by that order."""
        self._scattered: set[str] = set()
        """Nodes of the original's name and shape whose neighbours lie along the channels."""
        self.turning: set[str] = set()
        self.small: set[str] = set()
        self.apart: set[str] = set()

    def written(self) -> Graph:
        for node in self._graph.nodes:
            if node.name in self._convolutions:
                self._convolve(node)
            elif node.name in self._wanted:
                self._compute(node)
            else:
                self._keep(node)
        # What a step's parts read is not read by the step itself any more.
        return drop_unread(replace(self._graph, nodes=tuple(self._made.values())))

    # --- What is computed in the order of memory ------------------------------------------------

    def _convolve(self, node: Node) -> None:
        name = node.inputs[0]
        source = self._known[name]
        rank = source.tensor.rank
        if name not in self._turned:
            if name in self._placed and self._channels[name] == 1:
                (place,) = self._placed[name]
            else:
                seen = self._permuted(f"{name}_by_place", name, to_last(rank), node)
                place = self._copy(f"{name}_channels_last", seen, node)
            self._turned[name] = self._permuted(f"{name}_turned", place, from_last(rank), node)
        self._add(self._at_planned_sizes(node, self._turned[name]))
        self._scattered.add(node.name)
        order = to_last(node.tensor.rank)
        self._placed[node.name] = (self._permuted(f"{node.name}_by_place", node.name, order, node),)

    def _at_planned_sizes(self, node: Node, operand: str) -> Node:
        """The convolution on the operand, and on the user's at sizes other than today's."""
        source = self._known[node.inputs[0]]
        # What is only an argument of a kernel is not written for this; the operand can be turned.
        given = source.name if isinstance(source.kind, Input) else operand
        sizes = tuple(dim.hint for dim in source.tensor.shape)
        assert isinstance(node.kind, Conv)
        turned = rename_inputs(node, {source.name: operand})
        return replace(
            turned,
            kind=replace(node.kind, channels_last=sizes),
            inputs=(*turned.inputs, given),
        )

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
                self._placed[node.name] = self._reduce(node, start, places)
            case Window() as window:
                self._placed[node.name] = (self._pool(node, window),)
            case View(kind):
                self._placed[node.name] = (self._view(node, kind),)
            case Pointwise():
                rest = self._without_parts(node).rest
                assert isinstance(rest.kind, Pointwise)
                inputs = tuple(self._operand(name, node) for name in rest.inputs)
                self._placed[node.name] = (self._like(node, rest.kind, inputs),)
                if node.name in self._early:
                    self.turning.update(self._placed[node.name])
                elif self._is_read_outside(node) and is_dear(node, self._known):
                    self.apart.update(self._placed[node.name])
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
        if node.name in self._results:
            seen = self._permuted(f"{node.name}_turned", place, order, node)
            self.turning.add(node.name)
            self._add(replace(_copy_of(self._made[seen], node), name=node.name))
        else:
            kind = View(Permute(order))
            self._add(replace(node, kind=kind, inputs=(place,), origin=None, part_of=None))
            self._scattered.add(node.name)

    def _operand(self, name: str, reader: Node) -> str:
        """An input as a reader of this rank sees it in the order of memory."""
        if name in self._placed and self._made_rank(name) == reader.tensor.rank:
            return self._placed[name][0]
        kind = self._known[name].type
        if not isinstance(kind, TensorType) or kind.rank == 0:
            return name
        rank = reader.tensor.rank
        order = to_last(rank, self._channels[reader.name])
        if (name, order) not in self._seen:
            source = name
            if kind.rank < rank:
                shape = (ONE,) * (rank - kind.rank) + kind.shape
                source = self._viewed(f"{name}_as_{rank}d", name, Reshape(), shape, reader)
            self._seen[name, order] = self._permuted(f"{name}_by_place", source, order, reader)
        return self._seen[name, order]

    def _made_rank(self, name: str) -> int:
        return self._made[self._placed[name][0]].tensor.rank

    def _view(self, node: Node, kind: ViewMap) -> str:
        (place,) = self._placed[node.inputs[0]]
        source = self._known[node.inputs[0]]
        order = to_last(node.tensor.rank, self._channels[node.name])
        if isinstance(kind, Squeeze):
            before = to_last(source.tensor.rank, self._channels[source.name])
            kind = Squeeze(tuple(sorted(before.index(dim) for dim in kind.dims)))
        shape = tuple(node.tensor.shape[dim] for dim in order)
        return self._viewed(f"{node.name}_by_place", place, kind, shape, node)

    def _like(self, node: Node, kind: Pointwise | Window, inputs: tuple[str, ...]) -> str:
        """A node that computes the original's value in the order of memory."""
        order = to_last(node.tensor.rank, self._channels[node.name])
        shape = tuple(node.tensor.shape[dim] for dim in order)
        return self._step(node, f"{node.name}_by_place", kind, shape, inputs)

    # --- Poolings -------------------------------------------------------------------------------

    def _pool(self, node: Node, window: Window) -> str:
        """In two dimensions and the channels; along a third what is left of the planes."""
        (place,) = self._placed[node.inputs[0]]
        if len(window.size) == 2:
            return self._like(node, _with_single(window), (place,))
        deep, across = _depth_and_plane(window)
        batch, channels, depth, *sides = node.tensor.shape
        before = self._made[place].tensor.shape[1]
        shape = (batch, before, *sides, channels)
        planes = self._step(node, f"{node.name}_planes", _with_single(across), shape, (place,))
        line = product((*sides, channels))
        lines = self._viewed(f"{node.name}_lines", planes, Reshape(), (batch, before, line), node)
        flat = (batch, depth, line)
        pooled = self._step(node, f"{node.name}_pooled", _with_single(deep), flat, (lines,))
        shape = (batch, depth, *sides, channels)
        return self._viewed(f"{node.name}_by_place", pooled, Reshape(), shape, node)

    # --- Reductions -----------------------------------------------------------------------------

    def _reduce(self, node: Node, start: str, dims: tuple[int, ...]) -> tuple[str, ...]:
        """Along one dimension, and along others what is left of that: few rows of elements that lie
        apart are too few for the card."""
        kind = self._made[start].tensor
        places = [dim for dim in dims if dim < kind.rank - self._channels[node.inputs[0]]]
        is_run = dims == tuple(range(kind.rank - len(dims), kind.rank))
        if is_run or len(dims) == 1 or not places or not has_stages(node):
            stages = [dims]
        else:
            # Along a line of places, then along the others, and then along channels.
            groups = [(places[-1],), tuple(places[:-1]), tuple(d for d in dims if d not in places)]
            stages = [stage for stage in groups if stage]
        stem = f"{node.name}_by_place"
        found = in_stages(node, self._made[start], stages, self._taken, stem)
        for made in found.nodes:
            self._add(made)
        return tuple(total.name for total in found.totals)

    # --- What stays in PyTorch's order ----------------------------------------------------------

    def _keep(self, node: Node) -> None:
        if not self._scattered.isdisjoint(node.inputs):
            if self._reads_scattered(node):
                self._read_scattered(node)
                return
            copies = {name: self._first_of(name) for name in node.inputs if name in self._scattered}
            node = rename_inputs(node, copies)
        self._add(node)

    def _reads_scattered(self, node: Node) -> bool:
        """Whether the node does with any strides: steps, and groups of channels that they read."""
        if isinstance(node.kind, Pointwise):
            return True
        is_group = isinstance(node.kind, View) and isinstance(node.kind.map, Reshape)
        return (
            is_group
            and node.name in self._channels
            and node.name not in self._results
            and all(self._reads_scattered(self._known[name]) for name in self._users[node.name])
        )

    def _read_scattered(self, node: Node) -> None:
        if not isinstance(node.kind, Pointwise):
            self._add(node)
            self._scattered.add(node.name)
            return
        if node.name in self._channels:
            found = self._without_parts(node)
            for part in found.parts:
                if part.name in self._placed:
                    order = from_last(part.tensor.rank, self._channels[node.name])
                    self._show(part, self._placed[part.name][0], order)
            node = found.rest
        self.turning.add(node.name)
        names = {name: self._for_each_channel(name, node) for name in node.inputs}
        self._add(rename_inputs(node, names))

    def _without_parts(self, node: Node) -> Hoisted:
        """The step, which reads what few elements decide, and the steps that decide it: they are
        computed with the reductions that they depend on."""
        types = {name: self._known[name].type for name in node.inputs}
        found = hoisted(node, types, fresh_name(f"{node.name}_part", self._taken))
        channels = self._channels[node.name]
        for part in found.parts:
            # What is turned early reads totals of values in PyTorch's order, and so do its parts.
            if part.tensor.rank < node.tensor.rank or node.name in self._early:
                self._known[self._add(part)] = part
                continue
            shape = tuple(part.tensor.shape[dim] for dim in to_last(part.tensor.rank, channels))
            inputs = tuple(self._operand(name, node) for name in part.inputs)
            stem, dtype = f"{part.name}_by_place", part.tensor.dtype
            self._placed[part.name] = (self._step(node, stem, part.kind, shape, inputs, dtype),)
        return found

    def _for_each_channel(self, name: str, reader: Node) -> str:
        """An input with one value for several channels, or for the same one of all groups, with its
        own for each: then the channels are one dimension for the kernel that reads it."""
        kind = self._made[name].type
        if self._channels.get(reader.name) != 2 or not isinstance(kind, TensorType):
            return name
        lacking = reader.tensor.rank - kind.rank
        own = [kind.shape[dim - lacking] for dim in (1, 2) if dim >= lacking]
        if len(own) < 2 or (own[0] == ONE) == (own[1] == ONE):
            return name
        shape = list(kind.shape)
        shape[1 - lacking : 3 - lacking] = reader.tensor.shape[1:3]
        wide = self._viewed(f"{name}_of_channels", name, Expand(), tuple(shape), reader)
        copy = self._copy(f"{name}_each", wide, reader)
        self.small.add(copy)
        return copy

    def _first_of(self, name: str) -> str:
        """The value as PyTorch would have it in memory."""
        if name not in self._first:
            node = self._made[name]
            self._first[name] = self._copy(f"{name}_channels_first", name, node)
        return self._first[name]

    # --- Nodes ----------------------------------------------------------------------------------

    def _permuted(self, stem: str, source: str, order: tuple[int, ...], near: Node) -> str:
        kind = self._type_of(source)
        shape = tuple(kind.shape[dim] for dim in order)
        return self._viewed(stem, source, Permute(order), shape, near)

    def _viewed(
        self, stem: str, source: str, how: ViewMap, shape: Sequence[Dim], near: Node
    ) -> str:
        kind = TensorType(self._type_of(source).dtype, tuple(shape))
        name = fresh_name(stem, self._taken)
        return self._add(
            Node(name=name, kind=View(how), type=kind, inputs=(source,), source=near.source)
        )

    def _copy(self, stem: str, source: str, near: Node) -> str:
        copy = _copy_of(self._made[source], near)
        name = fresh_name(stem, self._taken)
        self.turning.add(name)
        return self._add(replace(copy, name=name, inputs=(source,)))

    def _step(
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
            name=fresh_name(stem, self._taken),
            kind=kind,
            type=TensorType(dtype or node.tensor.dtype, tuple(shape)),
            inputs=inputs,
            origin=None,
            part_of=None,
        )
        return self._add(made)

    def _type_of(self, name: str) -> TensorType:
        return self._made[name].tensor

    def _add(self, node: Node) -> str:
        self._made[node.name] = node
        return node.name


def _copy_of(source: Node, near: Node) -> Node:
    return Node(
        name="",
        kind=Pointwise(Operand(0, source.tensor.dtype)),
        type=source.type,
        inputs=(source.name,),
        operators=("contiguous",),
        source=near.source,
    )


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
