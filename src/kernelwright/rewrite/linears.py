"""Linear layers on rows in another order than that of memory.

PyTorch copies such an operand, multiplies, and adds the bias in a pass of its own: of 197 x 32 rows
of 768, 51 us for a product of 34. Our kernel takes rows that it cannot join for a batch: 197
products of 32 rows, in tiles of 128 (docs/measured/networks.md). Rows do not know their order: the
layer is computed on them as they lie, and its result is seen in theirs.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from string import ascii_lowercase

from kernelwright.ir.attention import Attention
from kernelwright.ir.calls import AtenCall, rename_call
from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Contract, Kind, Opaque, Permute, Reshape, View, ViewMap
from kernelwright.ir.library_calls import EINSUM, LINEAR
from kernelwright.ir.sizes import are_equal
from kernelwright.ir.types import Dim, TensorType
from kernelwright.rewrite.driver import Rule
from kernelwright.rewrite.surroundings import Surroundings

_HEADS = (0, 2, 1, 3)
"""Dimensions of an attention's result of four dimensions as the library has them in memory."""
_TILE = 128
"""Rows of a tile of our products, most of the time."""


def _rows_as_they_lie(around: Surroundings, node: Node) -> tuple[Node, ...] | None:
    # linear(x)[..., i, j, :] is a function of x[..., i, j, :] alone.
    if not _is_layer(around, node) or len(set(node.inputs)) < len(node.inputs):
        return None
    rows = around.node(node.inputs[0])
    joined = rows if isinstance(rows.kind, View) and isinstance(rows.kind.map, Reshape) else None
    turned = rows if joined is None else around.node(rows.inputs[0])
    if not isinstance(turned.kind, View) or not isinstance(turned.kind.map, Permute):
        return None
    source, order = around.node(turned.inputs[0]), turned.kind.map.dims
    # Others that are joined would be as large a copy behind the layer, or a larger one.
    if joined is not None and not isinstance(source.kind, Attention):
        return None
    inner = 1 if joined is None else _joined(turned.tensor.shape, rows.tensor.shape[-1])
    if inner is None or not _lie_last(source, order[len(order) - inner :]):
        return None
    outer = order[: len(order) - inner]
    ascending = sorted(outer)
    if list(outer) == ascending:
        return None
    if isinstance(node.kind, Contract) and joined is None and _fill_tiles(outer, rows):
        # As fast as it is, and what reads the rows may want them in this order.
        return None
    views = _Views(around, node)
    lying = views.add(source, Permute((*ascending, *order[len(outer) :])))
    if joined is not None:
        lying = views.add(
            lying, Reshape(), (*lying.tensor.shape[: len(outer)], rows.tensor.shape[-1])
        )
    width = node.tensor.shape[-1]
    early = replace(
        node,
        name=around.fresh(node.name),
        kind=_of_rank(node.kind, lying.tensor.rank),
        type=replace(node.tensor, shape=(*lying.tensor.shape[:-1], width), layout=None),
        inputs=(lying.name, *node.inputs[1:]),
        origin=_call_on(node, rows, lying),
    )
    back = Permute((*(ascending.index(d) for d in outer), len(outer)))
    late = replace(node, kind=View(back), inputs=(early.name,), origin=None, operators=())
    if joined is None:
        return (*views.made, early, late)
    apart = views.of(early, back)
    late = replace(late, kind=View(Reshape()), inputs=(apart.name,))
    return (*views.made, early, apart, late)


def _is_layer(around: Surroundings, node: Node) -> bool:
    """Whether the node multiplies rows by a matrix, and its result may have another order."""
    match node.kind:
        case Opaque():
            is_layer = node.origin is not None and node.origin.target == LINEAR
        case Contract(lhs, rhs, out, patches=None):
            is_layer = lhs[:-1] == out[:-1] and sorted(rhs) == sorted(lhs[-1:] + out[-1:])
            # What the caller gets keeps the strides that PyTorch gives it.
            is_layer = is_layer and around.unseen(node.name)
        case _:
            return False
    return is_layer and around.may_move(node)


def _fill_tiles(outer: Sequence[int], rows: Node) -> bool:
    """Whether our kernel's tiles are full of those rows that it can join: the last ones, as far as
    they lie in this order."""
    first = len(outer) - 1
    while first > 0 and outer[first - 1] + 1 == outer[first]:
        first -= 1
    count = prod(dim.hint for dim in rows.tensor.shape[first : len(outer)])
    return -count % _TILE * 8 <= count


def _call_on(node: Node, rows: Node, lying: Node) -> AtenCall | None:
    """The layer's call on other rows; Einstein notation may have too few letters for them."""
    if node.origin is None or node.origin.target == EINSUM:
        return None
    return rename_call(node.origin, {rows.name: lying.name})


def _of_rank(kind: Kind, rank: int) -> Kind:
    """A layer on operands of this rank."""
    if not isinstance(kind, Contract):
        return kind
    letters = ascii_lowercase[: rank + 1]
    rows, summed, columns = letters[:-2], letters[-2], letters[-1]
    matrix = "".join(summed if letter in kind.lhs else columns for letter in kind.rhs)
    return Contract(rows + summed, matrix, rows + columns)


def _joined(shape: Sequence[Dim], last: Dim) -> int | None:
    """How many of the last dimensions a reshape to this last one joins."""
    for count in range(1, len(shape)):
        if are_equal(shape[-count:], [last]):
            return count
    return None


def _lie_last(source: Node, inner: Sequence[int]) -> bool:
    """Whether these dimensions of a value are the last ones in memory."""
    rank = source.tensor.rank
    order: Sequence[int] = range(rank)
    if isinstance(source.kind, Attention) and rank == len(_HEADS):
        order = _HEADS
    elif isinstance(source.kind, View) and isinstance(source.kind.map, Permute):
        order = source.kind.map.dims
    return list(order[rank - len(inner) :]) == list(inner)


class _Views:
    """Views that stand before a layer."""

    def __init__(self, around: Surroundings, node: Node) -> None:
        self._around = around
        self._node = node
        self.made: list[Node] = []

    def add(self, source: Node, how: ViewMap, shape: Sequence[Dim] | None = None) -> Node:
        """One more view; the source itself where that is the same."""
        if isinstance(how, Permute) and how.dims == tuple(range(source.tensor.rank)):
            return source
        self.made.append(self.of(source, how, shape))
        return self.made[-1]

    def of(self, source: Node, how: ViewMap, shape: Sequence[Dim] | None = None) -> Node:
        """A view of a node."""
        if isinstance(how, Permute):
            shape = [source.tensor.shape[d] for d in how.dims]
        assert shape is not None
        return Node(
            name=self._around.fresh(self._node.name),
            kind=View(how),
            type=TensorType(source.tensor.dtype, tuple(shape)),
            inputs=(source.name,),
            source=self._node.source,
        )


LINEAR_RULES = (Rule(name="linear layer on rows in the order of memory", match=_rows_as_they_lie),)
