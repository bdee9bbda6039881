"""Steps on channels as one dimension whose readers have them in groups, and the other way round.

A norm of groups ends in such a step. Where a pooling follows, the step is done on whole channels:
the pooling computes it on the way.
"""

from dataclasses import replace

from kernelwright.ir.editing import Editor
from kernelwright.ir.expr import has_coordinates
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Conv,
    Expand,
    Input,
    Opaque,
    Pointwise,
    Reduce,
    Reshape,
    View,
    ViewMap,
    Window,
)
from kernelwright.ir.sizes import ONE, product
from kernelwright.ir.types import Dim, TensorType
from kernelwright.lower.layouts import relayout, view_of

_READERS = (Window,)
"""What gains by it. Totals over channels do not: of a norm, tanh and logsumexp such a kernel took
3.7 ms for 0.5 GB, where all that is besides the convolution had taken 0.9 ms."""


def without_groups(graph: Graph) -> Graph:
    """The graph with such steps on whole channels; the values are the same."""
    editor = Editor(graph)
    whole: set[str] = set()
    for node in reversed(graph.nodes):
        if not _is_grouped(node) or editor.is_shown(node.name):
            continue
        views = _readers(editor, node)
        readers = [it for view in views for it in _readers(editor, view)]
        is_on_the_way = any(isinstance(it.kind, _READERS) or it.name in whole for it in readers)
        is_seen = any(editor.is_shown(view.name) for view in views)
        if is_on_the_way and not is_seen and all(_is_merged(view, node) for view in views):
            writer = _Writer(editor, node)
            writer.write(views)
            whole.add(writer.name)
    return editor.graph()


def _readers(editor: Editor, node: Node) -> list[Node]:
    """The nodes that read a value, in the order of the graph."""
    return [editor.node(name) for name in editor.ordered(editor.readers(node.name))]


def _is_grouped(node: Node) -> bool:
    """Whether it can be a step on groups of channels, of places in at least one dimension."""
    return (
        isinstance(node.kind, Pointwise)
        and not node.unanchored
        and node.tensor.rank > 3
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

    def __init__(self, editor: Editor, node: Node) -> None:
        self._editor = editor
        self._node = node
        self._made: dict[str, Node] = {}
        self.name = editor.named(f"{node.name}_whole", ())

    def write(self, views: list[Node]) -> None:
        """Put the step in place of the views of it."""
        inputs = tuple(self._whole(name) for name in self._node.inputs)
        whole = replace(
            self._node, name=self.name, type=views[0].type, inputs=inputs, origin=None, part_of=None
        )
        self._editor.replace(self._node, (*self._made.values(), whole))
        for view in views:
            self._editor.replace(view, (whole,))
        self._editor.drop_unread()

    def _fresh(self, stem: str) -> str:
        return self._editor.named(stem, (self.name, *self._made))

    def _whole(self, name: str) -> str:
        """An operand with the channels as one dimension."""
        source = self._editor.node(name)
        rank = self._node.tensor.rank
        if not isinstance(source.type, TensorType) or source.type.rank == 0:
            return name
        shape = (ONE,) * (rank - source.type.rank) + source.type.shape
        if isinstance(source.kind, View) and isinstance(source.kind.map, Reshape):
            before = self._editor.node(source.inputs[0])
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
        return self._add(relayout(self._fresh(f"{name}_each"), self._made[seen], self._node))

    def _viewed(self, stem: str, source: str, how: ViewMap, shape: tuple[Dim, ...]) -> str:
        seen = self._made[source] if source in self._made else self._editor.node(source)
        return self._add(view_of(self._fresh(stem), seen, how, shape, self._node))

    def _add(self, node: Node) -> str:
        self._made[node.name] = node
        return node.name


# --- The other way -------------------------------------------------------------------------------


def with_groups(graph: Graph) -> Graph:
    """The graph with steps on what a call returns, such as its bias, on groups where all that read
    them do so: the readers compute them on the way."""
    editor = Editor(graph)
    for node in reversed(graph.nodes):
        if not _is_on_calls(node, editor):
            continue
        views = _readers(editor, node)
        readers = [it for view in views for it in _readers(editor, view)]
        if (
            len({view.type for view in views}) == 1
            and all(_splits(view, node) for view in views)
            and all(isinstance(reader.kind, Pointwise | Reduce) for reader in readers)
            and not any(editor.is_shown(it.name) for it in (node, *views))
        ):
            _group(editor, node, views)
    return editor.graph()


def _is_on_calls(node: Node, editor: Editor) -> bool:
    """Whether it is a step that reads nothing of its size but what is in memory anyway."""
    if not isinstance(node.kind, Pointwise) or node.unanchored or has_coordinates(node.kind.expr):
        return False
    sources = map(editor.node, node.inputs)
    wide = [it for it in sources if it.type == node.type]
    return bool(wide) and all(_is_in_memory(it, editor) for it in wide)


def _is_in_memory(node: Node, editor: Editor) -> bool:
    """Whether a value is written anyway: not what the epilogue of a convolution of ours takes."""
    if isinstance(node.kind, Conv) and node.kind.rounding is not None:
        return len(editor.readers(node.name)) > 1
    return isinstance(node.kind, Opaque | Conv | Input)


def _splits(view: Node, node: Node) -> bool:
    """Whether it shows the node with its channels in groups."""
    is_view = isinstance(view.kind, View) and isinstance(view.kind.map, Reshape)
    return is_view and view.tensor.rank > 3 and _merged(view.tensor.shape) == node.tensor.shape


def _group(editor: Editor, node: Node, views: list[Node]) -> None:
    """Put this step on groups in place of the views of it, if its operands have some."""
    whole, parts = node.tensor.shape, views[0].tensor.shape
    made: list[Node] = []
    inputs: list[str] = []
    for name in node.inputs:
        source = editor.node(name)
        kind = source.type
        if not isinstance(kind, TensorType) or kind.rank < len(whole) - 1:
            inputs.append(name)  # What has no channels is the same for all.
            continue
        shape = (ONE,) * (len(whole) - kind.rank) + kind.shape
        if shape[1] not in (ONE, whole[1]):
            return
        own = parts[1:3] if shape[1] == whole[1] else (ONE, ONE)
        fresh = editor.named(f"{name}_grouped", [it.name for it in made])
        grouped = view_of(fresh, source, Reshape(), (shape[0], *own, *shape[2:]), node)
        twin = _twin_before(editor, grouped, views[0])
        if twin is None:
            made.append(grouped)
        inputs.append(made[-1].name if twin is None else twin.name)
    name = editor.named(f"{node.name}_grouped", [it.name for it in made])
    step = replace(
        node, name=name, type=views[0].type, inputs=tuple(inputs), origin=None, part_of=None
    )
    editor.replace(views[0], (*made, step))
    for other in views[1:]:
        editor.replace(other, (step,))
    editor.drop_unread()


def _twin_before(editor: Editor, view: Node, first: Node) -> Node | None:
    """A view equal to `view` that the graph has in front of node `first`, or None."""
    (source,) = view.inputs
    found = (it for it in _readers(editor, editor.node(source)) if _same_view(it, view))
    twin = next(found, None)
    is_before = twin is not None and editor.place(twin.name) < editor.place(first.name)
    return twin if is_before else None


def _same_view(one: Node, other: Node) -> bool:
    return (one.kind, one.type, one.inputs) == (other.kind, other.type, other.inputs)
