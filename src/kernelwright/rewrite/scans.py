"""Rules on running totals. Above each stands why the value stays the same."""

from dataclasses import replace

from kernelwright.ir.graph import Flip, Node, Scan, View
from kernelwright.rewrite.driver import Rule, Surroundings


def _scan_of_flip(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Element i of the flipped tensor is element n - 1 - i: totals of its first elements are totals
    # of the last ones of the other, in the flipped place. Other dimensions are only moved.
    if not isinstance(node.kind, Scan):
        return None
    flip = around.node(node.inputs[0])
    if not isinstance(flip.kind, View) or not isinstance(flip.kind.map, Flip):
        return None
    turned = node.kind.dim in flip.kind.map.dims
    scan = replace(node.kind, reverse=node.kind.reverse != turned)
    early = replace(node, name=around.fresh(node.name), kind=scan, inputs=flip.inputs, origin=None)
    late = replace(node, kind=flip.kind, inputs=(early.name,), origin=None, operators=())
    return (early, late)


def _flip_of_flip(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Flipping a dimension twice leaves it as it was.
    match node.kind:
        case View(Flip(outer)):
            inner = around.node(node.inputs[0])
            if isinstance(inner.kind, View) and isinstance(inner.kind.map, Flip):
                dims = tuple(sorted(set(outer) ^ set(inner.kind.map.dims)))
                if not dims:
                    return (around.node(inner.inputs[0]),)
                merged = replace(node, kind=View(Flip(dims)), inputs=inner.inputs, origin=None)
                return (merged,)
    return None


SCAN_RULES = (
    Rule(name="running total of a flipped tensor runs the other way", match=_scan_of_flip),
    Rule(name="double flip merged", match=_flip_of_flip),
)
