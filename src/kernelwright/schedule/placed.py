"""Which values lie place by place, all channels of one after those of another, and which steps are
computed in that order."""

from collections.abc import Collection, Mapping

from kernelwright.ir.expr import has_coordinates
from kernelwright.ir.graph import (
    Graph,
    Node,
    Pointwise,
    Project,
    Reduce,
    Reduction,
    Reshape,
    Squeeze,
    View,
    Window,
)
from kernelwright.ir.types import TensorType
from kernelwright.rewrite.sizes import product

_ORDERED = (Reduction.ARGMAX, Reduction.ARGMIN)
"""What counts the places of a row in the order of its dimensions."""


def to_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """The dimensions in the order of memory; `channels`: how many of them the channels are."""
    return (0, *range(1 + channels, rank), *range(1, 1 + channels))


def from_last(rank: int, channels: int = 1) -> tuple[int, ...]:
    """The order in which the dimensions in memory are seen."""
    return (0, *range(rank - channels, rank), *range(1, rank - channels))


def placed(graph: Graph, convolutions: Collection[str]) -> dict[str, int]:
    """The values that can be computed in the order of memory, and how many of their dimensions the
    channels are."""
    known = {node.name: node for node in graph.nodes}
    found: dict[str, int] = {}
    for node in graph.nodes:
        channels = 1 if node.name in convolutions else _channels(node, known, found)
        if channels is not None:
            found[node.name] = channels
    return found


def _channels(node: Node, known: Mapping[str, Node], found: Mapping[str, int]) -> int | None:
    own = [name for name in node.inputs if name in found]
    if not own:
        return None
    source = known[own[0]]
    channels = found[source.name]
    match node.kind:
        case Pointwise(expr):
            ranks = {(known[name].tensor.rank, found[name]) for name in own}
            same = ranks == {(node.tensor.rank, channels)} and not has_coordinates(expr)
            return channels if same else None
        case Reduce(op):
            return None if op in _ORDERED else channels
        case Project():
            return channels
        case Window(size=size):
            dims = node.tensor.rank - 2
            return 1 if channels == 1 and len(size) == dims and dims in (2, 3) else None
        case View(Squeeze(dims)):
            return channels if min(dims) > channels else None
        case View(Reshape()):
            return _regrouped(source.tensor, node.tensor, channels)
    return None


def _regrouped(source: TensorType, result: TensorType, channels: int) -> int | None:
    """The channels in groups, or groups as one, with all other dimensions as they were."""
    now = 1 + channels - (source.rank - result.rank)
    whole, parts = source.shape, result.shape
    if now - 1 not in (1, 2) or whole[0] != parts[0] or whole[1 + channels :] != parts[now:]:
        return None
    same = product(whole[1 : 1 + channels]) == product(parts[1:now])
    return now - 1 if same else None


def by_place(
    graph: Graph, convolutions: Collection[str], channels: Mapping[str, int]
) -> frozenset[str]:
    """Those of the values that are computed in the order of memory: what reduces or pools, what
    other such convolutions read, and the steps before."""
    users = graph.users()
    sources = {node.name: node.inputs[0] for node in graph.nodes if node.name in convolutions}
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name not in channels or node.name in convolutions:
            continue
        readers = users[node.name]
        if (
            isinstance(node.kind, Reduce | Window | Project)
            or any(name in found for name in readers)
            or any(sources.get(name) == node.name for name in readers)
        ):
            found.add(node.name)
    return frozenset(found)
