"""Halves of a tensor put side by side again, as rotary embeddings do: an index map, not a copy."""

from dataclasses import replace

from kernelwright.ir.expr import (
    Call,
    Coordinate,
    Expr,
    Literal,
    Operand,
    has_coordinates,
    transform,
)
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Concat, Pointwise, Reshape, Slice, Unsqueeze, View
from kernelwright.ir.sizes import ONE
from kernelwright.ir.types import Dim, DType, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.sinking import regrouped
from kernelwright.rewrite.surroundings import Surroundings

_TWO = Dim.static(2)


def _halves_side_by_side(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # Element (k, i) of the two halves as rows is element i of half k: which half is a question of
    # the row, and the rows in order are the halves side by side.
    if not isinstance(node.kind, Concat) or not around.unseen(node.name):
        return None
    shape = node.tensor.shape
    if len(node.inputs) != 2 or node.kind.dim != len(shape) - 1 or not around.may_move(node):
        return None
    parts = [_part(around, around.node(name)) for name in node.inputs]
    if None in parts:
        return None
    (first, one), (second, other) = (part for part in parts if part is not None)
    if first.inputs != second.inputs or first.tensor.shape != second.tensor.shape:
        return None
    half = first.tensor.shape[-1]
    if not half.is_static or one.dtype is not other.dtype:
        return None
    rows = (*shape[:-1], _TWO, half)
    place = len(shape) - 1
    views = [
        Node(
            name=around.fresh(part.name),
            kind=View(Unsqueeze(place)),
            type=TensorType(part.tensor.dtype, (*shape[:-1], ONE, half)),
            inputs=(part.name,),
            source=part.source,
        )
        for part in (first, second)
    ]
    is_first = Call("eq", (Coordinate(-2), Literal(0, DType.I64)), DType.BOOL)
    moved = transform(other, lambda it: Operand(1, it.dtype) if isinstance(it, Operand) else it)
    joined = replace(
        node,
        name=around.fresh(node.name),
        kind=Pointwise(Call("where", (is_first, one, moved), one.dtype)),
        type=TensorType(node.tensor.dtype, rows),
        inputs=tuple(view.name for view in views),
        origin=None,
    )
    late = replace(node, kind=View(Reshape()), inputs=(joined.name,), origin=None, operators=())
    return (*views, joined, late)


def _part(around: Surroundings, node: Node) -> tuple[Node, Expr] | None:
    """A slice of a tensor, and what is made of each of its elements."""
    expr: Expr = Operand(0, node.tensor.dtype)
    if isinstance(node.kind, Pointwise) and len(node.inputs) == 1:
        if has_coordinates(node.kind.expr) or around.readers(node.name) > 1:
            return None
        expr = node.kind.expr
        shape, node = node.tensor.shape, around.node(node.inputs[0])
        if not isinstance(node.type, TensorType) or node.tensor.shape != shape:
            return None
    match node.kind:
        case View(Slice(dim, _, _, 1)) if dim == node.tensor.rank - 1:
            return node, expr
    return None


def _work_on_halves(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # What happens to each element alone may happen to it before the halves are side by side.
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    if has_coordinates(node.kind.expr):
        return None
    for view in map(around.node, node.inputs):
        if _joins_halves(around, view) and view.tensor.shape == node.tensor.shape:
            break
    else:
        return None
    source = around.node(view.inputs[0])
    made: list[Node] = []
    names: list[str] = []
    for name in node.inputs:
        found = name if name == view.name else None
        if found is None:
            found = _split(around, around.node(name), view, source, made)
        if found is None:
            return None
        names.append(source.name if found == view.name else found)
    early = replace(
        node,
        name=around.fresh(node.name),
        type=TensorType(node.tensor.dtype, source.tensor.shape),
        inputs=tuple(names),
        origin=None,
    )
    late = replace(node, kind=View(Reshape()), inputs=(early.name,), origin=None, operators=())
    return (*made, early, late)


def _joins_halves(around: Surroundings, view: Node) -> bool:
    """Whether it puts the two rows of work on halves side by side, for one reader alone."""
    if not isinstance(view.kind, View) or not isinstance(view.kind.map, Reshape):
        return False
    source = around.node(view.inputs[0])
    if not isinstance(source.kind, Pointwise) or source.tensor.rank < 2:
        return False
    *before, count, half = source.tensor.shape
    is_joined = count == _TWO and view.tensor.shape[:-1] == tuple(before)
    is_alone = around.readers(view.name) == around.readers(source.name) == 1
    return is_joined and half.is_static and is_alone and around.unseen(view.name)


def _split(
    around: Surroundings, operand: Node, view: Node, source: Node, made: list[Node]
) -> str | None:
    """The name of an operand as rows of halves, whose last dimension alone is split: no copy.

    What is computed for this reader alone is computed so; `made` gets the new nodes.
    """
    if not isinstance(operand.type, TensorType) or operand.type.rank == 0:
        return operand.name
    new = regrouped(operand.type.shape, view.tensor.shape, source.tensor.shape)
    if new is None:
        return None
    if new == operand.type.shape:
        return operand.name
    kind, inputs = View(Reshape()), [operand.name]
    if _moves_along(around, operand):
        assert isinstance(operand.kind, Pointwise)
        found = [_split(around, around.node(it), view, source, made) for it in operand.inputs]
        if None in found:
            return None
        inputs = [name for name in found if name is not None]
        kind = operand.kind  # type: ignore[assignment]
    early = replace(
        operand,
        name=around.fresh(operand.name),
        kind=kind,
        type=TensorType(operand.type.dtype, new),
        inputs=tuple(inputs),
        origin=None,
        part_of=None,
    )
    made.append(early)
    return early.name


def _moves_along(around: Surroundings, operand: Node) -> bool:
    is_work = isinstance(operand.kind, Pointwise) and not has_coordinates(operand.kind.expr)
    is_alone = around.readers(operand.name) == 1 and around.unseen(operand.name)
    return is_work and is_alone and around.may_move(operand)


HALF_RULES = (
    Rule(name="halves side by side are read as rows", match=_halves_side_by_side),
    Rule(name="work on halves before they are side by side", match=_work_on_halves),
)
