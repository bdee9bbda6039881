"""Layout of a value: it follows from what its node does and from the layouts of its operands."""

from collections.abc import Sequence

from kernelwright.ir.graph import Node
from kernelwright.ir.kinds import Conv, Permute, Reshape, Squeeze, View, ViewMap
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, Layout, TensorType

_SPATIAL = (2, 3)
"""Spatial dimensions of convolutions that have a memory format."""


def layout_of(node: Node, inputs: Sequence[Node]) -> Layout | None:
    """The layout of a tensor with these inputs: row-major, unless it is that of a view, or of what
    the library makes of a channels-last operand."""
    match node.kind:
        case View(how):
            return _layout_of_view(how, inputs[0].tensor, node.tensor.shape)
        case Conv(rounding=None) if has_memory_format(node):
            layout = Layout.channels_last(node.tensor.rank)
            return layout if inputs[0].tensor.layout == layout else None
    return None


def has_memory_format(node: Node) -> bool:
    """Whether a convolution's operand and result can be channels-last."""
    return isinstance(node.kind, Conv) and len(node.kind.stride) == node.tensor.rank - 2 in _SPATIAL


def _layout_of_view(how: ViewMap, source: TensorType, shape: Sequence[Dim]) -> Layout | None:
    """The layout of a view of this shape; None where it is row-major, may be a copy, or is not
    followed, as through parts of a tensor, which are not dense."""
    order = source.layout.order if source.layout else tuple(range(source.rank))
    match how:
        case Permute(dims):
            order = tuple(map(dims.index, order))
        case Squeeze(dims):
            kept = [dim for dim in range(source.rank) if dim not in dims]
            order = tuple(kept.index(dim) for dim in order if dim in kept)
        case Reshape() if source.layout:
            order = _reshaped(order, source.shape, shape) or tuple(range(len(shape)))
        case _:
            return None
    return Layout(order) if order != tuple(range(len(shape))) else None


def has_to_copy(source: TensorType, shape: Sequence[Dim]) -> bool:
    """Whether a reshape of this tensor is known to be no view."""
    if source.layout is None or regroup(source.shape, shape) is None:
        return False
    return _reshaped(source.layout.order, source.shape, shape) is None


def is_view(source: TensorType, shape: Sequence[Dim]) -> bool:
    """Whether a reshape of this tensor is known to be a view."""
    order = source.layout.order if source.layout else tuple(range(source.rank))
    return _reshaped(order, source.shape, shape) is not None


def _reshaped(
    order: Sequence[int], source: Sequence[Dim], shape: Sequence[Dim]
) -> tuple[int, ...] | None:
    """The order of the result's dimensions: None where strides cannot express it, or where that is
    not known, so that the result may be a copy."""
    pairs = regroup(source, shape)
    if pairs is None:
        return None
    # A dimension of one element lies anywhere.
    order = [dim for dim in order if source[dim] != ONE]
    found: list[tuple[int, range]] = []
    before = after = 0
    for own, its in pairs:
        places = [order.index(before + at) for at, size in enumerate(own) if size != ONE]
        first = places[0] if places else -1
        if places != list(range(first, first + len(places))):
            return None
        found.append((first, range(after, after + len(its))))
        before, after = before + len(own), after + len(its)
    return tuple(dim for _, dims in sorted(found, key=lambda it: it[0]) for dim in dims)
