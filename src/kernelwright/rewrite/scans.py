"""Rules on running totals. Above each stands why the value stays the same."""

from dataclasses import replace

from kernelwright.ir.expr import Literal
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Accumulation, Concat, Flip, Pointwise, Scan, Slice, View
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


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


def _scan_behind_neutral(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # The totals of all elements but the last, moved on by one place with the neutral element in
    # front, are the totals of what comes before each element; likewise from the end.
    if not isinstance(node.kind, Concat) or len(node.inputs) != 2:
        return None
    inputs = [around.node(name) for name in node.inputs]
    scans = [item for item in inputs if isinstance(item.kind, Scan)]
    if len(scans) != 1:
        return None
    (scan,) = scans
    assert isinstance(scan.kind, Scan)
    first, second = inputs if not scan.kind.reverse else reversed(inputs)
    part = around.node(scan.inputs[0])
    if second is not scan or not _is_neutral(first, scan.kind.op, node.kind.dim):
        return None
    if scan.kind.exclusive or scan.kind.dim != node.kind.dim or not around.may_move(scan):
        return None
    match part.kind:
        case View(Slice(dim, start, _, 1)) if dim == scan.kind.dim:
            whole = around.node(part.inputs[0])
            starts = start.text == ("1" if scan.kind.reverse else "0")
            if starts and whole.type == node.type:
                kind = replace(scan.kind, exclusive=True)
                operators = (*scan.operators, *node.operators)
                return (
                    replace(
                        node, kind=kind, inputs=(whole.name,), origin=None, operators=operators
                    ),
                )
    return None


def _is_neutral(node: Node, op: Accumulation, dim: int) -> bool:
    """Whether it is one element along the dimension that changes no total."""
    neutral = 1 if op is Accumulation.PRODUCT else 0
    match node.kind:
        case Pointwise(Literal(value, _)):
            return value == neutral and node.tensor.shape[dim].text == "1"
    return False


SCAN_RULES = (
    Rule(
        name="running total moved on by one place leaves its element out",
        match=_scan_behind_neutral,
    ),
    Rule(name="running total of a flipped tensor runs the other way", match=_scan_of_flip),
    Rule(name="double flip merged", match=_flip_of_flip),
)
