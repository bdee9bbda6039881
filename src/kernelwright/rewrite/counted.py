"""Indices that count up: what they pick is the tensor as it lies."""

from dataclasses import replace

from kernelwright.ir.calls import Argument, Record, Ref
from kernelwright.ir.expr import Coordinate
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Opaque, Pointwise, Reshape, Scan, Squeeze, Unsqueeze, View
from kernelwright.ir.library_calls import INDEX
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings


def _counted_indices(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # x[i, j] with i = 0, 1, ... along one dimension and j = 0, 1, ... along a later one, as far as
    # x goes, is element by element x. A copy that the caller could see, or of what may change,
    # stays one.
    call = node.origin if isinstance(node.kind, Opaque) else None
    if call is None or call.target != INDEX or call.kwargs:
        return None
    match call.args:
        case (Ref(name), Record("list", indices)):
            source = around.node(name)
        case _:
            return None
    if not isinstance(source.kind, Pointwise | Scan) or len(indices) != source.tensor.rank:
        return None
    if not around.unseen(node.name) or not around.unseen(name) or not around.may_move(node):
        return None
    places = [_place(around, index, node) for index in indices]
    found = [place for place in places if place is not None]
    shape = node.tensor.shape
    counts = [shape[place] for place in found] == list(source.tensor.shape)
    only = all(size == ONE for at, size in enumerate(shape) if at not in found)
    if found != places or found != sorted(set(found)) or not counts or not only:
        return None
    return (replace(node, kind=View(Reshape()), inputs=(name,), origin=None),)


def _place(around: Surroundings, index: Argument, node: Node) -> int | None:
    """The dimension of the result along which an index counts up from 0; None of another one."""
    if not isinstance(index, Ref):
        return None
    view = counted = around.node(index.name)
    while isinstance(counted.kind, View) and isinstance(
        counted.kind.map, Reshape | Squeeze | Unsqueeze
    ):
        counted = around.node(counted.inputs[0])
    if not isinstance(view.type, TensorType) or counted.kind != Pointwise(Coordinate(-1)):
        return None
    wide = [at for at, size in enumerate(view.tensor.shape) if size != ONE]
    if len(wide) != 1 or counted.tensor.shape != (view.tensor.shape[wide[0]],):
        return None
    return wide[0] + node.tensor.rank - view.tensor.rank


COUNTED_RULES = (Rule(name="indices that count up pick the tensor itself", match=_counted_indices),)
