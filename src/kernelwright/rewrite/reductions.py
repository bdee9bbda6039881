"""Rules on reductions. Above each stands why the value stays the same."""

from dataclasses import replace

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Reduce, Reshape, Squeeze, Unsqueeze, View
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, TensorType, TupleType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


def _reduction_of_reshape(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # A row has the same elements in the same order under either shape, if the dimensions that were
    # joined or split are all reduced or all kept.
    if not isinstance(node.kind, Reduce) or isinstance(node.type, TupleType):
        return None
    view = around.node(node.inputs[0])
    if not isinstance(view.kind, View) or not isinstance(
        view.kind.map, Reshape | Squeeze | Unsqueeze
    ):
        return None
    source = around.node(view.inputs[0])
    if not around.is_from_anchor(source.name):
        return None
    dims = _dims_before(node.kind.dims, view.tensor.shape, source.tensor.shape)
    if not dims:
        return None
    reduced = tuple(ONE if at in dims else dim for at, dim in enumerate(source.tensor.shape))
    early = replace(
        node,
        name=around.fresh(node.name),
        kind=Reduce(node.kind.op, dims),
        type=TensorType(node.tensor.dtype, reduced),
        inputs=(source.name,),
        origin=None,
    )
    late = replace(node, kind=View(Reshape()), inputs=(early.name,), origin=None, operators=())
    return (early, late)


def _dims_before(
    dims: tuple[int, ...], view: tuple[Dim, ...], source: tuple[Dim, ...]
) -> tuple[int, ...] | None:
    """The dimensions of `source` that `dims` of its view come from; None where they are mixed."""
    pairs = regroup(view, source)
    if pairs is None:
        return None
    found: list[int] = []
    at = before = 0
    for mine, theirs in pairs:
        inside = [at + i in dims for i, size in enumerate(mine) if size != ONE]
        if any(inside) and not all(inside):
            return None
        if any(inside):
            found += range(before, before + len(theirs))
        at, before = at + len(mine), before + len(theirs)
    return tuple(found)


REDUCTION_RULES = (
    Rule(
        name="reduction of a reshaped tensor reduces what was reshaped", match=_reduction_of_reshape
    ),
)
