"""Layout of a view: it follows from what the view does and from the layout of its operand."""

from collections.abc import Sequence

from kernelwright.ir.kinds import (
    Expand,
    Permute,
    Reshape,
    Select,
    Slice,
    Squeeze,
    Unsqueeze,
    ViewMap,
)
from kernelwright.ir.sizes import ONE, regroup
from kernelwright.ir.types import Dim, Layout, TensorType


def layout_of_view(how: ViewMap, source: TensorType, shape: Sequence[Dim]) -> Layout | None:
    """The layout of a view of this shape; None for row-major order, also where the view may be a
    copy."""
    if source.layout is None and not isinstance(how, Permute):
        return None
    order = source.layout.order if source.layout else tuple(range(source.rank))
    match how:
        case Permute(dims):
            order = tuple(map(dims.index, order))
        case Squeeze(dims):
            order = _without(order, dims)
        case Select(dim):
            order = _without(order, (dim,))
        case Unsqueeze(dim):
            order = (dim, *(it + (it >= dim) for it in order))
        case Expand():
            ahead = len(shape) - source.rank
            order = (*range(ahead), *(it + ahead for it in order))
        case Reshape():
            order = _reshaped(order, source.shape, shape)
        case Slice():
            pass
        case _:  # A copy.
            return None
    return Layout(order) if order != tuple(range(len(shape))) else None


def _without(order: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    kept = [dim for dim in range(len(order)) if dim not in dims]
    return tuple(kept.index(dim) for dim in order if dim not in dims)


def _reshaped(order: Sequence[int], source: Sequence[Dim], shape: Sequence[Dim]) -> tuple[int, ...]:
    """The order of the result's dimensions: row-major where strides cannot express it."""
    row_major = tuple(range(len(shape)))
    pairs = regroup(source, shape)
    if pairs is None:
        return row_major
    found: list[tuple[int, list[int]]] = []
    before = after = 0
    for own, its in pairs:
        places = [order.index(before + at) for at, size in enumerate(own) if size != ONE]
        if places != list(range(places[0], places[0] + len(places)) if places else ()):
            return row_major
        found.append((places[0] if places else -1, list(range(after, after + len(its)))))
        before, after = before + len(own), after + len(its)
    return tuple(dim for _, dims in sorted(found) for dim in dims)
