"""Rolls as gathers: what a roll and the views around it bring where, as one computed index.

Windows of an image that was moved on are slices of it, one for each pixel, which one kernel copies
to where they are read. PyTorch copies once for each dimension that is rolled, and again for the
windows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.ir.editing import drop_unread
from kernelwright.ir.expr import Call, Coordinate, Expr, Literal, Size
from kernelwright.ir.graph import Graph, Node
from kernelwright.ir.kinds import (
    Gather,
    Permute,
    Pointwise,
    Reshape,
    Roll,
    Squeeze,
    Unsqueeze,
    View,
)
from kernelwright.ir.library_calls import call_of_gather
from kernelwright.ir.naming import fresh_name
from kernelwright.ir.sizes import product
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.lower.layouts import view_of
from kernelwright.lower.view_chains import Part, Parts, leaves, parts_of, seen

_ARRANGES = Permute | Reshape | Squeeze | Unsqueeze | Roll


def with_gathered_rolls(graph: Graph) -> Graph:
    """The graph in which a gather stands for each chain of views with a roll among them."""
    if not any(map(_rolls, graph.nodes)):
        return graph
    writer = _Writer(graph)
    nodes = tuple(it for node in graph.nodes for it in writer.nodes_for(node))
    return drop_unread(replace(graph, nodes=nodes))


def _rolls(node: Node) -> bool:
    return isinstance(node.kind, View) and isinstance(node.kind.map, Roll)


def _arranges(node: Node) -> bool:
    return isinstance(node.kind, View) and isinstance(node.kind.map, _ARRANGES)


@dataclass(frozen=True, slots=True)
class _Rolled:
    """A dimension that was moved on."""

    part: Part
    """The dimension afterwards."""
    before: Parts
    shift: Dim


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arranged:
    """What a chain of views does to the elements of its source."""

    source: Node
    outer: Parts
    """Parts that come first before and after."""
    before: Parts
    """Parts between these, in the source."""
    after: Parts
    """Parts of the same elements as they are seen."""
    inner: Parts
    """Parts that come last before and after."""
    rolled: tuple[_Rolled, ...]
    """Dimensions in the order in which they are rolled."""


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._users = graph.users()
        self._ordered = graph.readers_of_mutable()
        self._taken = {node.name for node in graph.nodes}
        self._chains: dict[str, tuple[Node, ...]] = {}
        """The views that end with each, the first one next to their source."""
        self._indices: dict[tuple[Expr, tuple[Dim, ...]], Node] = {}
        """Those that are computed already, by their elements and shape."""
        for node in filter(_arranges, graph.nodes):
            longer = (*self._chains.get(node.inputs[0], ()), node)
            is_known = _arranged(graph[longer[0].inputs[0]], longer) is not None
            self._chains[node.name] = longer if is_known else (node,)

    def nodes_for(self, node: Node) -> tuple[Node, ...]:
        """The nodes that stand for one of the graph: itself, where no chain ends with it."""
        views = self._chains.get(node.name, ())
        if not any(map(_rolls, views)) or not self._is_last(node):
            return (node,)
        # What a roll has copied may have changed when the last view is read.
        if not self._ordered.isdisjoint(view.name for view in views):
            return (node,)
        found = _arranged(self._graph[views[0].inputs[0]], views)
        assert found is not None
        return self._gathered(node, found, views) if found.rolled else (node,)

    def _is_last(self, node: Node) -> bool:
        """Whether somebody reads it other than as part of a longer chain."""
        readers = self._users[node.name]
        is_passed_on = bool(readers) and all(len(self._chains.get(it, ())) > 1 for it in readers)
        return not is_passed_on or node.name in self._graph.results

    def _gathered(self, node: Node, found: _Arranged, views: Sequence[Node]) -> tuple[Node, ...]:
        """The source with one dimension for what is arranged, an index, the gather, its result."""
        outer, inner = ([product(_sizes(run))] if run else [] for run in (found.outer, found.inner))
        shape = (*outer, product(_sizes(found.before)), *inner)
        source = view_of(self._fresh(found.source), found.source, Reshape(), shape, node)
        made = [source] if shape != found.source.tensor.shape else []
        source = source if made else found.source
        index = self._index(found, views, made)
        dim = len(outer)
        gather = Node(
            name=fresh_name(f"{node.name}_gathered", self._taken),
            kind=Gather(dim),
            type=TensorType(node.tensor.dtype, (*outer, *index.tensor.shape, *inner)),
            inputs=(source.name, index.name),
            origin=call_of_gather(source.name, dim, index.name),
            operators=tuple(dict.fromkeys(name for view in views for name in view.operators)),
            source=next(view.source for view in views if _rolls(view)),
        )
        if gather.tensor.shape == node.tensor.shape:
            return (*made, replace(gather, name=node.name))
        last = replace(node, kind=View(Reshape()), inputs=(gather.name,), origin=None)
        return (*made, gather, last)

    def _index(self, found: _Arranged, views: Sequence[Node], made: list[Node]) -> Node:
        shape, place = (product(_sizes(found.after)),), _place(found)
        known = self._indices.get((place, shape))
        if known is None:
            known = self._indices[place, shape] = Node(
                name=fresh_name("place", self._taken),
                kind=Pointwise(place),
                type=TensorType(DType.I64, shape),
                operators=("roll",),
                source=next(view.source for view in views if _rolls(view)),
            )
            made.append(known)
        return known

    def _fresh(self, node: Node) -> str:
        return fresh_name(f"{node.name}_slices", self._taken)


# --- What a chain does -------------------------------------------------------------------------


def _arranged(source: Node, views: Sequence[Node]) -> _Arranged | None:
    """What the views do together; None where that is not known."""
    whole = parts_of(source.tensor.shape)
    dims = list(whole)
    rolled: list[_Rolled] = []
    for view in views:
        assert isinstance(view.kind, View)
        if isinstance(view.kind.map, Roll):
            for shift, dim in zip(view.kind.map.shifts, view.kind.map.dims, strict=True):
                if dims[dim]:
                    part = Part(view.tensor.shape[dim])
                    rolled.append(_Rolled(part, dims[dim], shift))
                    dims[dim] = [part]
            continue
        after = seen(view.kind.map, dims, view.tensor.shape)
        if after is None:
            return None
        dims = after
    before, after_all = (leaves(part for run in it for part in run) for it in (whole, dims))
    outer = _common(before, after_all)
    inner = _common(before[:outer:-1], after_all[:outer:-1])
    return _Arranged(
        source=source,
        outer=before[:outer],
        before=before[outer : len(before) - inner],
        after=after_all[outer : len(after_all) - inner],
        inner=before[len(before) - inner :],
        rolled=tuple(rolled),
    )


def _common(a: Parts, b: Parts) -> int:
    """How many of the first parts are the same."""
    pairs = zip(a, b, strict=False)
    return next((at for at, (x, y) in enumerate(pairs) if x is not y), min(len(a), len(b)))


def _place(found: _Arranged) -> Expr:
    """The place, in the source, of an element of what is arranged."""
    at: dict[Part, Expr] = {}
    _cut(Coordinate(-1), found.after, at)
    for roll in reversed(found.rolled):
        size = _number(roll.part.size)
        moved = _op("sub", _number_of(leaves([roll.part]), at), _number(roll.shift))
        _cut(_op("remainder", moved, size), leaves(roll.before), at)
    return _number_of(found.before, at)


def _number_of(parts: Iterable[Part], at: dict[Part, Expr]) -> Expr:
    """The number of a place in parts that lie side by side, the outermost first."""
    number: Expr | None = None
    for part in parts:
        own = at[part]
        number = own if number is None else _op("add", _op("mul", number, _number(part.size)), own)
    assert number is not None
    return number


def _cut(number: Expr, parts: Sequence[Part], at: dict[Part, Expr]) -> None:
    """Where a place with this number is in each of the parts."""
    for part in reversed(parts[1:]):
        size = _number(part.size)
        at[part] = _op("remainder", number, size)
        number = _op("floor_div", number, size)
    at[parts[0]] = number


def _sizes(parts: Iterable[Part]) -> list[Dim]:
    return [part.size for part in parts]


def _number(size: Dim) -> Expr:
    return Literal(size.hint, DType.I64) if size.is_static else Size(size)


def _op(name: str, *args: Expr) -> Expr:
    return Call(name, args, DType.I64)
