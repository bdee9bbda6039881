"""Rules on reductions. Above each stands why the value stays the same."""

from dataclasses import replace

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Project, Reduce, Reshape, Squeeze, Unsqueeze, View
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, TensorType, TupleType, ValueType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


def _reduction_of_reshape(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    if isinstance(node.type, TupleType):
        return None
    early = _of_source(around, node)
    return None if early is None else (early, _shown_as(node, early))


def _value_of_reshape(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # The reduction is made once for each of its values; equal ones become one in the last pass.
    # Not behind another norm: its groups of channels would stay dimensions of all that follows.
    if not isinstance(node.kind, Project):
        return None
    early = _of_source(around, around.node(node.inputs[0]))
    if early is None or not around.is_from_product(early.inputs[0]):
        return None
    assert isinstance(early.type, TupleType)
    value = replace(
        node,
        name=around.fresh(node.name),
        type=early.type.items[node.kind.index],
        inputs=(early.name,),
        origin=None,
    )
    return (early, value, _shown_as(node, value))


def _of_source(around: Surroundings, node: Node) -> Node | None:
    """The reduction of what its operand is a reshape of; None where rows would be others."""
    # A row has the same elements in the same order under either shape, if the dimensions that were
    # joined or split are all reduced or all kept.
    if not isinstance(node.kind, Reduce):
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
    shape = tuple(ONE if at in dims else dim for at, dim in enumerate(source.tensor.shape))
    return replace(
        node,
        name=around.fresh(node.name),
        kind=Reduce(node.kind.op, dims),
        type=_reshaped(node.type, shape),
        inputs=(source.name,),
        origin=None,
    )


def _reshaped(kind: ValueType, shape: tuple[Dim, ...]) -> ValueType:
    if isinstance(kind, TupleType):
        return TupleType(tuple(_reshaped(item, shape) for item in kind.items))
    return TensorType(kind.dtype, shape) if isinstance(kind, TensorType) else kind


def _shown_as(node: Node, early: Node) -> Node:
    """`early` in the shape of `node`, in its place."""
    return replace(node, kind=View(Reshape()), inputs=(early.name,), origin=None, operators=())


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
    Rule(name="moments of a reshaped tensor are of what was reshaped", match=_value_of_reshape),
)
