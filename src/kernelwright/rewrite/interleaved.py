"""Slices with steps side by side: each has one element of every few, and together they have all.

A patch merging puts the four corners of each square of an image one after the other. That is the
image with its dimensions cut in two, in another order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Concat, Permute, Reshape, Slice, View
from kernelwright.ir.types import Dim, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings

_MOST_DIMS = 3
"""Dimensions that have steps; their orders are tried."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Every few elements of a tensor along some dimensions."""

    source: Node
    starts: dict[int, int]
    steps: dict[int, int]


def _interleaved(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Element (i, r) of a dimension that is cut in runs of `step` is element i * step + r. The parts
    # are of one size, so that the last run is whole.
    if not isinstance(node.kind, Concat) or not around.may_move(node):
        return None
    parts = [_part(around, name) for name in node.inputs]
    first, *others = parts
    if any(it.source != first.source or it.steps != first.steps for it in others):
        return None
    source, steps = first.source, first.steps
    if not steps or len(steps) > _MOST_DIMS or node.kind.dim in steps:
        return None
    order = _order(parts, steps)
    if order is None:
        return None
    counts = around.node(node.inputs[0]).tensor.shape
    cut: list[Dim] = []
    places: list[int] = []
    """Where each dimension of the source is, once it is cut."""
    for d, size in enumerate(source.tensor.shape):
        places.append(len(cut))
        cut += [counts[d], Dim.static(steps[d])] if d in steps else [size]
    at = node.kind.dim
    within = [places[d] + 1 for d in order]
    dims = (*places[:at], *within, *places[at:])
    apart = _view(around, node, source, Reshape(), cut)
    turned = _view(around, node, apart, Permute(dims), [cut[d] for d in dims])
    return (apart, turned, replace(node, kind=View(Reshape()), inputs=(turned.name,), origin=None))


def _part(around: Surroundings, name: str) -> _Part:
    """What a tensor is a part of; itself, where it is no slice with a step."""
    node = around.node(name)
    part = _Part(node, {}, {})
    while isinstance(node.kind, View) and isinstance(node.kind.map, Slice):
        cut, source = node.kind.map, around.node(node.inputs[0])
        is_whole = cut.stop == source.tensor.shape[cut.dim]
        if cut.step == 1 or cut.dim in part.steps or not cut.start.is_static or not is_whole:
            break
        part = _Part(
            source,
            {**part.starts, cut.dim: cut.start.hint},
            {**part.steps, cut.dim: cut.step},
        )
        node = source
    return part


def _order(parts: Sequence[_Part], steps: dict[int, int]) -> tuple[int, ...] | None:
    """The dimensions in which parts differ, the one that changes least often first."""
    for order in permutations(steps):
        wanted = product(*(range(steps[d]) for d in order))
        if [tuple(part.starts[d] for d in order) for part in parts] == list(wanted):
            return order
    return None


def _view(
    around: Surroundings, node: Node, source: Node, how: Reshape | Permute, shape: Sequence[Dim]
) -> Node:
    return Node(
        name=around.fresh(node.name),
        kind=View(how),
        type=TensorType(source.tensor.dtype, tuple(shape)),
        inputs=(source.name,),
        source=node.source,
    )


INTERLEAVED_RULES = (
    Rule(name="slices with steps side by side as one permutation", match=_interleaved),
)
