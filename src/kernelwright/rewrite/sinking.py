"""Views move out of the way of pointwise nodes, so that these can join what they belong to.

Views of products, reductions, scans and poolings sink below the pointwise nodes that read them;
what is reshaped for a reduction, or permuted to meet a product, is so before the pointwise nodes
that it comes from.
"""

from dataclasses import replace

from kernelwright.ir.expr import Coordinate, Expr, has_coordinates, transform
from kernelwright.ir.graph import Node, widens
from kernelwright.ir.kinds import (
    DiagEmbed,
    Diagonal,
    Expand,
    Flip,
    Opaque,
    Permute,
    Pointwise,
    Reshape,
    Roll,
    Squeeze,
    Unsqueeze,
    View,
    ViewMap,
)
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings
from kernelwright.rewrite.tensors import align

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _sink(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # What happens to each element alone may happen to it before it is moved.
    if not isinstance(node.kind, Pointwise) or not isinstance(node.type, TensorType):
        return None
    operands = [around.node(name) for name in node.inputs]
    if widens(node, around.node) and around.is_only_read_in_windows(node.name):
        # Their kernel widens what it reads; the product would write all those bytes.
        return None
    if any(_is_full(item, node) and around.is_from_anchor(item.name) for item in operands):
        # It can join a product as it stands.
        return None
    for view in operands:
        if (
            isinstance(view.kind, View)
            and _is_full(view, node)
            and _shows_anchor(around, view)
            # Work on the rows of a reduction belongs to that, which the view stays in front of.
            and not around.is_reduced(view.name)
            and _may_follow(around, view)
            and not _is_for_parts(around, node, view)
            # A copy would be of more bytes.
            and not (_may_copy(around, view) and widens(node, around.node))
        ):
            made = _before(around, node, node.kind.expr, view, view.kind.map)
            if made is not None:
                return made
    return None


def _is_full(item: Node, node: Node) -> bool:
    return isinstance(item.type, TensorType) and item.type.shape == node.tensor.shape


def _shows_anchor(around: Surroundings, view: Node) -> bool:
    while isinstance(view.kind, View):
        if not isinstance(view.kind.map, Permute | Reshape | Squeeze | Unsqueeze):
            return False
        view = around.node(view.inputs[0])
    return around.is_from_anchor(view.name)


def _may_follow(around: Surroundings, view: Node) -> bool:
    """Whether a step on what the view shows can join a product that it is of: that is not written
    for another view of it. Rows that are only joined or cut lie as they did: then a step on them
    may stand beside others."""
    others = around.has_views(view.name)
    permuted = False
    while isinstance(view.kind, View):
        source = around.node(view.inputs[0])
        permuted |= isinstance(view.kind.map, Permute)
        is_alone = around.is_read_only_as if permuted else around.is_seen_only_as
        others |= not is_alone(source.name, view)
        view = source
    return not (others and around.is_from_product(view.name))


def _is_for_parts(around: Surroundings, node: Node, view: Node) -> bool:
    """Whether a step belongs to a reduction of parts of a product's rows, such as a norm of heads,
    and would be a kernel between: the product is a call's or read by others, or it is widened."""
    source = around.node(view.inputs[0])
    if not isinstance(view.kind, View) or not isinstance(view.kind.map, Reshape):
        return False
    if not around.is_from_product(source.name) or not around.joins_reduction(node.name):
        return False
    pairs = regroup(view.tensor.shape, source.tensor.shape)
    if not pairs or len(pairs[-1][0]) == 1:
        return False  # Rows are whole.
    alone = around.readers(view.name) == around.readers(source.name) == 1
    return isinstance(source.kind, Opaque) or not alone or widens(node, around.node)


def _before(
    around: Surroundings, node: Node, expr: Expr, view: Node, index_map: ViewMap
) -> tuple[Node, ...] | None:
    """`node` computed on what `view` shows, then shown the same way."""
    source = around.node(view.inputs[0])
    moved = _move_coordinates(expr, index_map)
    if moved is None:
        return None
    made: list[Node] = []
    names: list[str] = []
    for name in node.inputs:
        operand = around.node(name)
        views = [] if name == view.name else _undo(around, operand, view, source)
        if views is None or (views and _would_return(around, operand, source)):
            return None
        made += views
        names.append(source.name if name == view.name else views[-1].name if views else name)
    early = replace(
        node,
        name=around.fresh(node.name),
        kind=Pointwise(moved),
        type=TensorType(node.tensor.dtype, source.tensor.shape),
        inputs=tuple(names),
        origin=None,
    )
    late = replace(node, kind=View(index_map), inputs=(early.name,), origin=None, operators=())
    return (*made, early, late)


def _would_return(around: Surroundings, operand: Node, source: Node) -> bool:
    """Whether an operand, behind one more view, would be the next to move, and the first again."""
    is_view = isinstance(operand.kind, View)
    return is_view and _shows_anchor(around, operand) and not around.is_from_anchor(source.name)


def _move_coordinates(expr: Expr, index_map: ViewMap) -> Expr | None:
    """The expression with its coordinates counted in the source of the view."""
    if not has_coordinates(expr):
        return expr
    if not isinstance(index_map, Permute):
        return None
    rank = len(index_map.dims)
    places = {dim: index_map.dims[dim] - rank for dim in (-1, -2)}
    if set(places.values()) != {-1, -2}:
        return None
    return transform(
        expr,
        lambda leaf: Coordinate(places[leaf.dim]) if isinstance(leaf, Coordinate) else leaf,
    )


def _undo(around: Surroundings, operand: Node, view: Node, source: Node) -> list[Node] | None:
    """Views that lay an operand of the view's shape along the source's; None where it must copy."""
    if not isinstance(operand.type, TensorType) or operand.type.rank == 0:
        return []
    shape = operand.type.shape
    if isinstance(view.kind, View) and isinstance(view.kind.map, Permute):
        dims = view.kind.map.dims
        return _permuted(around, operand, tuple(dims.index(d) for d in range(len(dims))))
    new = regrouped(shape, view.tensor.shape, source.tensor.shape)
    if new is None or (shape == view.tensor.shape and not _lies_in_order(around, operand)):
        return None
    if new == shape:
        return []
    return [
        Node(
            name=around.fresh(operand.name),
            kind=View(Reshape()),
            type=TensorType(operand.type.dtype, new),
            inputs=(operand.name,),
            source=operand.source,
        )
    ]


def _permuted(around: Surroundings, operand: Node, dims: tuple[int, ...]) -> list[Node]:
    """Views that lay an operand along a tensor that it broadcasts to, once that is permuted."""
    if not isinstance(operand.type, TensorType) or operand.type.rank == 0:
        return []
    letters = _LETTERS[: len(dims)]
    after = "".join(letters[d] for d in dims)
    return align(around, operand, letters[-operand.type.rank :], after)


def _may_copy(around: Surroundings, view: Node) -> bool:
    """Whether a view is a reshape of what does not lie in order."""
    is_reshape = isinstance(view.kind, View) and isinstance(view.kind.map, Reshape)
    return is_reshape and not _lies_in_order(around, around.node(view.inputs[0]))


def _lies_in_order(around: Surroundings, node: Node) -> bool:
    """True unless it is known that a Reshape of the whole tensor would have to copy it."""
    while isinstance(node.kind, View):
        if isinstance(node.kind.map, Permute | Expand | Flip | Roll | DiagEmbed | Diagonal):
            return False
        node = around.node(node.inputs[0])
    return True


def regrouped(
    shape: tuple[Dim, ...], view: tuple[Dim, ...], source: tuple[Dim, ...]
) -> tuple[Dim, ...] | None:
    """The shape of an operand that broadcasts to `view`, once that is reshaped to `source`."""
    pairs = regroup(view, source)
    if pairs is None:
        return None
    padded = (ONE,) * (len(view) - len(shape)) + shape
    new: list[Dim] = []
    at = 0
    for mine, theirs in pairs:
        own = padded[at : at + len(mine)]
        at += len(mine)
        if own == mine:
            new += theirs
        elif all(size == ONE for size in own):
            new += [ONE] * len(theirs)
        else:
            return None
    while new and new[0] == ONE:
        new.pop(0)
    return tuple(new)


def _rise(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # What happens to each element alone may happen to it after it is moved.
    if not isinstance(node.kind, View) or not _helps_above(around, node, node.kind.map):
        return None
    early = around.node(node.inputs[0])
    if not isinstance(early.kind, Pointwise):
        return None
    # A permutation that leaves the last two dimensions where they are, or swaps them, is its own
    # inverse for coordinates.
    expr = _move_coordinates(early.kind.expr, node.kind.map)
    if expr is None:
        return None
    if not around.is_read_only_as(early.name, node) or not around.unseen(early.name):
        return None
    if around.is_from_anchor(early.name) or not around.may_move(early):
        return None
    made: list[Node] = []
    names: list[str] = []
    for name in early.inputs:
        operand = around.node(name)
        match node.kind.map:
            case Permute(dims=dims):
                views: list[Node] | None = _permuted(around, operand, dims)
            case _:
                views = _undo(around, operand, early, node)
        if views is None:
            return None
        made += views
        names.append(views[-1].name if views else name)
    late = replace(
        early,
        name=around.fresh(early.name),
        kind=Pointwise(expr),
        type=TensorType(early.tensor.dtype, node.tensor.shape),
        inputs=tuple(names),
        origin=None,
    )
    return (*made, late)


def _helps_above(around: Surroundings, view: Node, index_map: ViewMap) -> bool:
    """Whether what is computed behind the view joins another kernel."""
    match index_map:
        case Reshape() | Squeeze() | Unsqueeze():
            return around.joins_reduction(view.name)
        case Permute(dims=dims):
            # Rows are read along what was theirs before.
            return dims[-1:] == (len(dims) - 1,) and around.joins_product(view.name)
    return False


SINKING_RULES = (
    Rule(name="view moved below a pointwise operation", match=_sink),
    Rule(name="view moved above a pointwise operation", match=_rise),
)
